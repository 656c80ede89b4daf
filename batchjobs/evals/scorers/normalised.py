"""The answer is the target when case, punctuation, articles and white space are put aside, as SQuAD
compares them (Rajpurkar et al., 2016, evaluation script)."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

from batchjobs.evals.answers import Answer
from batchjobs.evals.scorers.base import Mark, Template, TextScorer, verdict_of
from batchjobs.evals.templates import Fields, render

_ARTICLES = re.compile(r"\b(a|an|the)\b")


class Normalised(TextScorer):
    type: Literal["normalised"]
    target: Template
    articles: bool = False
    """True keeps them."""

    def mark(self, fields: Fields, answer: Answer) -> Mark:
        given = self._normal(answer.text)
        return verdict_of(given == self._normal(render(self.target, fields)), given)

    def _normal(self, text: str) -> str:
        folded = unicodedata.normalize("NFKC", text).casefold()
        bare = "".join(c for c in folded if not unicodedata.category(c).startswith("P"))
        return " ".join((bare if self.articles else _ARTICLES.sub(" ", bare)).split())
