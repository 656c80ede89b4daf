"""Whether one more sequence will fit until it and those beside it have ended."""

from __future__ import annotations

from bisect import insort

SPARE = 0.5
"""Blocks a sequence needs beyond its tokens' share, on average: its last is half full."""


class Forecast:
    """Blocks that the running sequences will come to need beyond those they have.

    Not all are longest at once: when the one with r tokens to go ends, those with fewer have given
    their blocks back. The largest need over all such moments is what must be free, as in the
    past-future scheduler of LightLLM (Gong et al., ASPLOS'25).
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._rows: list[tuple[int, int]] = []
        self._bound = 0.0

    def add(self, *, to_come: int, private: int) -> None:
        """A sequence has so many tokens to come, and blocks that are its alone."""
        insort(self._rows, (-to_come, private))
        self._bound += to_come / self._block_size + SPARE

    def remove(self, *, to_come: int, private: int) -> None:
        self._rows.remove((-to_come, private))
        self._bound -= to_come / self._block_size + SPARE

    def fits(self, free: int) -> bool:
        """Whether `free` blocks suffice at every moment."""
        return self._bound <= free or self.peak() <= free

    def peak(self) -> float:
        """The most blocks needed at once beyond the present ones."""
        given_back = sum(private for _, private in self._rows)
        peak = 0.0
        for alive, (less_to_come, private) in enumerate(self._rows, start=1):
            given_back -= private
            growth = alive * (-less_to_come / self._block_size + SPARE)
            peak = max(peak, growth - given_back)
        return peak
