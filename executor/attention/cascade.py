"""Shared prefixes attended once for all rows of a step that have them.

Sequences whose block tables begin alike share those keys and values in memory. The queries of
all their rows are one matrix against them (Hydragen, Juravsky et al. 2024; cascade attention,
FlashInfer), so that the prefix is read once for the group and not once a row; the kernel goes on
from there with what is each row's own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from executor.attention.base import PackedBatch

MIN_ROWS = 4
MIN_TOKENS = 64
"""From how many rows and shared tokens on it pays."""

MOST_OWN_ROWS = 8
"""A sequence with more rows than this in a step is a matrix by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPrefix:
    """Sequences, by their place in the batch, that begin with the same blocks."""

    sequences: tuple[int, ...]
    blocks: tuple[int, ...]


def shared_prefixes(batch: PackedBatch, block_size: int) -> list[SharedPrefix]:
    """The groups of a step that are worth it; no sequence is in two.

    Only blocks full of what was computed before the step count, which every row may see.
    """
    tables = batch.block_tables.tolist()
    usable = [
        tuple(table[: (context - count) // block_size]) if count <= MOST_OWN_ROWS else ()
        for table, context, count in zip(tables, batch.context_lens, batch.query_lens, strict=True)
    ]
    counts = batch.query_lens
    return [
        group
        for group in _groups(usable, range(len(usable)), 0)
        if len(group.blocks) * block_size >= MIN_TOKENS
        and sum(counts[s] for s in group.sequences) >= MIN_ROWS
    ]


def _groups(
    tables: list[tuple[int, ...]], members: Sequence[int], depth: int
) -> list[SharedPrefix]:
    """Divide members, which agree in `depth` blocks, so that most block reads are saved."""
    if len(members) < 2:
        return []
    first = tables[members[0]]
    while all(tables[m][depth : depth + 1] == first[depth : depth + 1] for m in members):
        if depth == len(first):
            break
        depth += 1
    together = [SharedPrefix(sequences=tuple(members), blocks=first[:depth])] if depth else []
    branches: defaultdict[int, list[int]] = defaultdict(list)
    for member in members:
        if len(tables[member]) > depth:
            branches[tables[member][depth]].append(member)
    apart = [group for branch in branches.values() for group in _groups(tables, branch, depth + 1)]
    return together if _saved(together) >= _saved(apart) else apart


def _saved(groups: list[SharedPrefix]) -> int:
    return sum((len(group.sequences) - 1) * len(group.blocks) for group in groups)
