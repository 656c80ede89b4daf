"""What becomes of a step that did not fit the memory: smaller steps, and whose fault it was.

| a step failed that was of | then |
|---|---|
| several sequences | steps have at most half its positions; its halves are tried one by one |
| one sequence, several positions | it is tried again with half of them |
| one position of one sequence | the sequence cannot run here; steps are as large as before again |

Nobody else runs while halves are tried, so that a sequence which fails in any company is found in
a few steps, the others unharmed. Steps grow again a quarter at a time, after ever more good ones.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence as Many

from executor.sequence import Sequence
from executor.span import Span

PATIENCE, MOST_PATIENCE = 16, 4096
"""Good steps before a larger one is tried: at first, and after many failures."""


class MemoryLadder:
    """`cap` is the most positions of a step; None while no step has failed lately."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._before: int | None = None
        self._suspects: list[list[Sequence]] = []
        self._patience = PATIENCE
        self._good_steps = 0
        self.cap: int | None = None

    def suspects(self, running: Collection[Sequence]) -> list[Sequence]:
        """Who alone may be in the next step, in the order of `running`; if nobody, anybody."""
        while self._suspects:
            group = set(self._suspects[0])
            if chosen := [sequence for sequence in running if sequence in group]:
                return chosen
            del self._suspects[0]
        return []

    def fail(self, spans: Many[Span]) -> Sequence | None:
        """The step did not fit; the sequence that is to be given up, if it is known."""
        positions = sum(span.positions for span in spans)
        if self._before is None:
            self._before = self.cap or self._most
            self._patience = min(2 * self._patience, MOST_PATIENCE)
        self._good_steps = 0
        failed = [span.sequence for span in spans]
        rest = self._clear(failed)
        if len(failed) == 1 and positions == 1:
            self._suspects = rest
            self._set_cap(self._before)
            self._before = None
            return failed[0]
        self.cap = max(1, positions // 2)
        middle = (len(failed) + 1) // 2
        self._suspects = [half for half in (failed[:middle], failed[middle:]) if half] + rest
        return None

    def succeed(self, spans: Many[Span]) -> None:
        """The step did fit."""
        if self.cap is None:
            return
        self._suspects = self._clear([span.sequence for span in spans])
        if self._suspects:
            return
        self._good_steps += 1
        if self._good_steps >= self._patience:
            # Until now a failure would have been of the same cause as the one before.
            self._before = None
            self._good_steps = 0
            self._set_cap(self.cap + max(1, self.cap // 4))

    def _set_cap(self, positions: int) -> None:
        self.cap = None if positions >= self._most else positions
        if self.cap is None:
            self._patience = PATIENCE

    def _clear(self, sequences: Many[Sequence]) -> list[list[Sequence]]:
        """The groups under suspicion without these."""
        cleared = set(sequences)
        groups = [[s for s in group if s not in cleared] for group in self._suspects]
        return [group for group in groups if group]
