from __future__ import annotations

from batchjobs.store.s3.writer import FIRST_PART_BYTES, LAST_PART_BYTES, part_bytes

MAX_PARTS = 10_000
MAX_PART_BYTES = 5 << 30
MIN_PART_BYTES = 5 << 20
MAX_OBJECT_BYTES = 5 << 40


def test_parts_that_s3_allows_hold_the_object_that_it_allows() -> None:
    sizes = [part_bytes(number) for number in range(1, MAX_PARTS + 1)]
    assert sum(sizes) >= MAX_OBJECT_BYTES
    assert min(sizes) >= MIN_PART_BYTES
    assert max(sizes) <= MAX_PART_BYTES


def test_parts_stay_small_for_files_of_some_gigabytes() -> None:
    assert sum(part_bytes(number) for number in range(1, 801)) > 6 << 30
    assert part_bytes(1) == part_bytes(800) == FIRST_PART_BYTES
    assert part_bytes(801) == 2 * FIRST_PART_BYTES
    assert part_bytes(MAX_PARTS) == LAST_PART_BYTES
