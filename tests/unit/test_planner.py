from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchjobs import planner
from batchjobs.cutter import PlannedShard
from batchjobs.planner import PlannedLine, Planner, Window, bring_together, digests

LONG = "x" * planner.SHORTEST_OPENING


def line(number: int, opening: str, model: str = "m") -> PlannedLine:
    """A line of 100 bytes, 90 of them JSON."""
    return PlannedLine(
        model=model,
        line=number,
        start=100 * (number - 1),
        end=100 * number,
        size=90,
        opening=digests(opening),
    )


def plan(
    openings: list[str], *, models: str = "", max_lines: int = 100
) -> tuple[list[Window], list[PlannedShard]]:
    planned = Planner(max_lines=max_lines, max_bytes=1 << 20)
    windows = []
    for number, opening in enumerate(openings, 1):
        model = models[number - 1] if models else "m"
        windows.append(planned.add(line(number, opening, model)))
    last, shards = planned.finish()
    return [window for window in (*windows, last) if window is not None], shards


def numbers(lines: list[PlannedLine] | tuple[PlannedLine, ...]) -> list[int]:
    return [one.line for one in lines]


def test_digests_tell_how_long_two_texts_begin_alike() -> None:
    common = "c" * 1000
    first, second = digests(common + "a" * 3000), digests(common + "b" * 3000)
    # 256 and 512 characters are common, 1024 and more are not.
    assert [mine == other for mine, other in zip(first, second, strict=True)] == [
        True,
        True,
        False,
        False,
    ]


def test_short_texts_have_no_digests() -> None:
    assert digests(LONG[:-1]) == ()
    assert len(digests(LONG)) == 1


def test_very_long_texts_are_read_up_to_a_limit() -> None:
    assert digests("a" * 10_000_000) == digests("a" * planner.LONGEST_OPENING)


def test_lone_surrogates_do_no_harm() -> None:
    assert len(digests("\ud800" * 300)) == 1


def test_lines_follow_those_that_begin_like_them() -> None:
    a, b = "a" * 300, "b" * 300
    lines = [line(n, text) for n, text in enumerate([a, "", b, a, "", b, a], 1)]
    assert numbers(bring_together(lines)) == [1, 4, 7, 2, 3, 6, 5]


def test_longer_common_starts_are_closer() -> None:
    system = "s" * 600
    few_shot = [system + letter * 1000 for letter in "pq"]
    lines = [
        line(n, text)
        for n, text in enumerate(
            [few_shot[0], few_shot[1], system, "", few_shot[1], few_shot[0]], 1
        )
    ]
    assert numbers(bring_together(lines)) == [1, 6, 2, 5, 3, 4]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("de")), max_size=30))
def test_every_group_is_together_and_no_line_is_lost(letters: list[tuple[str, str]]) -> None:
    openings = [system * 300 + shot * 800 for system, shot in letters]
    lines = [line(n, text) for n, text in enumerate(openings, 1)]
    together = bring_together(lines)
    assert sorted(numbers(together)) == numbers(lines)
    for depth in (1, 3):
        runs = [key for key, _ in groupby(one.opening[:depth] for one in together)]
        assert len(runs) == len(set(runs))


def test_lines_that_share_nothing_stay_in_the_input() -> None:
    windows, shards = plan(["", LONG, "", "short"])
    assert windows == []
    assert [(shard.byte_start, shard.byte_end, shard.is_planned) for shard in shards] == [
        (0, 400, False)
    ]


def test_lines_that_lie_together_already_stay_in_the_input() -> None:
    windows, shards = plan(["a" * 300] * 3 + ["b" * 300] * 3, max_lines=2)
    assert windows == []
    assert [shard.first_line for shard in shards] == [1, 3, 5]


def test_moved_lines_are_cut_where_they_will_lie() -> None:
    a, b = "a" * 300, "b" * 300
    (window,), shards = plan([a, b, a, b], max_lines=2)
    assert (window.start, window.end, numbers(window.lines)) == (0, 400, [1, 3, 2, 4])
    size = len(b"1\t") + 90 + 1
    assert [
        (shard.first_line, shard.last_line, shard.byte_start, shard.byte_end, shard.is_planned)
        for shard in shards
    ] == [(1, 3, 0, 2 * size, True), (2, 4, 2 * size, 4 * size, True)]


def test_only_the_model_that_gains_is_moved() -> None:
    a, b = "a" * 300, "b" * 300
    (window,), shards = plan([a, "", b, "", a], models="mnmnm")
    assert numbers(window.lines) == [1, 5, 3]
    assert [(shard.model, shard.is_planned) for shard in shards] == [("m", True), ("n", False)]


def test_windows_bound_what_is_brought_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "WINDOW_LINES", 4)
    a, b = "a" * 300, "b" * 300
    windows, shards = plan([a, b, a, b, a, a, b, b, b, a, b, a])
    assert [numbers(window.lines) for window in windows] == [[1, 3, 2, 4], [9, 11, 10, 12]]
    assert [(shard.first_line, shard.last_line, shard.is_planned) for shard in shards] == [
        (1, 4, True),
        (5, 8, False),
        (9, 12, True),
    ]


def test_windows_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "WINDOW_BYTES", 350)
    a, b = "a" * 300, "b" * 300
    windows, _ = plan([a, b, a, b, a, b])
    assert [numbers(window.lines) for window in windows] == [[1, 3, 2], [4, 6, 5]]
