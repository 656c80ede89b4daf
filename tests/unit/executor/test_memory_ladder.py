"""Steps that do not fit the memory: everybody else's answers are what they would have been."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from executor.engine import Engine
from executor.fake import ByteTokenizer
from executor.out_of_memory import is_out_of_memory
from executor.request import Completion, Request
from executor.settings import Limits, Scheduling
from tests.support.engine_runs import alone, limits, request, run
from tests.support.scarce_memory import ScarceModel, cpu_failure, cuda_failure

ROOMY = limits(seqs=16, tokens=64, length=256, blocks=512)


def scarce(
    model: ScarceModel, tight: Limits = ROOMY, scheduling: Scheduling | None = None
) -> Engine:
    return Engine(model, ByteTokenizer(), tight, scheduling)


def chats(count: int, **sampling: object) -> list[Request]:
    options = {"max_tokens": 30, "ignore_eos": True, **sampling}
    return [request(f"r{i}", f"tell me about {i}, please", **options) for i in range(count)]


def expected(requests: list[Request]) -> dict[str, Completion]:
    return {wanted.id: alone(wanted) for wanted in requests}


@pytest.mark.parametrize("failure", [cuda_failure, cpu_failure, MemoryError])
@pytest.mark.parametrize("most", [40, 12, 5, 1])
def test_answers_are_the_same_where_steps_must_be_small(
    most: int, failure: Callable[[], Exception]
) -> None:
    model = ScarceModel(ROOMY, most=most, failure=failure)
    engine = scarce(model)
    requests = [*chats(6), *chats(9, logprobs=1, temperature=1.0, n=2)[6:]]
    assert run(engine, *requests) == expected(requests)
    assert engine.metrics.num_out_of_memory_total == sum(size < 0 for size in model.sizes) > 0


def test_steps_grow_again_slowly_once_there_is_memory() -> None:
    model = ScarceModel(ROOMY, most=10)
    steps = 0

    def more_memory() -> None:
        nonlocal steps
        steps += 1
        if steps == 60:
            model.most = 1000

    requests = chats(120, max_tokens=60)
    completions = {c.request_id: c for c in scarce(model).run(requests, on_step=more_memory)}
    assert completions == expected(requests)
    later = model.sizes[60:]
    assert min(later) > 0
    assert max(later[:20]) <= 14
    assert max(later) > 25


def test_failures_become_rare_where_memory_stays_short() -> None:
    model = ScarceModel(ROOMY, most=10)
    run(scarce(model), *chats(60, max_tokens=40))
    failed = [step for step, size in enumerate(model.sizes) if size < 0]
    assert len(failed) < len(model.sizes) / 20
    assert len([step for step in failed if step > len(model.sizes) / 2]) <= 6


def test_request_that_cannot_run_alone_fails_by_itself() -> None:
    model = ScarceModel(ROOMY, poison="é".encode()[0])
    engine = scarce(model)
    poisoned = request("poisoned", "half of it, café, is", max_tokens=30)
    requests = [*chats(5), poisoned, *chats(12)[5:]]
    completions = run(engine, *requests)
    failed = completions.pop("poisoned")
    assert failed.error_code == "out_of_memory"
    assert re.search(r"does not fit the worker's memory, not even alone", failed.error or "")
    assert completions == expected([r for r in requests if r is not poisoned])
    # Found by halves, and the others then go on with steps as large as before.
    failed = [step for step, size in enumerate(model.sizes) if size < 0]
    assert len(failed) < 14
    assert max(model.sizes[failed[-1] :]) > 11


def test_equal_requests_and_choices_fail_together() -> None:
    engine = scarce(ScarceModel(ROOMY, poison="é".encode()[0]))
    twins = [request(f"twin{i}", "a café of it", n=3, temperature=1.0, seed=1) for i in range(2)]
    completions = run(engine, *twins, *chats(3))
    assert [completions[twin.id].error_code for twin in twins] == ["out_of_memory"] * 2
    assert {i: c for i, c in completions.items() if not i.startswith("twin")} == expected(chats(3))


def test_static_batches_and_preemption_go_down_the_ladder_too() -> None:
    requests = chats(10)
    for scheduling in (Scheduling(batching="static"), Scheduling(expected_tokens=1)):
        tight = replace(ROOMY, num_blocks=70)
        engine = scarce(ScarceModel(tight, most=6), tight, scheduling)
        completions = run(engine, *requests)
        assert completions == expected(requests)


def test_copies_of_blocks_that_fail_are_made_again() -> None:
    class FailsToCopy(ScarceModel):
        copies = 0

        def copy_blocks(self, copies: list[tuple[int, int]]) -> None:  # type: ignore[override]
            self.copies += 1
            if self.copies % 2:
                raise cpu_failure()
            super().copy_blocks(copies)

    tight = replace(ROOMY, block_size=16)
    model = FailsToCopy(tight)
    shared = "x" * 28
    requests = [request(str(i), shared + str(i) * 9, max_tokens=20) for i in range(6)]
    assert run(scarce(model, tight), *requests) == expected(requests)
    assert model.copies > 1


def test_other_errors_are_not_taken_for_lack_of_memory() -> None:
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not is_out_of_memory(ValueError("can't allocate memory"))
    with pytest.raises(RuntimeError, match="wrong shape"):
        run(
            scarce(ScarceModel(ROOMY, most=3, failure=lambda: RuntimeError("wrong shape"))),
            *chats(2),
        )
