"""Raw records → the table of docs/performance.md. Ratios are of medians within one run."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.peers import OURS, is_ours

Record = dict[str, Any]
HEAD = (
    "| model | workload | ours | against | ours s (tok/s) | theirs s (tok/s) | ratio (range)"
    " | repeats | same answers | ours MiB | theirs MiB | roofline | load |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
)


def read_records(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def table(records: Iterable[Record]) -> Iterator[str]:
    """Rows for each run, in the order in which they were measured: each other engine against each
    variant of ours, and the variants against ours as it is."""
    runs: dict[tuple[str, str, int], dict[str, list[Record]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for record in records:
        if record["workload"] != "growth":
            key = record["run"], record["workload"], record["requests"]
            runs[key][record["engine"]].append(record)
    yield HEAD
    for engines in runs.values():
        for ours, theirs in _pairs(list(engines)):
            yield _row(engines[ours], engines[theirs])


def _pairs(engines: list[str]) -> Iterator[tuple[str, str]]:
    for ours in filter(is_ours, engines):
        for theirs in engines:
            if not is_ours(theirs) or (ours == OURS != theirs):
                yield ours, theirs


def ratios(ours: list[Record], theirs: list[Record]) -> tuple[float, float, float]:
    """How many times as fast ours is: of the medians, and the least and greatest of the passes
    that followed each other. Natural answers are not as long in every engine, and their tokens a
    second are compared; all others by their time."""
    pairs = [_ratio(a, b) for a, b in zip(_costs(ours), _costs(theirs), strict=False)]
    whole = _ratio(statistics.median(_costs(ours)), statistics.median(_costs(theirs)))
    return whole, min(pairs), max(pairs)


def _ratio(ours: float, theirs: float) -> float:
    return theirs / ours


def _costs(records: list[Record]) -> list[float]:
    """Seconds of each pass, or seconds a token."""
    if records[0].get("natural"):
        return [1 / record["output_tok_s"] for record in records]
    return [record["wall_s"] for record in records]


def label(record: Record) -> str:
    """The engine with its version, number type, and limits of a step: sequences / tokens."""
    settings = record.get("settings", {})
    sizes = [settings.get(key) for key in ("max_num_seqs", "max_num_batched_tokens")]
    limits = " / ".join(f"{size:,}" for size in sizes if size is not None)
    parts = (f"{record['engine']} {record['version']}", settings.get("dtype", ""), limits)
    return ", ".join(part for part in parts if part)


def _shares(ours: list[Record]) -> Iterator[str]:
    """By torch's own products, and by those with packed weights."""
    for key in ("share_of_roofline", "packed_share"):
        shares = [record[key] for record in ours if key in record]
        if shares:
            yield f"{statistics.median(shares):.0%}"


def _row(ours: list[Record], theirs: list[Record]) -> str:
    first = theirs[0]
    ratio, least, most = ratios(ours, theirs)
    natural = ", natural ends" if first.get("natural") else ""
    cells = (
        first.get("model", "default"),
        f"{first['workload']}, {first['requests']}{natural}",
        label(ours[0]),
        label(first),
        _pace(ours),
        _pace(theirs),
        f"**{ratio:.2f}×** ({least:.2f}–{most:.2f})",
        str(len(theirs)),
        _same(ours, theirs),
        _memory(ours),
        _memory(theirs),
        ", ".join(_shares(ours)) or "–",
        f"{max(record['load1'] for record in (*ours, *theirs)):.1f}",
    )
    return "| " + " | ".join(cells) + " |"


def _same(ours: list[Record], theirs: list[Record]) -> str:
    """Answers are compared with those of ours as it is, and with no variant's."""
    if ours[0]["engine"] != OURS:
        return "–"
    same = min(record["equal_answers"] for record in theirs)
    text = f"{same} of {theirs[0]['requests']}"
    shares = [record["equal_share"] for record in theirs if "equal_share" in record]
    return f"{text} ({min(shares):.1%} of tokens)" if shares and min(shares) < 1 else text


def _pace(records: list[Record]) -> str:
    seconds = f"{statistics.median(record['wall_s'] for record in records):.1f}"
    rates = [record["output_tok_s"] for record in records if "output_tok_s" in record]
    return f"{seconds} ({statistics.median(rates):.0f})" if rates else seconds


def _memory(records: list[Record]) -> str:
    """The most that the engine's processes had in any pass."""
    peaks = [record["peak_rss_mib"] for record in records if "peak_rss_mib" in record]
    return f"{max(peaks):,.0f}" if peaks else "–"
