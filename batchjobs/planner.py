"""Plans in which order the lines of a file run. Pure: offsets in, shards and moves out.

Lines that share the start of their prompt are brought together, so that the engine computes it
once. That happens within windows of the file: memory is bounded, and results of the file's first
lines do not wait for its last. A window whose lines lie together already, or share nothing, is
run in the order of the file, and its shards are ranges of the input itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from batchjobs.cutter import PlannedShard, ShardCutter

WINDOW_LINES = 16_384
WINDOW_BYTES = 32 << 20

SHORTEST_OPENING = 256
"""Characters. A shorter common start is not worth a change of order."""
LONGEST_OPENING = SHORTEST_OPENING << 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLine:
    """Line number `line` of the input, at bytes [start, end) there; `size` of them are the JSON.
    `opening` as of `digests`; the line asks for so many `answers`."""

    model: str
    line: int
    start: int
    end: int
    size: int
    opening: tuple[bytes, ...]
    answers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Lines to be written together in this order, at bytes of the input from `start` to `end`."""

    start: int
    end: int
    lines: tuple[PlannedLine, ...]


def digests(opening: str) -> tuple[bytes, ...]:
    """One for each start of the text that is a doubling of `SHORTEST_OPENING` characters long:
    two texts have as many equal ones as they have such starts in common."""
    found = []
    digest = hashlib.blake2b(digest_size=8)
    done, length = 0, SHORTEST_OPENING
    while length <= min(len(opening), LONGEST_OPENING):
        digest.update(opening[done:length].encode(errors="replace"))
        found.append(digest.digest())
        done, length = length, 2 * length
    return tuple(found)


def planned_size(line: PlannedLine) -> int:
    """Bytes of the line among those brought together: prefix, JSON, line feed."""
    return len(planned_prefix(line.line)) + line.size + 1


def planned_prefix(number: int) -> bytes:
    """What tells a line's number where lines do not lie in the order of their file."""
    return b"%d\t" % number


class Planner:
    """Takes lines in file order, gives windows to write and at the end the shards."""

    def __init__(self, *, max_lines: int, max_bytes: int) -> None:
        self._cutter = ShardCutter(max_lines=max_lines, max_bytes=max_bytes)
        self._window: list[PlannedLine] = []
        self._written = 0

    def add(self, line: PlannedLine) -> Window | None:
        """A window that has become full, if its lines are to be brought together."""
        full = self._close_window() if self._is_full(line) else None
        self._window.append(line)
        return full

    def finish(self) -> tuple[Window | None, list[PlannedShard]]:
        """The last window, if its lines are to be brought together, and all shards."""
        last = self._close_window()
        return last, self._cutter.finish()

    def _is_full(self, line: PlannedLine) -> bool:
        window = self._window
        return bool(window) and (
            len(window) >= WINDOW_LINES or line.end - window[0].start > WINDOW_BYTES
        )

    def _close_window(self) -> Window | None:
        window, self._window = self._window, []
        moved: list[PlannedLine] = []
        for lines in _by_model(window):
            ordered = bring_together(lines)
            if ordered == lines:
                for line in lines:
                    self._cut(line, line.start, line.end)
            else:
                self._cut_planned(ordered)
                moved += ordered
        if not moved:
            return None
        return Window(start=window[0].start, end=window[-1].end, lines=tuple(moved))

    def _cut_planned(self, lines: Iterable[PlannedLine]) -> None:
        """Shards of their own: ranges of the input must not reach over lines that have moved."""
        for line in lines:
            start, self._written = self._written, self._written + planned_size(line)
            self._cut(line, start, self._written, is_planned=True)

    def _cut(self, line: PlannedLine, start: int, end: int, *, is_planned: bool = False) -> None:
        self._cutter.add(
            line.model,
            line=line.line,
            start=start,
            end=end,
            answers=line.answers,
            is_planned=is_planned,
        )


def bring_together(lines: list[PlannedLine]) -> list[PlannedLine]:
    """Lines of one model with those behind each that share its opening, the longer the closer."""
    first: dict[bytes, int] = {}
    for place, line in enumerate(lines):
        for digest in line.opening:
            first.setdefault(digest, place)
    order = sorted(
        range(len(lines)),
        key=lambda place: (*(first[digest] for digest in lines[place].opening), place),
    )
    return [lines[place] for place in order]


def _by_model(lines: Iterable[PlannedLine]) -> Iterator[list[PlannedLine]]:
    found: dict[str, list[PlannedLine]] = {}
    for line in lines:
        found.setdefault(line.model, []).append(line)
    yield from found.values()
