"""Cuts lines, in the order in which they are to run, into shards. Pure: offsets in, shards out."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedShard:
    """The lines of `model` in bytes [byte_start, byte_end): of the input, where lines of other
    models may lie between them, or if `is_planned` of the lines brought together, where none do.
    `first_line` and `last_line` are the least and the greatest of their numbers, from 1."""

    number: int
    model: str
    first_line: int
    last_line: int
    line_count: int
    byte_start: int
    byte_end: int
    is_planned: bool = False


@dataclass(slots=True)
class _OpenShard:
    is_planned: bool
    first_line: int
    last_line: int
    byte_start: int
    byte_end: int
    line_count: int = 0
    answers: int = 0
    size: int = 0


class ShardCutter:
    """Takes lines in the order in which they are to run; each model's shard closes when the next
    line would give it more than `max_lines` answers or `max_bytes`, or lies elsewhere. A single
    larger line has its own shard."""

    def __init__(self, *, max_lines: int, max_bytes: int) -> None:
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._open: dict[str, _OpenShard] = {}
        self._closed: list[PlannedShard] = []

    def add(
        self,
        model: str,
        *,
        line: int,
        start: int,
        end: int,
        answers: int = 1,
        is_planned: bool = False,
    ) -> None:
        """Give line number `line`, at bytes [start, end), to `model` (a catalogue name); it asks
        for so many `answers`."""
        shard = self._open.get(model)
        if shard is not None and (
            shard.is_planned != is_planned or self._is_full(shard, answers, end - start)
        ):
            self._close(model)
            shard = None
        if shard is None:
            shard = self._open[model] = _OpenShard(is_planned, line, line, start, end)
        shard.first_line = min(shard.first_line, line)
        shard.last_line = max(shard.last_line, line)
        shard.byte_end = end
        shard.line_count += 1
        shard.answers += answers
        shard.size += end - start

    def finish(self) -> list[PlannedShard]:
        """All shards, numbered from 0 by their first line."""
        for model in list(self._open):
            self._close(model)
        ordered = sorted(self._closed, key=lambda shard: shard.first_line)
        return [replace(shard, number=number) for number, shard in enumerate(ordered)]

    def _is_full(self, shard: _OpenShard, answers: int, size: int) -> bool:
        return shard.answers + answers > self._max_lines or shard.size + size > self._max_bytes

    def _close(self, model: str) -> None:
        shard = self._open.pop(model)
        self._closed.append(
            PlannedShard(
                number=0,
                model=model,
                first_line=shard.first_line,
                last_line=shard.last_line,
                line_count=shard.line_count,
                byte_start=shard.byte_start,
                byte_end=shard.byte_end,
                is_planned=shard.is_planned,
            )
        )
