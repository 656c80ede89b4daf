"""What requests have in common is computed once, and kept just as long as somebody waits."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.blocks import BlockPool
from executor.engine import Engine
from executor.fake import fake_engine
from executor.prefix import WORTHWHILE, PrefixTree
from executor.request import Request
from executor.sequence import Group, Sequence
from executor.settings import Scheduling
from tests.support.engine_runs import alone, limits, request, run

ROOMY = limits(seqs=8, tokens=64, length=256, blocks=400, size=4)


def watch_blocks(engine: Engine) -> Callable[[], None]:
    return lambda: engine._scheduler.check_blocks()


def computed(engine: Engine, *requests: Request) -> int:
    """Positions computed for prompts alone; every token but the last of an answer is one, too."""
    completions = list(engine.run(requests, on_step=watch_blocks(engine)))
    decoded = sum(c.generated_tokens - 1 for done in completions for c in done.choices)
    return engine.metrics.computed_tokens_total - decoded


def templated(count: int, *, prefix: str, own: int = 12) -> list[Request]:
    return [
        request(f"{prefix[:1]}{i}", prefix + chr(ord("A") + i) * own, max_tokens=3 + i % 5)
        for i in range(count)
    ]


@pytest.mark.parametrize("length", [64, 66, 75])
def test_a_common_prefix_is_computed_once_to_the_token(length: int) -> None:
    requests = templated(20, prefix="p" * length)
    usable = length - length % 4 if length % 4 < WORTHWHILE else length
    expected = usable + 20 * (length + 12 - usable)
    assert computed(fake_engine(ROOMY), *requests) == expected


def test_a_long_part_of_a_block_is_copied() -> None:
    wide = limits(seqs=8, tokens=64, length=256, blocks=100, size=32)
    requests = templated(20, prefix="p" * 45)
    assert computed(fake_engine(wide), *requests) == 45 + 20 * 12


def test_nested_prefixes_are_computed_once_each() -> None:
    requests = [
        request(f"{a}{b}", "s" * 32 + a * 32 + b * 16, max_tokens=4) for a in "xyz" for b in "1234"
    ]
    random.Random(1).shuffle(requests)
    assert computed(fake_engine(ROOMY), *requests) == 32 + 3 * 32 + 12 * 16


def test_hits_and_queries_count_prompt_tokens() -> None:
    engine = fake_engine(ROOMY)
    completions = run(engine, *templated(10, prefix="p" * 64))
    metrics = engine.metrics
    assert metrics.prefix_cache_queries_total == 10 * 76
    assert metrics.prefix_cache_hits_total == 9 * 64
    assert sorted(c.cached_tokens for c in completions.values()) == [0] + [64] * 9


def test_without_prefix_caching_only_the_choices_of_a_request_share() -> None:
    engine = fake_engine(ROOMY, Scheduling(enable_prefix_caching=False))
    requests = templated(4, prefix="p" * 64)
    assert computed(engine, *requests) == 4 * 76
    several = request("n", "p" * 64, n=3, temperature=1.0)
    engine = fake_engine(ROOMY, Scheduling(enable_prefix_caching=False))
    # The last token of the prompt must be computed by each, and so must the rest of its block.
    assert computed(engine, *requests, several) == 4 * 76 + 64 + 2 * 4


def test_siblings_wait_for_the_one_that_computes_and_let_others_go_first() -> None:
    engine = fake_engine(
        limits(seqs=8, tokens=100, length=256, blocks=400, size=4), Scheduling(policy="fcfs")
    )
    running: list[int] = []
    requests = [*templated(4, prefix="p" * 64), request("other", "o" * 20, max_tokens=2)]
    list(engine.run(requests, on_step=lambda: running.append(engine.metrics.num_requests_running)))
    assert running[1:3] == [2, 5]


def test_a_group_that_is_done_holds_no_blocks() -> None:
    engine = fake_engine(
        limits(seqs=2, tokens=64, length=256, blocks=400, size=4), Scheduling(policy="prefix")
    )
    first, second = templated(4, prefix="a" * 64), templated(4, prefix="b" * 64)
    usage: dict[str, float] = {}
    for completion in engine.run([*first, *second]):
        usage[completion.request_id] = engine._scheduler.pool.num_used
    assert engine._scheduler.pool.num_used == 0
    # Never both prefixes of 16 blocks at once beside what two sequences need of their own.
    assert max(usage.values()) <= 16 + 2 * 6


def test_kept_prefixes_make_way_for_running_sequences() -> None:
    tight = limits(seqs=2, tokens=64, length=96, blocks=30, size=4)
    engine = fake_engine(tight, Scheduling(policy="fcfs", expected_tokens=1))
    requests = [
        request("short", "p" * 60 + "a" * 8, max_tokens=1),
        request("long", "q" * 8, max_tokens=80),
        request("late", "r" * 60, max_tokens=30),
        request("waits", "p" * 60 + "b" * 8, max_tokens=4),
    ]
    completions = list(engine.run(requests, on_step=watch_blocks(engine)))
    assert {c.request_id: c for c in completions} == {r.id: alone(r) for r in requests}


def test_evict_lets_go_of_what_the_fewest_wait_for_and_children_first() -> None:
    pool = BlockPool(32)
    tree = PrefixTree(pool, block_size=4)
    common, inner = tuple(range(16)), tuple(range(100, 116))
    prompts = [common + inner + (i,) * 4 for i in range(3)] + [common + (200,) * 4]
    sequences = [
        Sequence(Group(Request(id=str(i), prompt_token_ids=p)), 0, list(p), watcher=None)
        for i, p in enumerate(prompts)
    ]
    for sequence in sequences:
        tree.enter(sequence)
    leader = sequences[0]
    leader.block_table = pool.allocate(9)
    leader.computed = 36
    tree.start(leader)
    assert tree.match(sequences[1]).tokens == 32
    tree.stop(leader)
    pool.release(leader.block_table)
    assert pool.num_used == 8
    assert tree.evict()
    assert (tree.match(sequences[1]).tokens, pool.num_used) == (16, 4)
    assert tree.evict()
    assert (tree.match(sequences[1]).tokens, pool.num_used) == (0, 0)
    assert not tree.evict()
    for sequence in sequences[1:]:
        tree.leave(sequence)
    assert tree.is_empty


def test_copies_and_evictions_over_many_steps_keep_answers_right() -> None:
    """A block copied from may be given away in the same step."""
    tight = limits(seqs=4, tokens=40, length=96, blocks=14, size=16)
    generator = random.Random(3)
    requests = [
        request(
            str(i), generator.choice("xyz") * 27 + str(i) * 4, max_tokens=generator.choice([2, 40])
        )
        for i in range(30)
    ]
    engine = fake_engine(tight, Scheduling(policy="fcfs", expected_tokens=1))
    completions = list(engine.run(requests, on_step=watch_blocks(engine)))
    assert {c.request_id: c for c in completions} == {r.id: alone(r) for r in requests}
    assert engine.metrics.prefix_cache_hits_total > 0


lines = st.builds(
    lambda group, inner, own, seed, n, max_tokens, temperature: {
        "prompt": "ABC"[group] * 17 + "def"[inner] * 9 * (inner > 0) + own,
        "seed": seed,
        "n": n,
        "max_tokens": max_tokens,
        "temperature": temperature,
    },
    group=st.integers(0, 2),
    inner=st.integers(0, 2),
    own=st.text("xy", max_size=12),
    seed=st.integers(0, 2),
    n=st.sampled_from([1, 1, 1, 3]),
    max_tokens=st.integers(1, 40),
    temperature=st.sampled_from([0.0, 1.0]),
)


@settings(max_examples=150, deadline=None)
@given(
    wanted=st.lists(lines, min_size=1, max_size=14),
    aborted=st.dictionaries(st.integers(1, 40), st.integers(0, 13), max_size=4),
    seqs=st.integers(1, 6),
    tokens=st.sampled_from([1, 7, 24, 64]),
    spare=st.integers(0, 30),
    size=st.sampled_from([1, 4, 16]),
    policy=st.sampled_from(
        ["auto", "fcfs", "priority", "shortest_first", "longest_first", "prefix"]
    ),
    batching=st.sampled_from(["continuous", "continuous", "static"]),
    prefixes=st.booleans(),
    duplicates=st.booleans(),
    window=st.integers(1, 12),
    expected=st.sampled_from([1, 256]),
)
def test_answers_are_those_given_alone_whatever_is_shared(
    wanted: list[dict[str, object]],
    aborted: dict[int, int],
    seqs: int,
    tokens: int,
    spare: int,
    size: int,
    policy: str,
    batching: str,
    prefixes: bool,
    duplicates: bool,
    window: int,
    expected: int,
) -> None:
    requests = [request(str(i), **w) for i, w in enumerate(wanted)]  # type: ignore[arg-type]
    engine = fake_engine(
        limits(seqs=seqs, tokens=tokens, length=84, blocks=-(-84 // size) + spare, size=size),
        Scheduling(
            policy=policy,  # type: ignore[arg-type]
            batching=batching,  # type: ignore[arg-type]
            enable_prefix_caching=prefixes,
            deduplicate=duplicates,
            max_num_waiting=window,
            expected_tokens=expected,
        ),
    )
    steps = 0
    gone: set[str] = set()
    given_back: set[str] = set()

    def on_step() -> None:
        nonlocal steps
        steps += 1
        engine._scheduler.check_blocks()
        name = str(aborted.get(steps, ""))
        if name in engine._groups:
            engine.abort({name})
            gone.add(name)
            engine._scheduler.check_blocks()

    completions = {}
    for completion in engine.run(requests, on_step=on_step):
        assert completion.request_id not in completions
        completions[completion.request_id] = completion
        given_back.add(completion.request_id)
    assert completions == {r.id: alone(r) for r in requests if r.id not in gone}
    assert not gone & given_back
    assert engine._scheduler.pool.num_used == 0
