"""What a measurement needs beside the names of engines and workloads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.models import BenchModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """`folder` has the peers' environments, `raw` is the file that records go to.

    `natural` answers end at an end-of-sequence token. `most_tokens` shortens answers; of natural
    ones it is the only limit. `fresh` loads each engine anew for each pass, for models of which
    several do not fit the memory.
    """

    model: BenchModel
    gguf: Path | None
    folder: Path
    raw: Path
    threads: int
    repeats: int
    lock: Path | None
    natural: bool = False
    most_tokens: int | None = None
    fresh: bool = False
