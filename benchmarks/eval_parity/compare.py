"""Both sides' items beside each other: what is the same, and what is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MAX_DIFFERENCE = 1e-3
"""Of log-likelihoods."""

Row = Mapping[str, Any]


def compare_arc(theirs: Sequence[Row], ours: Mapping[str, Row]) -> Iterator[str]:
    """A sentence for each item that differs; the last sentence sums up."""
    worst, same = 0.0, 0
    for row in theirs:
        record = ours[row["id"]]
        sums = [float(value) for value in record["marks"]["margin"]["extracted"].split(", ")]
        far = max(abs(a - b) for a, b in zip(row["likelihoods"], sums, strict=True))
        worst = max(worst, far)
        marks = {name: record["marks"][name]["score"] for name in row["marks"]}
        if far > MAX_DIFFERENCE or marks != row["marks"]:
            yield f"ARC-Easy {row['id']}: {row['likelihoods']} {row['marks']}, ours {sums} {marks}"
        else:
            same += 1
    yield (
        f"ARC-Easy: {same} of {len(theirs)} items the same (acc, acc_norm, acc_bytes; greatest"
        f" difference of a log-likelihood {worst:.1e})"
    )


def compare_gsm8k(theirs: Sequence[Row], ours: Mapping[str, Row]) -> Iterator[str]:
    same, texts = 0, {}
    for row in theirs:
        record = ours[row["id"]]
        mark = record["marks"][row["filter"]]
        # Which of our reasons it is for (empty, truncated, unparsed), the harness does not tell.
        extracted = "[invalid]" if mark["score"] is None else mark["extracted"]
        texts[row["id"]] = record["text"] == row["text"]
        is_same = extracted == row["extracted"] and (mark["score"] or 0.0) == row["exact_match"]
        same += is_same
        if not is_same:
            yield f"GSM8K {row['id']} ({row['filter']}): {row['extracted']!r}, ours {extracted!r}"
    yield (
        f"GSM8K: {same} of {len(theirs)} extracted answers and scores the same, two a problem"
        f" (strict and flexible); {sum(texts.values())} of {len(texts)} texts equal to the letter"
    )
