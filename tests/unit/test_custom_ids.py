from __future__ import annotations

from batchjobs.custom_ids import CustomIds


def repeated(ids: list[str]) -> list[tuple[int, int]]:
    with CustomIds() as seen:
        for line, custom_id in enumerate(ids, start=1):
            seen.add(custom_id, line)
        return list(seen.repeated())


def test_ids_that_differ_are_not_repeated() -> None:
    assert repeated(["a", "A", "a ", "é", "e\u0301"]) == []


def test_every_further_use_names_the_first() -> None:
    assert repeated(["a", "b", "a", "b", "a"]) == [(3, 1), (4, 2), (5, 1)]


def test_repeats_far_apart_are_found() -> None:
    ids = [str(number) for number in range(5000)]
    assert repeated([*ids, "0", "4999"]) == [(5001, 1), (5002, 5000)]
