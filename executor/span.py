"""What one sequence has computed in one step."""

from __future__ import annotations

from dataclasses import dataclass

from executor.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens [start, start + count) of a sequence, to be computed in one step, and behind them
    the guesses of `draft`, which are no tokens of it until they are found to be right."""

    sequence: Sequence
    start: int
    count: int
    draft: tuple[int, ...] = ()

    @property
    def catches_up(self) -> bool:
        """Whether the last token of the sequence is among them, so that the next is sampled."""
        return self.start + self.count == len(self.sequence.tokens)

    @property
    def positions(self) -> int:
        return self.count + len(self.draft)

    @property
    def end(self) -> int:
        """Tokens that its last position attends to."""
        return self.start + self.positions

    @property
    def rows(self) -> int:
        """Of its last positions so many have logits that are looked at."""
        return 1 + len(self.draft) if self.catches_up else 0

    @property
    def tokens(self) -> list[int]:
        return [*self.sequence.tokens[self.start : self.start + self.count], *self.draft]

    @property
    def attended(self) -> int:
        """Tokens that its positions attend to, summed."""
        count = self.positions
        return count * self.start + count * (count + 1) // 2
