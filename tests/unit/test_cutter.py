from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from batchjobs.cutter import PlannedShard, ShardCutter


def cut(
    sizes: list[tuple[str, int]], *, max_lines: int = 100, max_bytes: int = 10_000
) -> list[PlannedShard]:
    cutter = ShardCutter(max_lines=max_lines, max_bytes=max_bytes)
    start = 0
    for line, (model, size) in enumerate(sizes, start=1):
        cutter.add(model, line=line, start=start, end=start + size)
        start += size
    return cutter.finish()


def shape(shards: list[PlannedShard]) -> list[tuple[int, int, int]]:
    return [(shard.first_line, shard.line_count, shard.byte_end) for shard in shards]


def test_no_lines_give_no_shards() -> None:
    assert cut([]) == []


def test_a_shard_closes_at_its_line_limit() -> None:
    assert shape(cut([("m", 10)] * 5, max_lines=2)) == [(1, 2, 20), (3, 2, 40), (5, 1, 50)]


def test_a_shard_closes_before_the_line_that_makes_it_too_large() -> None:
    assert shape(cut([("m", 40)] * 3, max_bytes=100)) == [(1, 2, 80), (3, 1, 120)]


def test_a_line_larger_than_a_shard_has_its_own() -> None:
    lines = [("m", 10), ("m", 500), ("m", 10)]
    assert shape(cut(lines, max_bytes=100)) == [(1, 1, 10), (2, 1, 510), (3, 1, 520)]


def test_a_shard_has_no_more_answers_than_lines_that_it_may_have() -> None:
    cutter = ShardCutter(max_lines=10, max_bytes=10_000)
    for line, answers in enumerate([4, 6, 1, 50, 9, 1], start=1):
        cutter.add("m", line=line, start=10 * line, end=10 * line + 10, answers=answers)
    assert [(shard.first_line, shard.line_count) for shard in cutter.finish()] == [
        (1, 2),
        (3, 1),
        (4, 1),
        (5, 2),
    ]


def test_models_have_their_own_shards_numbered_by_first_line() -> None:
    shards = cut([("a", 10), ("b", 10), ("a", 10), ("b", 10)])
    assert shards == [
        PlannedShard(
            number=0,
            model="a",
            first_line=1,
            last_line=3,
            line_count=2,
            byte_start=0,
            byte_end=30,
        ),
        PlannedShard(
            number=1,
            model="b",
            first_line=2,
            last_line=4,
            line_count=2,
            byte_start=10,
            byte_end=40,
        ),
    ]


def test_gaps_between_lines_are_kept_out_of_the_size() -> None:
    cutter = ShardCutter(max_lines=10, max_bytes=20)
    cutter.add("m", line=1, start=0, end=10)
    cutter.add("m", line=9, start=1000, end=1010)
    (shard,) = cutter.finish()
    assert (shard.line_count, shard.byte_end) == (2, 1010)


def test_lines_that_lie_elsewhere_start_a_shard() -> None:
    cutter = ShardCutter(max_lines=10, max_bytes=100)
    cutter.add("m", line=1, start=0, end=10)
    cutter.add("m", line=5, start=0, end=12, is_planned=True)
    cutter.add("m", line=2, start=12, end=24, is_planned=True)
    cutter.add("m", line=6, start=60, end=70)
    shards = [
        (shard.is_planned, shard.first_line, shard.last_line, shard.byte_start, shard.byte_end)
        for shard in cutter.finish()
    ]
    assert shards == [(False, 1, 1, 0, 10), (True, 2, 5, 0, 24), (False, 6, 6, 60, 70)]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 60))),
    st.integers(1, 5),
    st.integers(1, 100),
)
def test_every_line_is_in_one_shard_of_its_model(
    sizes: list[tuple[str, int]], max_lines: int, max_bytes: int
) -> None:
    shards = cut(sizes, max_lines=max_lines, max_bytes=max_bytes)
    assert [shard.number for shard in shards] == list(range(len(shards)))
    assert [shard.first_line for shard in shards] == sorted(shard.first_line for shard in shards)
    starts = [sum(size for _, size in sizes[:index]) for index in range(len(sizes) + 1)]
    covered: dict[int, int] = defaultdict(int)
    for shard in shards:
        lines = [
            index
            for index, (model, _) in enumerate(sizes)
            if model == shard.model and shard.byte_start <= starts[index] < shard.byte_end
        ]
        size = sum(sizes[index][1] for index in lines)
        assert len(lines) == shard.line_count <= max_lines
        assert size <= max_bytes or len(lines) == 1
        assert (lines[0] + 1, lines[-1] + 1) == (shard.first_line, shard.last_line)
        assert starts[lines[-1] + 1] == shard.byte_end
        for index in lines:
            covered[index] += 1
    assert covered == dict.fromkeys(range(len(sizes)), 1)
