"""Who is next among the sequences that wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from executor.lengths import LengthModel
from executor.prefix import PrefixNode, PrefixTree, ancestry
from executor.sequence import Sequence
from executor.settings import SchedulingPolicy

KEPT_SHARE = 0.25
"""Of the cache: common prefixes that take less may all be kept, so that groups may mix."""

Key = Callable[[Sequence], Any]


class WaitingQueue:
    """Preempted sequences first, then by policy. Sorted when somebody comes, not at every step.

    `is_last` says that nobody will come any more, which is when `auto` looks at the tail: the
    longest answers go first then (LPT, Graham 1969), so that all end at about the same time.
    """

    def __init__(
        self,
        policy: SchedulingPolicy,
        lengths: LengthModel,
        prefixes: PrefixTree,
        cache_tokens: int,
    ) -> None:
        self._policy = policy
        self._lengths = lengths
        self._prefixes = prefixes
        self._cache_tokens = cache_tokens
        self._returned: deque[Sequence] = deque()
        self._sorted: list[Sequence] = []
        self._is_sorted = True
        self._arrivals = 0
        self.is_last = False
        self.num_tokens = 0
        """Of the prompts that wait."""

    def __len__(self) -> int:
        return len(self._returned) + len(self._sorted)

    def __iter__(self) -> Iterator[Sequence]:
        """In order, while nothing is added or removed."""
        self._sort()
        yield from self._returned
        yield from reversed(self._sorted)

    def add(self, sequence: Sequence) -> None:
        self._arrivals += 1
        sequence.arrival = self._arrivals
        self._sorted.append(sequence)
        self._is_sorted = False
        self.num_tokens += len(sequence.request.prompt_token_ids)

    def add_first(self, sequence: Sequence) -> None:
        """It had its turn already."""
        self._returned.appendleft(sequence)
        self.num_tokens += len(sequence.request.prompt_token_ids)

    def remove(self, sequence: Sequence) -> None:
        self.num_tokens -= len(sequence.request.prompt_token_ids)
        if sequence in self._returned:
            self._returned.remove(sequence)
            return
        # Most often it is the next one, which is at the end.
        for index in range(len(self._sorted) - 1, -1, -1):
            if self._sorted[index] is sequence:
                del self._sorted[index]
                return
        raise ValueError("the sequence does not wait")

    def reorder(self) -> None:
        """What the order depends on has changed."""
        self._is_sorted = False

    def _sort(self) -> None:
        if not self._is_sorted:
            self._sorted.sort(key=self._key(), reverse=True)
            self._is_sorted = True

    def _key(self) -> Key:
        match self._policy:
            case "fcfs":
                return lambda sequence: sequence.arrival
            case "priority":
                return lambda sequence: (sequence.group.priority, sequence.arrival)
            case "shortest_first":
                return lambda sequence: (*self._size(sequence), sequence.arrival)
            case "longest_first":
                return self._longest_first
            case "prefix":
                return lambda sequence: [*_arrivals(sequence), sequence.arrival]
            case "auto":
                kept = self._prefixes.shared_tokens()
                mixes = self.is_last and kept <= KEPT_SHARE * self._cache_tokens
                return self._longest_first if mixes else self._longest_groups_first()

    def _size(self, sequence: Sequence) -> tuple[int, int]:
        params = sequence.request.sampling
        return self._lengths.expect(params), len(sequence.request.prompt_token_ids)

    def _longest_first(self, sequence: Sequence) -> tuple[int, int, int]:
        answer, prompt = self._size(sequence)
        return -answer, -prompt, sequence.arrival

    def _longest_groups_first(self) -> Key:
        """Depth first through the tree; of siblings, the one with the longest answer below it."""
        expected = {s: self._lengths.expect(s.request.sampling) for s in self._sorted}
        longest: dict[PrefixNode, int] = {}
        for sequence, answer in expected.items():
            for node in ancestry(sequence.leaf):
                longest[node] = max(longest.get(node, 0), answer)

        def key(sequence: Sequence) -> list[tuple[int, int]]:
            path = [(-longest[node], node.arrival) for node in ancestry(sequence.leaf)]
            return [*reversed(path), (-expected[sequence], sequence.arrival)]

        return key


def _arrivals(sequence: Sequence) -> list[int]:
    return [node.arrival for node in ancestry(sequence.leaf)][::-1]
