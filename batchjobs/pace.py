"""How fast jobs go, seen from outside: by what has come of them since a while ago."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

WINDOW_SECONDS = 60.0
MIN_SECONDS = 3.0
"""Results come checkpoint by checkpoint: over less time, nothing can be said."""


class Pace:
    """Told now and then how many tokens each open job has taken so far."""

    def __init__(self) -> None:
        self._marks: dict[str, deque[tuple[float, int]]] = {}

    def observe(self, now: float, tokens: Mapping[str, int]) -> None:
        """`tokens` has all open jobs; the others are forgotten."""
        self._marks = {job_id: self._marks.get(job_id, deque()) for job_id in tokens}
        for job_id, total in tokens.items():
            marks = self._marks[job_id]
            while len(marks) > 1 and now - marks[1][0] >= WINDOW_SECONDS:
                marks.popleft()
            marks.append((now, total))

    def per_second(self) -> dict[str, float]:
        """Tokens a second over the last minute, by job id, of those seen for long enough."""
        return {
            job_id: (marks[-1][1] - marks[0][1]) / (marks[-1][0] - marks[0][0])
            for job_id, marks in self._marks.items()
            if marks[-1][0] - marks[0][0] >= MIN_SECONDS
        }
