from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import pytest

from executor.embedding.batch import TextBatch
from executor.embedding.engine import WINDOW_STEPS, EmbeddingEngine
from executor.recorder import Recorder
from executor.request import Completion, PoolingParams, Request
from executor.roofline import ModelCost
from executor.settings import Limits

COST = ModelCost(body=1, head=0, attention=1, weight_bytes=1, kv_bytes=0)


class EchoModel:
    """Gives the tokens for the vector; keeps the steps it was asked for."""

    def __init__(self) -> None:
        self.steps: list[list[tuple[int, ...]]] = []

    def embed(self, batch: TextBatch, wanted: Sequence[PoolingParams]) -> list[bytes | None]:
        self.steps.append(list(batch.texts))
        return [
            bytes(text[: params.dimensions])
            for text, params in zip(batch.texts, wanted, strict=True)
        ]


def new_engine(
    *, tokens: int = 20, texts: int = 4, length: int = 16
) -> tuple[EmbeddingEngine, EchoModel]:
    model = EchoModel()
    limits = Limits(
        max_num_seqs=texts,
        max_num_batched_tokens=tokens,
        max_model_len=length,
        num_blocks=0,
        block_size=1,
    )
    return EmbeddingEngine(model, limits), model


def request(name: str, length: int = 3, *, first: int = 1, **pooling: int) -> Request:
    tokens = (first, *range(2, length + 1)) if length else ()
    return Request(id=name, prompt_token_ids=tokens, pooling=PoolingParams(**pooling))


def by_id(completions: Iterator[Completion]) -> dict[str, Completion]:
    return {completion.request_id: completion for completion in completions}


def test_every_request_gets_the_vector_of_its_text() -> None:
    engine, _ = new_engine()
    requests = [request(f"r{i}", 1 + i % 9, first=i) for i in range(50)]
    done = by_id(engine.run(requests))
    assert {name: c.embedding for name, c in done.items()} == {
        r.id: bytes(r.prompt_token_ids) for r in requests
    }
    assert done["r8"].prompt_tokens == 9


def test_steps_are_of_like_length_and_within_their_limits() -> None:
    engine, model = new_engine(tokens=20, texts=4)
    for _ in engine.run([request(f"r{i}", 1 + i % 9, first=i) for i in range(60)]):
        pass
    lengths = [[len(text) for text in step] for step in model.steps]
    assert all(sum(step) <= 20 and len(step) <= 4 for step in lengths)
    flat = [length for step in lengths for length in step]
    assert flat == sorted(flat, reverse=True)


def test_a_text_longer_than_a_step_is_computed_alone() -> None:
    engine, model = new_engine(tokens=8, length=16)
    done = by_id(engine.run([request("long", 16), request("short", 2)]))
    assert [len(step) for step in model.steps] == [1, 1]
    assert {len(c.embedding or b"") for c in done.values()} == {16, 2}


def test_equal_requests_are_computed_once() -> None:
    engine, model = new_engine()
    done = by_id(engine.run([request("a"), request("b"), request("c", dimensions=2)]))
    assert sum(map(len, model.steps)) == 2
    assert done["a"].embedding == done["b"].embedding == b"\1\2\3"
    assert done["c"].embedding == b"\1\2"
    assert [done[name].cached_tokens for name in "abc"] == [0, 3, 0]
    assert engine.metrics.num_deduplicated_requests_total == 1
    assert engine.metrics.covered_tokens_total == 9


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (request("x", 17), "17 tokens exceed max_model_len=16"),
        (request("x", 0), "the input is empty"),
        (Request(id="x", prompt_token_ids=(1,)), "the model gives embeddings"),
    ],
)
def test_what_can_never_run_comes_back_with_the_reason(wrong: Request, why: str) -> None:
    engine, _ = new_engine()
    done = by_id(engine.run([wrong, request("good")]))
    assert done["x"].error is not None
    assert done["x"].error.startswith(why)
    assert done["good"].embedding == b"\1\2\3"


def test_no_more_requests_are_taken_than_a_window_holds() -> None:
    engine, _ = new_engine(tokens=20, texts=4)
    taken = 0

    def endless() -> Iterator[Request]:
        nonlocal taken
        for taken in count(1):
            yield request(f"r{taken}", 2, first=taken % 250)

    run = engine.run(endless())
    for _ in range(10):
        next(run)
    assert taken <= 4 * WINDOW_STEPS
    run.close()


def test_an_aborted_request_is_not_computed() -> None:
    engine, model = new_engine(tokens=4, texts=1)
    run = engine.run([request("a", 4), request("b", 3), request("c", 3), request("d", 2)])
    assert next(run).request_id == "a"
    engine.abort({"b", "d"})
    assert [completion.request_id for completion in run] == ["c"]
    assert [len(text) for step in model.steps for text in step] == [4, 3]


def test_a_run_that_is_stopped_leaves_nothing_for_the_next() -> None:
    engine, _ = new_engine(texts=1)
    steps = count()

    def stop() -> None:
        if next(steps) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(engine.run([request(f"r{i}", first=i) for i in range(9)], on_step=stop))
    assert engine.metrics.num_requests_running == engine.metrics.num_requests_waiting == 0
    assert set(by_id(engine.run([request("next")]))) == {"next"}


def test_work_is_accounted_for_step_by_step() -> None:
    engine, _ = new_engine(tokens=20, texts=4)
    engine.watcher = recorder = Recorder(COST)
    for _ in engine.run([request(f"r{i}", 5, first=i) for i in range(8)]):
        pass
    recorder.end()
    assert recorder.steps.total == engine.metrics.steps_total == 2
    assert recorder.mean_running == pytest.approx(4)
    assert recorder.tally is not None
    assert recorder.tally.flops == 2 * 40 + 8 * 25
