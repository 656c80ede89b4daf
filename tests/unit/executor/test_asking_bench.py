"""The measurement of lines that ask for more compares like with like."""

from __future__ import annotations

from executor.fake import fake_engine
from executor.request import Request
from tests.support.asking_bench import KINDS, asking, passes
from tests.support.engine_runs import limits, request

COUNT = 50


def plain() -> list[Request]:
    return [request(str(i), f"ask {i}", max_tokens=20, ignore_eos=True) for i in range(COUNT)]


def test_a_tenth_of_the_lines_ask_for_each_kind_in_turn() -> None:
    requests = plain()
    changed = [b for a, b in zip(requests, asking(requests, 0.1), strict=True) if a != b]
    assert [one.id for one in changed] == ["9", "19", "29", "39", "49"]
    assert len({one.sampling for one in changed}) == len(KINDS)


def test_answers_are_as_long_whatever_is_asked_for() -> None:
    requests = plain()
    ways = {"plain": requests, "asking": asking(requests, 0.5)}
    engine = fake_engine(limits(seqs=8, tokens=64, blocks=512))
    found = [(name, tokens) for name, _, tokens in passes(engine, ways, turns=2)]
    assert [name for name, _ in found] == ["plain", "asking", "asking", "plain"]
    assert {tokens for _, tokens in found} == {COUNT * 20}
