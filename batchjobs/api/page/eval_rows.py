"""Suites and runs as the page shows them: facts → words, tones and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batchjobs.api.page.eval_words import VERDICT_LETTERS, verdict_tone
from batchjobs.evals.outcomes import Missing
from batchjobs.evals.states import ENDED, Purpose, RunState
from batchjobs.evals.tables import EvalRun
from batchjobs.evals.trends import Band, Standing, TrendPoint

_PURPOSES = {Purpose.BASELINE: "for a baseline", Purpose.CONFIRMATION: "confirms another"}
_CONDITIONS = ("items", "prompts", "template", "sampling", "model")
_DIGEST_CHARS = 12

Wire = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRow:
    """Answers without a score for one reason; limits are of runs that were judged."""

    missing: str
    share: float
    baseline: float | None
    limit: float | None

    @property
    def is_over(self) -> bool:
        return self.limit is not None and self.share > self.limit + 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class TagRow:
    """`judged` is the verdict's comparison of the tag, if there is one."""

    tag: str | None
    found: Wire
    judged: Wire | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionRow:
    """`is_same` compares it with the baseline's; None without one."""

    name: str
    digest: str
    is_same: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One run, in a list or by itself."""

    run: EvalRun
    is_pinned: bool = False

    @property
    def path(self) -> str:
        return f"/evals/runs/{self.run.id}"

    @property
    def is_open(self) -> bool:
        return self.run.state not in ENDED

    @property
    def has_scores(self) -> bool:
        return self.run.answers_key is not None

    @property
    def word(self) -> str:
        """The verdict; without one, how far it is or what it is for."""
        run = self.run
        if run.word:
            return run.word
        if run.state == RunState.SCORED:
            return "to be confirmed" if run.purpose == Purpose.RUN else "scored"
        if run.state == RunState.FINISHED:
            return {Purpose.BASELINE: "baseline"}.get(run.purpose, str(run.purpose))
        return str(run.state)

    @property
    def tone(self) -> str:
        if self.run.state == RunState.FAILED:
            return "bad"
        return verdict_tone(self.run.word) if self.run.word or not self.is_open else "live"

    @property
    def letter(self) -> str:
        """In a strip of many."""
        if self.run.state == RunState.FAILED:
            return "×"
        return VERDICT_LETTERS.get(self.run.word or "", "…" if self.is_open else "·")

    @property
    def purpose(self) -> str:
        return _PURPOSES.get(self.run.purpose, "")

    @property
    def scores(self) -> Wire:
        """Of the deciding metric; of a run without scores, none."""
        found: Wire = (self.run.scores or {}).get(self.run.metric, {"mean": None, "scored": 0})
        return found

    @property
    def verdict(self) -> Wire | None:
        return self.run.verdict

    @property
    def whole(self) -> Wire | None:
        return None if self.run.verdict is None else self.run.verdict["whole"]

    @property
    def rates(self) -> list[RateRow]:
        """Of each reason; of a run that was not judged, of those that there are."""
        if self.run.verdict is not None:
            return [
                RateRow(**{name: row[name] for name in ("missing", "share", "baseline", "limit")})
                for row in self.run.verdict["rates"]
            ]
        missing = self.scores.get("missing", {})
        return [
            RateRow(
                missing=str(why), share=missing[why] / self.run.samples, baseline=None, limit=None
            )
            for why in Missing
            if why in missing
        ]

    @property
    def tags(self) -> list[TagRow]:
        """The whole, then each tag."""
        judged = {row["tag"]: row for row in (self.run.verdict or {}).get("tags", ())}
        rows = [TagRow(tag=None, found=self.scores, judged=self.whole)]
        for tag, found in self.scores.get("tags", {}).items():
            rows.append(TagRow(tag=tag, found=found, judged=judged.get(tag)))
        return rows

    def conditions(self, baseline: Sequence[EvalRun]) -> list[ConditionRow]:
        """What was asked, and how it was scored."""
        own = {name: self.run.conditions[name] for name in _CONDITIONS}
        own["scorer"] = self.run.conditions["scorers"][self.run.metric]
        first = next(iter(baseline), None)
        theirs = {} if first is None else _conditions_of(first, self.run.metric)
        return [
            ConditionRow(
                name=name,
                digest=str(digest)[:_DIGEST_CHARS],
                is_same=None if first is None else theirs.get(name) == digest,
            )
            for name, digest in own.items()
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingRow:
    """`judged` is the newest run with a verdict, `newest` the newest that is to have one."""

    standing: Standing
    newest: RunRow | None
    judged: RunRow | None

    @classmethod
    def of(cls, standing: Standing) -> StandingRow:
        rows = [RunRow(run=run) for run in standing.recent]
        judged = next((row for row in rows if row.run.word), None)
        return cls(standing=standing, newest=rows[0] if rows else None, judged=judged)

    @property
    def strip(self) -> list[RunRow]:
        """The oldest first."""
        return [RunRow(run=run) for run in reversed(self.standing.recent)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTrend:
    """One curve: a suite on one model, beside the baseline that its newest run is measured by."""

    model: str
    points: Sequence[TrendPoint]
    band: Band | None

    @property
    def said(self) -> str:
        """For who cannot see it."""
        first, last = self.points[0], self.points[-1]
        words = f"Score of {len(self.points)} runs on {self.model},"
        words += f" from {first.score:.4f} to {last.score:.4f}"
        if self.band is not None:
            words += f"; the baseline is {self.band.mean:.4f}"
        return f"{words}. The numbers are in the table below."


def _conditions_of(run: EvalRun, metric: str) -> dict[str, Any]:
    known = {name: run.conditions[name] for name in _CONDITIONS}
    return {**known, "scorer": run.conditions["scorers"].get(metric)}
