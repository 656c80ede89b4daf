"""What is kept of a run, from steps whose times the tests choose."""

from __future__ import annotations

import pytest

from executor.fake import fake_engine
from executor.forecast import Forecast
from executor.histogram import Histogram
from executor.recorder import Moment, Recorder, work_of
from executor.request import Request, SamplingParams
from executor.roofline import ModelCost
from executor.scheduler import Scheduler
from executor.sequence import Group, Sequence
from executor.settings import Limits
from executor.span import Span

LIMITS = Limits(
    max_num_seqs=2, max_num_batched_tokens=64, max_model_len=64, num_blocks=16, block_size=8
)
COST = ModelCost(body=10, head=1, attention=1, weight_bytes=44, kv_bytes=8)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def request(name: str, prompt: int = 4, answer: int = 3, n: int = 1) -> Request:
    """No two of different names are alike, or share the start of their prompts."""
    sampling = SamplingParams(temperature=0, max_tokens=answer, ignore_eos=True, n=n)
    tokens = (ord(name), *range(1, prompt))
    return Request(id=name, prompt_token_ids=tokens, sampling=sampling)


def record(*requests: Request, limits: Limits = LIMITS) -> Recorder:
    """Of a run in which every step takes a second."""
    clock, engine = Clock(), fake_engine(limits)
    recorder = Recorder(COST, clock=clock, keeps_course=True)
    engine.watcher = recorder

    def tick() -> None:
        clock.now += 1

    recorder.begin()
    for _ in engine.run(requests, on_step=tick):
        pass
    recorder.end()
    return recorder


def test_a_step_lasts_until_the_next_one() -> None:
    recorder = record(request("a"), request("b"))
    assert recorder.steps.total == 3
    assert recorder.steps.percentile(0.5) == pytest.approx(1, rel=0.01)


def test_first_tokens_count_from_the_start_of_the_run() -> None:
    # Two slots: c begins when a and b have ended, after three steps.
    recorder = record(request("a"), request("b"), request("c"))
    assert recorder.first_tokens.total == 3
    assert recorder.first_tokens.percentile(0.5) == pytest.approx(2, rel=0.01)
    assert recorder.first_tokens.percentile(0.99) == pytest.approx(5, rel=0.01)


def test_running_is_averaged_over_time_and_its_course_kept() -> None:
    recorder = record(request("a", answer=1), request("b", answer=3))
    assert recorder.mean_running == pytest.approx((2 + 1 + 1) / 3)
    assert [m for m in recorder.course if m.running] == [Moment(1, 2), Moment(2, 1), Moment(3, 1)]


def test_the_course_is_not_kept_unless_asked() -> None:
    recorder = Recorder()
    engine = fake_engine(LIMITS)
    engine.watcher = recorder
    assert len(list(engine.run([request("a")]))) == 1
    assert (recorder.course, recorder.tally) == ([], None)


def test_all_work_is_tallied() -> None:
    recorder = record(request("a", prompt=4, answer=3))
    assert recorder.tally is not None
    # Positions 0 to 5 attend to 1 + … + 6 tokens; three rows are sampled.
    assert recorder.tally.flops == 2 * 10 * 6 + 2 * 1 * 3 + 21
    assert recorder.tally.bytes == 3 * 44 + 8 * (4 + 5 + 6)


def test_shared_blocks_are_read_once() -> None:
    spans = []
    for table in ([0, 1, 2], [0, 1, 3]):
        sequence = Sequence(Group(request("a")), 0, list(range(20)), None)
        sequence.block_table = table
        spans.append(Span(sequence, 19, 1))
    assert work_of(spans, block_size=8).kv_tokens == 20 + 20 - 16


def test_waiting_for_a_slot_with_an_empty_cache_is_a_symptom() -> None:
    symptoms = record(*(request(name) for name in "abcd")).symptoms
    assert symptoms.slots_short >= 2
    assert (symptoms.steps, symptoms.memory_short) == (6, 0)


def test_waiting_with_a_full_cache_is_a_symptom() -> None:
    limits = Limits(
        max_num_seqs=8, max_num_batched_tokens=64, max_model_len=64, num_blocks=8, block_size=8
    )
    requests = [request(name, prompt=60, answer=4) for name in "ab"]
    symptoms = record(*requests, limits=limits).symptoms
    assert symptoms.memory_short >= 2
    assert symptoms.slots_short == 0


def test_a_recorder_can_begin_again() -> None:
    recorder = record(request("a"))
    recorder.begin()
    assert recorder.steps.total == recorder.first_tokens.total == recorder.symptoms.steps == 0
    assert (recorder.mean_running, recorder.course) == (0.0, [])
    assert recorder.tally is not None
    assert recorder.tally.flops == 0


def test_an_engine_counts_what_preemption_gave_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Forecast, "fits", lambda forecast, free: free >= 0)
    limits = Limits(
        max_num_seqs=4, max_num_batched_tokens=64, max_model_len=40, num_blocks=5, block_size=8
    )
    engine = fake_engine(limits)
    done = list(engine.run([request(name, prompt=7, answer=30) for name in "abc"]))
    assert len(done) == 3
    needed = 3 * (7 + 30 - 1)
    assert engine.metrics.num_preemptions_total > 0
    assert engine.metrics.computed_tokens_total == (
        needed + engine.metrics.num_recomputed_tokens_total
    )


def test_percentiles_are_those_of_the_nearest_rank() -> None:
    histogram = Histogram()
    for value in range(1, 101):
        histogram.add(float(value))
    assert histogram.percentile(0.5) == pytest.approx(50, rel=0.01)
    assert histogram.percentile(0.99) == pytest.approx(99, rel=0.01)
    assert histogram.percentile(1.0) == pytest.approx(100, rel=0.01)
    assert histogram.percentile(0.0) == pytest.approx(1, rel=0.01)


def test_of_nothing_every_percentile_is_zero() -> None:
    assert Histogram().percentile(0.5) == 0.0


def test_scheduler_is_what_the_recorder_reads() -> None:
    recorder = Recorder(keeps_course=True)
    recorder.observe([], Scheduler(LIMITS))
    recorder.end()
    assert recorder.course[0].running == 0
