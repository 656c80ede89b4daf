"""The pool of KV cache blocks: who may have one, and the proof that none is lost.

| quantity | invariant |
|---|---|
| free + referenced blocks | = all blocks, each in exactly one of the two |
| references of a block | = number of block tables that list it |
"""

from __future__ import annotations

from collections.abc import Iterable


class BlockPool:
    """Counts references to `num_blocks` blocks; the bytes are the cache's, not ours."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        # Last freed, first taken: memory that was never needed is never touched.
        self._free = list(reversed(range(num_blocks)))
        self._references = [0] * num_blocks

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_used(self) -> int:
        return self.num_blocks - len(self._free)

    def can_allocate(self, count: int) -> bool:
        return count <= len(self._free)

    def allocate(self, count: int) -> list[int]:
        """Take `count` blocks, each referenced once; ask `can_allocate` first."""
        assert self.can_allocate(count), f"{count} blocks asked, {len(self._free)} free"
        blocks = [self._free.pop() for _ in range(count)]
        for block in blocks:
            self._references[block] = 1
        return blocks

    def share(self, blocks: Iterable[int]) -> None:
        """Add a reference to blocks that somebody holds."""
        for block in blocks:
            assert self._references[block] > 0, f"block {block} is free"
            self._references[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """Drop a reference; a block nobody refers to is free again."""
        for block in blocks:
            assert self._references[block] > 0, f"block {block} is free already"
            self._references[block] -= 1
            if self._references[block] == 0:
                self._free.append(block)

    def check_integrity(self, tables: Iterable[Iterable[int]]) -> None:
        """Compare with the block tables of all live sequences.

        Raises:
            RuntimeError: a block is lost, free twice or miscounted; with the numbers.
        """
        expected = [0] * self.num_blocks
        for table in tables:
            for block in table:
                expected[block] += 1
        wrong = [b for b in range(self.num_blocks) if expected[b] != self._references[b]]
        used = sum(count > 0 for count in self._references)
        if wrong or used + len(self._free) != self.num_blocks:
            raise RuntimeError(
                f"KV blocks do not add up: {len(self._free)} free + {used} used of "
                f"{self.num_blocks}; miscounted blocks: {wrong[:8]}"
            )
