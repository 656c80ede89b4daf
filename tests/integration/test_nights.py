"""Nights of a scheduled suite, from cron's slot to the letter of an alarm: everything is the real
thing but the engine, which says its prompt again, or nothing of it once a model got worse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from batchjobs.deployment import Deployment
from batchjobs.evals import pins
from batchjobs.notifications.office import Office
from batchjobs.queue import jobs
from batchjobs.schedules.desk import Desk
from batchjobs.schedules.firing import tick
from batchjobs.schedules.orders import ScheduleOrder
from batchjobs.worker.engines import LoadedModel
from batchjobs.worker.runner import run_jobs
from batchjobs.worker.stop import StopSignal
from executor.request import Completion, Request
from tests.support.echo import EchoEngine, EchoEngines
from tests.support.engines import add_models
from tests.support.jobs import MODEL, clock_of, open_deployment
from tests.support.receiver import Receiver, receiving
from tests.unit.schedules.nights import set_clock, slots_of, utc

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ITEMS = 60
SUITE = f"""\
suite: words
dataset: {{source: words.jsonl, id: word}}
model: {MODEL}
request:
  endpoint: completions
  prompt: "{{{{ word }}}}"
  sampling: {{temperature: 0, max_tokens: 40}}
scorers:
  - {{type: exact, target: "{{{{ word }}}}"}}
"""


class WorseEngine(EchoEngine):
    """Answers every fourth question with another's word."""

    def _echo(self, request: Request) -> Completion:
        if request.prompt_token_ids[-1] % 4 == 0:
            return super()._echo(_asked(request, b"none"))
        return super()._echo(request)


def _asked(request: Request, text: bytes) -> Request:
    return replace(request, prompt_token_ids=tuple(text))


class WorseEngines(EchoEngines):
    def load(self, model: object) -> LoadedModel:
        return replace(super().load(model), engine=WorseEngine())  # type: ignore[arg-type]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as opened:
        yield opened


@pytest.fixture
def deployment(tmp_path: Path, receiver: Receiver) -> Iterator[Deployment]:
    settings = {
        "webhook_url": receiver.url,
        "webhook_secret": SECRET,
        "webhook_events": "eval.*,schedule.*",
    }
    with open_deployment(tmp_path / "home", **settings) as opened:
        add_models(opened, MODEL)
        yield opened


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    words = [{"word": f"word{number}"} for number in range(ITEMS)]
    (tmp_path / "words.jsonl").write_text("".join(json.dumps(word) + "\n" for word in words))
    path = tmp_path / "words.yaml"
    path.write_text(SUITE)
    return path


def night(deployment: Deployment, day: int, engines: EchoEngines) -> dict[str, object]:
    """The slot of one night, seen to its end."""
    set_clock(deployment, f"2026-11-{day:02}T02:00")
    for _ in range(6):
        tick(deployment)
        run_jobs(deployment, engines=engines, stop=StopSignal(grace_seconds=5, forced_exit=5))
        clock_of(deployment).advance(timedelta(minutes=1))
    tick(deployment)
    Office(deployment).work()
    slot: dict[str, object] = slots_of(deployment)[-1]
    return slot


def test_alarm_is_confirmed_told_once_and_taken_back(
    deployment: Deployment, suite: Path, receiver: Receiver
) -> None:
    set_clock(deployment, "2026-11-01T00:00")
    Desk(deployment).add(
        ScheduleOrder(name="nightly", cron="0 2 * * *", suites=[str(suite)], deadline="07:00")
    )
    first = night(deployment, 1, EchoEngines())
    assert first["status"] == "done"
    [run] = first["runs"]  # type: ignore[misc]
    assert run["verdict"] == "no verdict"  # nothing is pinned yet
    with deployment.database.write() as session:
        pins.pin(session, deployment.clock, [run["id"]])

    words = [
        [run["verdict"] for run in night(deployment, day, engines)["runs"]]  # type: ignore[attr-defined]
        for day, engines in enumerate([EchoEngines(), WorseEngines(), EchoEngines()], 2)
    ]
    assert words == [["ok"], ["worse"], ["ok"]]
    told = [json.loads(body) for _, body in receiver.received]
    assert sorted(event["type"] for event in told[-3:]) == [
        "eval.run.recovered",
        "eval.run.regressed",
        "schedule.recovered",
    ]
    alarm = next(event for event in told if event["type"] == "eval.run.regressed")
    assert alarm["data"]["verdict"].startswith("worse: -")
    assert "broken" in alarm["data"]["verdict"]
    receiver.unwrapped(SECRET)


def test_deadline_of_the_night_is_that_of_all_its_jobs(deployment: Deployment, suite: Path) -> None:
    set_clock(deployment, "2026-11-01T00:00")
    Desk(deployment).add(
        ScheduleOrder(name="nightly", cron="0 2 * * *", suites=[str(suite)], deadline="07:00")
    )
    set_clock(deployment, "2026-11-01T02:00")
    for _ in range(2):
        tick(deployment)
    with deployment.database.read() as session:
        found, _ = jobs.page(session, limit=10)
    assert [job.expires_at for job in found] == [utc("2026-11-01T07:00")]
