"""How fast an engine is while it works."""

from __future__ import annotations

from collections import deque

WINDOW_SECONDS = 60.0


class RateMeter:
    """Told now and then how much was done in all. Times without work do not count."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()
        self.per_second: float | None = None
        """Over the last minute of work; stays when the work ends."""

    def observe(self, now: float, total: int, *, is_busy: bool) -> None:
        """`total` only grows; `is_busy` says whether there is work at this moment."""
        marks = self._marks
        if marks and total > marks[-1][1] and (is_busy or self.per_second is None):
            while len(marks) > 1 and now - marks[0][0] > WINDOW_SECONDS:
                marks.popleft()
            self.per_second = (total - marks[0][1]) / (now - marks[0][0])
        if not is_busy:
            marks.clear()
        marks.append((now, total))
