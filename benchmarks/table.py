"""Raw records → the table of docs/performance.md. Ratios are of medians within one run."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.peers import OURS

Record = dict[str, Any]
HEAD = (
    "| workload | against | ours s | theirs s | ratio (range) | repeats | same answers"
    " | roofline | load |\n|---|---|---|---|---|---|---|---|---|"
)


def read_records(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def table(records: Iterable[Record]) -> Iterator[str]:
    """A row for each peer of each run, in the order in which they were measured."""
    runs: dict[tuple[str, str, int], dict[str, list[Record]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for record in records:
        if record["workload"] != "growth":
            key = record["run"], record["workload"], record["requests"]
            runs[key][record["engine"]].append(record)
    yield HEAD
    for (_, workload, requests), engines in runs.items():
        ours = engines.pop(OURS)
        for name, theirs in engines.items():
            yield _row(f"{workload}, {requests}", f"{name} {theirs[0]['version']}", ours, theirs)


def ratios(ours: list[Record], theirs: list[Record]) -> tuple[float, float, float]:
    """How many times as long theirs takes: of the medians, and the least and greatest of the
    passes that followed each other."""
    pairs = [b["wall_s"] / a["wall_s"] for a, b in zip(ours, theirs, strict=False)]
    return _median(theirs) / _median(ours), min(pairs), max(pairs)


def _shares(ours: list[Record]) -> Iterator[str]:
    """By torch's own products, and by those with packed weights."""
    for key in ("share_of_roofline", "packed_share"):
        shares = [record[key] for record in ours if key in record]
        if shares:
            yield f"{statistics.median(shares):.0%}"


def _row(workload: str, peer: str, ours: list[Record], theirs: list[Record]) -> str:
    ratio, least, most = ratios(ours, theirs)
    same = min(record["equal_answers"] for record in theirs)
    share = ", ".join(_shares(ours)) or "–"
    load = max(record["load1"] for record in (*ours, *theirs))
    cells = (
        workload,
        peer,
        f"{_median(ours):.1f}",
        f"{_median(theirs):.1f}",
        f"**{ratio:.2f}×** ({least:.2f}–{most:.2f})",
        str(len(theirs)),
        f"{same} of {theirs[0]['requests']}",
        share,
        f"{load:.1f}",
    )
    return "| " + " | ".join(cells) + " |"


def _median(records: list[Record]) -> float:
    return statistics.median(record["wall_s"] for record in records)
