"""How much of a reference's wording the answer has: ROUGE and BLEU, by their usual libraries."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from batchjobs.errors import UsageError
from batchjobs.evals.answers import Answer
from batchjobs.evals.scorers.base import Mark, Template, TextScorer
from batchjobs.evals.templates import Fields, render


class Rouge(TextScorer):
    """The F-measure of rouge-score, 0 to 1."""

    type: Literal["rouge"]
    target: Template
    variant: Literal["rouge1", "rouge2", "rougeL", "rougeLsum"] = "rougeL"
    stem: bool = True

    def mark(self, fields: Fields, answer: Answer) -> Mark:
        scorer = _rouge(self.variant, self.stem)
        found = scorer.score(render(self.target, fields), answer.text)
        return Mark(score=float(found[self.variant].fmeasure), extracted=answer.text.strip())

    def check(self, fields: Fields) -> None:
        super().check(fields)
        _rouge(self.variant, self.stem)


class Bleu(TextScorer):
    """sacrebleu's sentence BLEU (exponential smoothing, effective order), 0 to 1."""

    type: Literal["bleu"]
    target: Template

    def mark(self, fields: Fields, answer: Answer) -> Mark:
        found = _bleu().sentence_score(answer.text, [render(self.target, fields)])
        return Mark(score=min(1.0, found.score / 100), extracted=answer.text.strip())

    def check(self, fields: Fields) -> None:
        super().check(fields)
        _bleu()


@cache
def _rouge(variant: str, stem: bool) -> Any:
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        raise _missing("rouge", "rouge-score") from None
    return RougeScorer([variant], use_stemmer=stem)


@cache
def _bleu() -> Any:
    try:
        from sacrebleu.metrics import BLEU
    except ImportError:
        raise _missing("bleu", "sacrebleu") from None
    return BLEU(effective_order=True)


def _missing(scorer: str, package: str) -> UsageError:
    return UsageError(
        f"The scorer `{scorer}` needs {package}, which is missing: pip install 'batchjobs[evals]'."
    )
