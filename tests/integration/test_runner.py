"""Workers on a real database, store and scheduler; only the logits are made up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from batchjobs import catalogue, wire
from batchjobs.deployment import Deployment
from batchjobs.errors import Interrupted, ModelError, NotFoundError
from batchjobs.models import Job, Model, Part, Shard
from batchjobs.queue import claims, jobs, tallies
from batchjobs.states import JobState
from batchjobs.store.layout import manifest_key
from batchjobs.worker import model_session
from batchjobs.worker.engines import LoadedModel
from batchjobs.worker.progress import Progress, RunReport
from batchjobs.worker.runner import run_jobs, work_on
from batchjobs.worker.stop import StopSignal
from batchjobs.worker.tending import tend
from executor.engine import Engine
from executor.fake import ByteTokenizer
from executor.request import Completion, Request
from executor.settings import Limits
from tests.support.engines import FakeEngines, HastyEngines, ScarceEngines, add_models
from tests.support.jobs import (
    MODEL,
    add_input,
    clock_of,
    create_job,
    load_job,
    must_claim,
    open_deployment,
    read_records,
    request_line,
    start_job,
    write_part,
)


@pytest.fixture
def deployment(tmp_path: Path, database_url: str | None) -> Iterator[Deployment]:
    # Every look at the world happens at every step, so that tests need no time to pass.
    eager = {"poll_seconds": 1e-9, "checkpoint_seconds": 1e-9, "lease_seconds": 60}
    with open_deployment(tmp_path, database_url=database_url, **eager) as opened:
        add_models(opened, MODEL, "other")
        yield opened


def chat(custom_id: str, *, model: str = MODEL, **body: Any) -> dict[str, Any]:
    line = request_line(custom_id, model=model)
    line["body"] |= {"max_tokens": 12, "ignore_eos": True, **body}
    return line


def chats(count: int, **body: Any) -> list[dict[str, Any]]:
    return [chat(f"line-{i}", **body) for i in range(count)]


def run(
    deployment: Deployment,
    job_id: str | None = None,
    *,
    engines: FakeEngines | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    stop: StopSignal | None = None,
) -> RunReport:
    return run_jobs(
        deployment,
        job_id=job_id,
        engines=engines or FakeEngines(),
        on_progress=on_progress,
        stop=stop or new_stop(),
    )


def new_stop() -> StopSignal:
    return StopSignal(grace_seconds=60, forced_exit=9)


def outputs(deployment: Deployment, job: Job) -> list[dict[str, Any]]:
    return read_records(deployment, job.output_file_id)


def errors(deployment: Deployment, job: Job) -> list[dict[str, Any]]:
    return read_records(deployment, job.error_file_id)


def ids(records: Sequence[dict[str, Any]]) -> list[str]:
    return [record["custom_id"] for record in records]


def answers(records: Sequence[dict[str, Any]]) -> dict[str, str]:
    return {
        r["custom_id"]: r["response"]["body"]["choices"][0]["message"]["content"] for r in records
    }


def after(count: int, act: Callable[[], object]) -> Callable[[Progress], None]:
    """Act once, when `count` lines are done."""
    acted = False

    def watch(progress: Progress) -> None:
        nonlocal acted
        if progress.done >= count and not acted:
            acted = True
            act()

    return watch


def test_manifest_and_batch_name_the_engines_that_computed_the_results(
    deployment: Deployment,
) -> None:
    job_id = start_job(deployment, chats(3))
    run(deployment)
    done = load_job(deployment, job_id)
    with deployment.store.open(manifest_key(job_id)) as stream:
        named = json.loads(stream.read())["system_fingerprints"]
    found = {line["response"]["body"]["system_fingerprint"] for line in outputs(deployment, done)}
    assert named == sorted(found)
    assert done.system_fingerprints == named


def test_results_are_stored_at_once_when_many_are_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_session, "MAX_UNWRITTEN_BYTES", 1500)
    with open_deployment(tmp_path, poll_seconds=1e-9, checkpoint_seconds=1e9) as deployment:
        add_models(deployment, MODEL)
        lines = [chat(f"line-{i}", max_tokens=1 + 2 * i) for i in range(12)]
        job_id = start_job(deployment, lines, shard_max_lines=12)
        counts: set[int] = set()

        def count(progress: Progress) -> None:
            with deployment.database.read() as session:
                counts.add(len(list(session.scalars(select(Part)))))

        run(deployment, job_id, on_progress=count)
        assert max(counts) >= 2
        assert len(outputs(deployment, load_job(deployment, job_id))) == 12


def test_every_line_is_answered_in_input_order(deployment: Deployment) -> None:
    # Answers of uneven length end out of order.
    lines = [chat(f"line-{i}", max_tokens=1 + i * 7 % 20) for i in range(30)]
    job_id = start_job(deployment, lines, shard_max_lines=4)
    report = run(deployment, job_id)
    job = load_job(deployment, job_id)
    assert job.status == JobState.COMPLETED
    assert ids(outputs(deployment, job)) == [f"line-{i}" for i in range(30)]
    assert job.error_file_id is None
    assert report.completion_tokens == sum(1 + i * 7 % 20 for i in range(30))
    assert job.completion_tokens == report.completion_tokens
    assert job.prompt_tokens == report.prompt_tokens


@pytest.mark.parametrize(
    ("endpoint", "bodies", "words"),
    [
        (
            "/v1/chat/completions",
            [{"n": 3}, {"max_tokens": 1}, {"logprobs": True}, {"temperature": 9}],
            ("prompt_tokens", "completion_tokens"),
        ),
        (
            "/v1/completions",
            [{"prompt": ["a", "b"], "n": 2}, {"best_of": 3, "echo": True}, {"temperature": 9}],
            ("prompt_tokens", "completion_tokens"),
        ),
        (
            "/v1/responses",
            [{}, {"instructions": "Be brief."}, {"temperature": 9}],
            ("input_tokens", "output_tokens"),
        ),
    ],
)
def test_usage_of_the_batch_is_the_sum_of_its_lines(
    deployment: Deployment, endpoint: str, bodies: list[dict[str, Any]], words: tuple[str, str]
) -> None:
    prompts: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
        "/v1/completions": {"prompt": "The same beginning of every prompt."},
        "/v1/responses": {"input": "Hi", "max_output_tokens": 8},
    }
    lines = [
        request_line(f"line-{number}")
        | {"url": endpoint, "body": {"model": MODEL, **prompts[endpoint], **body}}
        for number, body in enumerate(bodies)
    ]
    job_id = start_job(deployment, lines, endpoint=endpoint)
    run(deployment, job_id)
    job = load_job(deployment, job_id)
    used = [record["response"]["body"]["usage"] for record in outputs(deployment, job)]
    assert len(used) == len(lines) - 1
    with deployment.database.read() as session:
        tally = tallies.tally(session, job)
    batch = wire.batch_object(job, tally, [])["usage"]
    assert (batch["input_tokens"], batch["output_tokens"]) == (
        sum(one[words[0]] for one in used),
        sum(one[words[1]] for one in used),
    )
    cached = [one[f"{words[0]}_details"]["cached_tokens"] for one in used]
    assert batch["input_tokens_details"]["cached_tokens"] == sum(cached)


def test_line_that_cannot_run_fails_alone(deployment: Deployment) -> None:
    lines = chats(5)
    lines[1]["body"]["max_tokens"] = 4000
    lines[3]["body"]["temperature"] = 9
    job_id = start_job(deployment, lines)
    run(deployment, job_id)
    job = load_job(deployment, job_id)
    assert ids(outputs(deployment, job)) == ["line-0", "line-2", "line-4"]
    failed = errors(deployment, job)
    assert ids(failed) == ["line-1", "line-3"]
    assert [r["response"]["status_code"] for r in failed] == [400, 400]
    assert failed[0]["response"]["body"]["error"]["code"] == "context_length_exceeded"
    assert failed[1]["response"]["body"]["error"]["param"] == "temperature"


@pytest.mark.parametrize(("ignore_unknown", "answered"), [(False, []), (True, ["line-0"])])
def test_unknown_parameters_are_ignored_where_that_is_set(
    tmp_path: Path, ignore_unknown: bool, answered: list[str]
) -> None:
    with open_deployment(tmp_path, ignore_unknown=ignore_unknown) as opened:
        add_models(opened, MODEL)
        job_id = start_job(opened, chats(1, temprature=0))
        run(opened, job_id)
        job = load_job(opened, job_id)
        assert ids(outputs(opened, job)) == answered
        assert len(errors(opened, job)) == 1 - len(answered)


def test_fault_of_ours_fails_only_the_line_that_met_it(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    class Faulty(ByteTokenizer):
        def render_chat(self, messages: Sequence[dict[str, Any]], **settings: Any) -> str:
            if "line-1" in messages[0]["content"]:
                raise RuntimeError("a bug")
            return super().render_chat(messages, **settings)

    job_id = start_job(deployment, chats(3))
    run(deployment, job_id, engines=FakeEngines(tokenizer=Faulty()))
    job = load_job(deployment, job_id)
    assert ids(outputs(deployment, job)) == ["line-0", "line-2"]
    [failed] = errors(deployment, job)
    assert failed["response"]["status_code"] == 500
    assert failed["response"]["body"]["error"]["type"] == "server_error"
    assert "a bug" not in str(failed)
    assert "a bug" in caplog.text


def test_job_whose_every_line_fails_has_no_output_file(deployment: Deployment) -> None:
    job_id = start_job(deployment, chats(5, temperature=9))
    run(deployment, job_id)
    job = load_job(deployment, job_id)
    assert (job.status, job.output_file_id) == (JobState.COMPLETED, None)
    assert len(errors(deployment, job)) == 5


def test_several_models_of_one_file_run_one_after_the_other(deployment: Deployment) -> None:
    lines = [chat(f"line-{i}", model=(MODEL, "other")[i % 2]) for i in range(10)]
    job_id = start_job(deployment, lines)
    engines = FakeEngines()
    run(deployment, job_id, engines=engines)
    job = load_job(deployment, job_id)
    assert engines.loaded == [MODEL, "other"]
    records = outputs(deployment, job)
    assert ids(records) == [f"line-{i}" for i in range(10)]
    assert [r["response"]["body"]["model"] for r in records] == [MODEL, "other"] * 5


def test_engine_is_never_drained_between_shards(deployment: Deployment) -> None:
    limits = Limits(
        max_num_seqs=8, max_num_batched_tokens=512, max_model_len=256, num_blocks=512, block_size=8
    )
    lines = [chat(f"line-{i}", max_tokens=20 + i * 7 % 20) for i in range(160)]
    job_id = start_job(deployment, lines, shard_max_lines=8)
    engines = FakeEngines(limits=limits)
    seen: list[int] = []
    run(deployment, job_id, engines=engines, on_progress=lambda p: seen.append(p.running))
    # The first requests are read, many ahead of need, before anything runs.
    until_tail = [running for running in seen if running][:-40]
    assert sum(until_tail) / len(until_tail) >= 0.95 * 8


def test_jobs_without_a_name_run_most_urgent_first(deployment: Deployment) -> None:
    late = start_job(deployment, chats(3), completion_window="48h")
    soon = start_job(deployment, chats(3), completion_window="24h")
    run(deployment)
    assert all(load_job(deployment, j).status == JobState.COMPLETED for j in (late, soon))
    finished = [load_job(deployment, j).in_progress_at for j in (late, soon)]
    assert None not in finished


def test_validating_job_is_taken_through_intake(deployment: Deployment) -> None:
    good = create_job(deployment, add_input(deployment, chats(2)).id)
    bad = create_job(deployment, "file-none")
    run(deployment)
    assert load_job(deployment, good).status == JobState.COMPLETED
    assert load_job(deployment, bad).status == JobState.FAILED


def test_stop_keeps_what_is_finished_and_resume_does_the_rest(deployment: Deployment) -> None:
    lines = [chat(f"line-{i}", max_tokens=2 + i % 5) for i in range(40)]
    job_id = start_job(deployment, lines, shard_max_lines=16)
    stop = new_stop()
    with pytest.raises(Interrupted):
        run(deployment, job_id, stop=stop, on_progress=after(11, stop.set))
    with deployment.database.read() as session:
        before = tallies.tally(session, jobs.get(session, job_id))
        assert claims.owners(session) == set()
    assert 11 <= before.completed < 40
    report = run(deployment, job_id)
    job = load_job(deployment, job_id)
    assert ids(outputs(deployment, job)) == [f"line-{i}" for i in range(40)]
    per_line = job.prompt_tokens // 40 if job.prompt_tokens else 0
    assert report.prompt_tokens <= (40 - before.completed) * (per_line + 1)
    assert report.completion_tokens == (job.completion_tokens or 0) - before.completion_tokens


def test_interrupted_run_gives_the_same_bytes(deployment: Deployment, tmp_path: Path) -> None:
    lines = [chat(f"line-{i}", temperature=1, max_tokens=9, n=2) for i in range(20)]
    whole = start_job(deployment, lines, shard_max_lines=8)
    run(deployment, whole)
    broken = start_job(deployment, lines, shard_max_lines=3)
    stops = 0
    while load_job(deployment, broken).status != JobState.COMPLETED:
        stop = new_stop()
        tight = Limits(
            max_num_seqs=3, max_num_batched_tokens=7, max_model_len=80, num_blocks=20, block_size=4
        )
        try:
            run(
                deployment,
                broken,
                engines=FakeEngines(limits=tight),
                stop=stop,
                on_progress=after(4 * stops + 3, stop.set),
            )
        except Interrupted:
            stops += 1
    assert stops >= 3
    one, other = (outputs(deployment, load_job(deployment, j)) for j in (whole, broken))
    assert answers(one) == answers(other)
    assert [r["response"]["body"]["usage"] for r in one] == [
        r["response"]["body"]["usage"] for r in other
    ]


def test_lines_without_a_seed_differ_and_the_jobs_seed_redraws_them(
    deployment: Deployment,
) -> None:
    lines = [chat(f"line-{i}", temperature=1) for i in range(4)]
    for line in lines:
        line["body"]["messages"][0]["content"] = "the same for all"
    first, again, other = (start_job(deployment, lines, seed=seed) for seed in (1, 1, 2))
    run(deployment)
    texts = [answers(outputs(deployment, load_job(deployment, j))) for j in (first, again, other)]
    assert len(set(texts[0].values())) == 4
    assert texts[0] == texts[1]
    assert not set(texts[0].values()) & set(texts[2].values())


def test_cancel_stops_the_running_generations(deployment: Deployment) -> None:
    lines = [chat(f"line-{i}", max_tokens=3 if i < 5 else 200) for i in range(12)]
    job_id = start_job(deployment, lines, shard_max_lines=4)

    def cancel() -> None:
        with deployment.database.write() as session:
            jobs.cancel(session, deployment.clock, job_id)

    report = run(deployment, job_id, on_progress=after(5, cancel))
    job = load_job(deployment, job_id)
    assert job.status == JobState.CANCELLED
    assert ids(outputs(deployment, job)) == [f"line-{i}" for i in range(5)]
    assert {r["error"]["code"] for r in errors(deployment, job)} == {"batch_cancelled"}
    assert ids(errors(deployment, job)) == [f"line-{i}" for i in range(5, 12)]
    assert report.completion_tokens < 5 * 3 + 7 * 30


def test_cancel_in_the_middle_of_a_line_of_many_prompts(deployment: Deployment) -> None:
    url = "/v1/completions"
    body = {"model": MODEL, "prompt": ["abc"] * 40, "max_tokens": 5, "ignore_eos": True}
    lines = [
        {"custom_id": f"line-{i}", "method": "POST", "url": url, "body": body} for i in range(2)
    ]
    job_id = start_job(deployment, lines, endpoint=url)

    def cancel(progress: Progress) -> None:
        if progress.completion_tokens > 0 and load_job(deployment, job_id).cancelling_at is None:
            with deployment.database.write() as session:
                jobs.cancel(session, deployment.clock, job_id)

    run(deployment, job_id, on_progress=cancel)
    job = load_job(deployment, job_id)
    assert job.status == JobState.CANCELLED
    assert ids(errors(deployment, job)) == ["line-0", "line-1"]


def test_window_that_closes_publishes_what_is_finished(deployment: Deployment) -> None:
    lines = [chat(f"line-{i}", max_tokens=3 if i < 5 else 200) for i in range(12)]
    job_id = start_job(deployment, lines, shard_max_lines=4)

    def a_day_passes() -> None:
        clock_of(deployment).advance(timedelta(hours=24, seconds=1))

    run(deployment, job_id, on_progress=after(5, a_day_passes))
    job = load_job(deployment, job_id)
    assert job.status == JobState.EXPIRED
    assert ids(outputs(deployment, job)) == [f"line-{i}" for i in range(5)]
    assert {r["error"]["code"] for r in errors(deployment, job)} == {"batch_expired"}


def test_long_run_renews_its_lease(tmp_path: Path) -> None:
    # A lease so short is renewed at every step, and stands at the time of its renewal.
    eager = {"poll_seconds": 1e-9, "checkpoint_seconds": 1e-9, "lease_seconds": 1e-9}
    with open_deployment(tmp_path, **eager) as deployment:
        add_models(deployment, MODEL)
        job_id = start_job(deployment, chats(6, max_tokens=30))
        renewed = 0

        def time_passes(progress: Progress) -> None:
            nonlocal renewed
            with deployment.database.read() as session:
                now = deployment.clock.now(session)
                held = session.scalars(select(Shard.lease_until).where(Shard.owner.is_not(None)))
                renewed += sum(lease == now for lease in held)
            clock_of(deployment).advance(timedelta(minutes=1))

        run(deployment, job_id, on_progress=time_passes)
        assert load_job(deployment, job_id).status == JobState.COMPLETED
        assert renewed > 30


def test_worker_that_lost_its_shard_writes_nothing_more(deployment: Deployment) -> None:
    job_id = start_job(deployment, chats(4, max_tokens=50), shard_max_lines=4)
    stolen = []

    def another_takes_over() -> None:
        with deployment.database.write() as session:
            for owner in claims.owners(session):
                claims.release_owner(session, owner)
        held = must_claim(deployment, owner="thief")
        stolen.append(held)
        facts = write_part(deployment, held)
        with deployment.database.write() as session:
            claims.commit_part(session, held, facts)
            claims.finish(session, held)

    started = False

    def watch(progress: Progress) -> None:
        nonlocal started
        if progress.completion_tokens > 8 and not started:
            started = True
            another_takes_over()

    run(deployment, job_id, on_progress=watch)
    tend(deployment, job_id)
    job = load_job(deployment, job_id)
    assert stolen
    assert job.status == JobState.COMPLETED
    assert set(answers(outputs(deployment, job)).values()) == {f"to line-{i}" for i in range(4)}


def test_shard_that_was_answered_but_not_finished_is_not_run_again(
    deployment: Deployment,
) -> None:
    job_id = start_job(deployment, chats(3), shard_max_lines=3)
    held = must_claim(deployment, owner="worker-that-died")
    facts = write_part(deployment, held)
    with deployment.database.write() as session:
        claims.commit_part(session, held, facts)
    clock_of(deployment).advance(timedelta(minutes=2))
    report = run(deployment, job_id)
    assert report.prompt_tokens == 0
    assert load_job(deployment, job_id).status == JobState.COMPLETED


def test_results_are_checkpointed_while_a_shard_is_running(deployment: Deployment) -> None:
    lines = [chat(f"line-{i}", max_tokens=2 + 4 * i) for i in range(20)]
    job_id = start_job(deployment, lines, shard_max_lines=20)
    committed: list[int] = []

    def look(progress: Progress) -> None:
        with deployment.database.read() as session:
            committed.append(tallies.tally(session, jobs.get(session, job_id)).completed)

    run(deployment, job_id, on_progress=look)
    assert len(set(committed) - {0, 20}) >= 10


def test_progress_ends_at_all_lines_and_foresees_an_end(deployment: Deployment) -> None:
    job_id = start_job(deployment, chats(30))
    seen: list[Progress] = []
    run(deployment, job_id, on_progress=seen.append)
    assert (seen[0].done, seen[0].total, seen[0].eta_seconds) == (0, 30, None)
    assert (seen[-1].done, seen[-1].failed) == (30, 0)
    assert any(progress.eta_seconds for progress in seen)
    assert [p.done for p in seen] == sorted(p.done for p in seen)


@pytest.mark.parametrize(
    ("stays", "loaded"), [(0.0, [MODEL, "other", MODEL]), (3600.0, [MODEL, "other"])]
)
def test_worker_leaves_its_model_for_a_more_urgent_one(
    tmp_path: Path, stays: float, loaded: list[str]
) -> None:
    with open_deployment(tmp_path, model_switch_seconds=stays, poll_seconds=1e-9) as deployment:
        add_models(deployment, MODEL, "other")
        start_job(deployment, chats(40), shard_max_lines=2)
        engines = FakeEngines()
        arrived: list[str] = []

        def arrive(progress: Progress) -> None:
            if not arrived:
                arrived.append(start_job(deployment, [chat("urgent", model="other")]))

        run(deployment, engines=engines, on_progress=arrive)
        assert load_job(deployment, arrived[0]).status == JobState.COMPLETED
    assert engines.loaded == loaded


def test_model_that_cannot_be_loaded_leaves_the_job_resumable(deployment: Deployment) -> None:
    class Broken(FakeEngines):
        def load(self, model: Model) -> LoadedModel:
            raise ModelError(f"{model.name} is damaged.")

    job_id = start_job(deployment, chats(2))
    with pytest.raises(ModelError, match="damaged"):
        run(deployment, job_id, engines=Broken())
    assert load_job(deployment, job_id).status == JobState.IN_PROGRESS
    run(deployment, job_id)
    assert load_job(deployment, job_id).status == JobState.COMPLETED


class HalfBroken(FakeEngines):
    """The model "other" is damaged."""

    def load(self, model: Model) -> LoadedModel:
        if model.name == "other":
            raise ModelError("other is damaged.")
        return super().load(model)


def test_worker_that_stays_leaves_a_damaged_model_aside(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = start_job(deployment, [chat("a", model="other")])
    good = start_job(deployment, chats(2), completion_window="7d")
    stop = new_stop()
    with pytest.raises(Interrupted):
        work_on(deployment, engines=HalfBroken(), stop=stop, on_report=lambda report: stop.set())
    assert load_job(deployment, good).status == JobState.COMPLETED
    assert load_job(deployment, damaged).status == JobState.IN_PROGRESS
    assert caplog.text.count("other is damaged") == 1


def test_worker_of_damaged_models_only_ends_with_the_reason(deployment: Deployment) -> None:
    start_job(deployment, [chat("a", model="other")])
    with pytest.raises(ModelError, match="damaged"):
        work_on(deployment, engines=HalfBroken(), stop=new_stop(), models=["other"])


def test_model_that_has_left_the_catalogue_is_left_aside(deployment: Deployment) -> None:
    with deployment.database.write() as session:
        catalogue.remove(session, "other")
    start_job(deployment, [chat("a", model="other")])
    good = start_job(deployment, chats(2), completion_window="7d")
    stop = new_stop()
    with pytest.raises(Interrupted):
        work_on(deployment, engines=FakeEngines(), stop=stop, on_report=lambda report: stop.set())
    assert load_job(deployment, good).status == JobState.COMPLETED


def test_unknown_job_is_refused(deployment: Deployment) -> None:
    with pytest.raises(NotFoundError):
        run(deployment, "batch_none")


def test_line_that_does_not_fit_the_memory_fails_alone(deployment: Deployment) -> None:
    lines = [chat(f"line-{i}") for i in range(12)]
    lines[7]["body"]["messages"][0]["content"] = "a café"
    job_id = start_job(deployment, lines, shard_max_lines=4)
    run(deployment, job_id, engines=ScarceEngines())
    job = load_job(deployment, job_id)
    assert job.status == JobState.COMPLETED
    assert ids(outputs(deployment, job)) == [f"line-{i}" for i in range(12) if i != 7]
    [failed] = errors(deployment, job)
    assert failed["custom_id"] == "line-7"
    error = failed["response"]["body"]["error"]
    assert error["code"] == "out_of_memory"
    assert "does not fit the worker's memory, not even alone" in error["message"]


def test_line_that_ran_out_of_time_says_so(deployment: Deployment) -> None:
    job_id = start_job(deployment, [chat("slow", max_tokens=200), chat("quick", max_tokens=1)])
    run(deployment, job_id, engines=HastyEngines())
    [failed] = errors(deployment, load_job(deployment, job_id))
    assert failed["custom_id"] == "slow"
    assert failed["response"]["body"]["error"]["code"] == "request_timeout"


def test_job_of_greater_priority_goes_first_in_the_engine(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    original = Engine.run

    def noting(
        engine: Engine, requests: Iterable[Request], on_step: Callable[[], None] | None = None
    ) -> Iterator[Completion]:
        def noted() -> Iterator[Request]:
            for request in requests:
                seen.append(request.priority)
                yield request

        return original(engine, noted(), on_step)

    monkeypatch.setattr(Engine, "run", noting)
    urgent, patient = (start_job(deployment, chats(2), priority=p) for p in (7, -3))
    run(deployment)
    assert {load_job(deployment, job).status for job in (urgent, patient)} == {JobState.COMPLETED}
    assert sorted(seen) == [-7, -7, 3, 3]
