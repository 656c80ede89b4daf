"""Suites whose answers a test decides, run by real parts but for the engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from batchjobs import intake
from batchjobs.client.embedded import EmbeddedClient
from batchjobs.deployment import Deployment
from batchjobs.evals.finishing import advance, open_jobs
from batchjobs.evals.starting import RunOrder, start_run
from batchjobs.evals.states import ENDED
from batchjobs.evals.suite_file import read_suite
from batchjobs.evals.tables import EvalRun
from batchjobs.evals.workplace import Workplace
from batchjobs.models import Model
from batchjobs.worker.engines import LoadedModel
from batchjobs.worker.runner import run_jobs
from batchjobs.worker.stop import StopSignal
from executor.fake import ByteTokenizer
from executor.request import Completion, Request
from tests.support.echo import EchoEngine

MODEL = "tiny"
Say = Callable[[str], str]


class SayingEngine(EchoEngine):
    """Answers a prompt with what `say` makes of it."""

    def __init__(self, say: Say) -> None:
        super().__init__()
        self._say = say

    def _echo(self, request: Request) -> Completion:
        echoed = super()._echo(request)
        [choice] = echoed.choices
        return replace(echoed, choices=(replace(choice, text=self._say(choice.text)),))


@dataclass
class SayingEngines:
    """An `EngineSource`."""

    say: Say

    def load(self, model: Model) -> LoadedModel:
        return LoadedModel(
            engine=SayingEngine(self.say), tokenizer=ByteTokenizer(), fingerprint="fp_saying"
        )


def place_of(deployment: Deployment) -> Workplace:
    return Workplace(deployment=deployment, client=EmbeddedClient(deployment))


def rows(count: int) -> list[dict[str, Any]]:
    """Items whose answer is their number."""
    return [
        {"id": f"item-{n}", "n": n, "kind": "even" if n % 2 == 0 else "odd"} for n in range(count)
    ]


def write_suite(
    folder: Path, items: Sequence[Mapping[str, Any]], *, name: str = "suite.yaml", **changes: Any
) -> Path:
    """A suite of one request an item, whose prompt is the item's number."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    suite = {
        "suite": "numbers",
        "dataset": {"source": "items.jsonl", "tags": ["kind"]},
        "model": MODEL,
        "request": {"endpoint": "completions", "prompt": "{{ n }}"},
        "scorers": [{"type": "numeric", "target": "{{ n }}"}],
        **changes,
    }
    path = folder / name
    path.write_text(yaml.safe_dump(suite, sort_keys=False))
    return path


def start_suite(place: Workplace, path: Path, **order: Any) -> str:
    return start_run(place, read_suite(path), RunOrder(**order))


def run_suite(place: Workplace, path: Path, say: Say = str, **order: Any) -> EvalRun:
    """A run seen to its end."""
    return see_through(place, start_suite(place, path, **order), say)


def see_through(place: Workplace, run_id: str, say: Say = str) -> EvalRun:
    while (run := advance(place, run_id)).state not in ENDED:
        for job_id in open_jobs(place, run):
            answer_job(place.deployment, job_id, say)
    return run


def answer_job(deployment: Deployment, job_id: str, say: Say = str) -> None:
    intake.validate(deployment, job_id)
    run_jobs(
        deployment,
        job_id=job_id,
        engines=SayingEngines(say),
        stop=StopSignal(grace_seconds=60, forced_exit=9),
        on_progress=lambda progress: None,
    )
