"""Whether a run is worse than its baseline, how surely, and how often that would be wrong.

Pure: values in, values out. `docs/verdict.md` says the same to a person.
"""

from batchjobs.evals.statistics.comparison import Comparison
from batchjobs.evals.statistics.intervals import Interval
from batchjobs.evals.statistics.scores import Score, score
from batchjobs.evals.statistics.simulation import Simulation, simulate
from batchjobs.evals.statistics.validity import Limits, Rate
from batchjobs.evals.statistics.verdict import (
    ALPHA,
    Case,
    Flip,
    Verdict,
    Word,
    describe,
    verdict,
    verdicts,
)

__all__ = [
    "ALPHA",
    "Case",
    "Comparison",
    "Flip",
    "Interval",
    "Limits",
    "Rate",
    "Score",
    "Simulation",
    "Verdict",
    "Word",
    "describe",
    "score",
    "simulate",
    "verdict",
    "verdicts",
]
