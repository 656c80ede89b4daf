"""Whether this machine can run a model: the decisions, and one request end to end."""

from __future__ import annotations

import io
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from batchjobs import catalogue, files, intake
from batchjobs.deployment import Deployment
from batchjobs.errors import ModelError
from batchjobs.models import Model
from batchjobs.queue import jobs
from batchjobs.settings import Settings
from batchjobs.states import JobState
from batchjobs.worker.embedders import is_embedder
from batchjobs.worker.engines import CheckpointEngines, engine_settings
from batchjobs.worker.progress import RunReport
from batchjobs.worker.runner import run_jobs
from batchjobs.worker.stop import StopSignal
from executor.threads import yield_when_idle

QUESTION = "What is the capital of France?"
_CHAT, _EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"
_MAX_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What one request through a model gave."""

    answer: str
    report: RunReport


def device_decisions(settings: Settings) -> tuple[tuple[str, str], ...]:
    """Device and threads that an engine would use here, each with its reason.

    Raises ModelError when what the settings ask for does not exist.
    """
    yield_when_idle()
    from executor.device import plan_device
    from executor.errors import EngineError

    try:
        plan = plan_device(engine_settings(settings), None)
    except EngineError as refused:
        raise ModelError(str(refused)) from refused
    return (
        ("device", f"{plan.device} ({plan.device_reason})"),
        ("threads", f"{plan.num_threads} ({plan.threads_reason})"),
    )


def kernel_decisions() -> tuple[tuple[str, str], ...]:
    """How compiled kernels ran in this process, and which of them did not work."""
    yield_when_idle()
    from executor.compiled.report import summary

    return (("kernels", summary()),)


def try_model(settings: Settings, model: Model) -> Trial:
    """Run a job of one line in a data directory of its own, which is then removed.

    Raises ModelError when the model cannot be loaded or the line gets no answer.
    """
    with tempfile.TemporaryDirectory(prefix="batchjobs-doctor-") as home:
        apart = settings.model_copy(update={"home": Path(home)})
        with Deployment.open(apart) as deployment:
            job_id = _submit(deployment, model, _question(model))
            report = run_jobs(
                deployment,
                job_id=job_id,
                engines=CheckpointEngines(settings),
                on_progress=lambda progress: None,
                stop=StopSignal(grace_seconds=settings.stop_grace_seconds, forced_exit=1),
            )
            return Trial(answer=_answer(deployment, job_id), report=report)


def _question(model: Model) -> dict[str, Any]:
    """The line to try the model with."""
    line = {"custom_id": "doctor", "method": "POST"}
    if is_embedder(model):
        return {**line, "url": _EMBEDDINGS, "body": {"model": model.name, "input": QUESTION}}
    body = {
        "model": model.name,
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "max_tokens": _MAX_TOKENS,
    }
    return {**line, "url": _CHAT, "body": body}


def _submit(deployment: Deployment, model: Model, line: dict[str, Any]) -> str:
    file = files.add_file(
        deployment,
        io.BytesIO(orjson.dumps(line)),
        filename="doctor.jsonl",
        purpose=intake.INPUT_PURPOSE,
    )
    with deployment.database.write() as session:
        catalogue.add(
            session,
            deployment.clock,
            name=model.name,
            source=model.source,
            revision=model.revision,
        )
        job = jobs.create(
            session,
            deployment.clock,
            input_file_id=file.id,
            endpoint=line["url"],
            completion_window="24h",
            max_window_hours=deployment.settings.max_completion_window_hours,
        )
    intake.validate(deployment, job.id)
    return job.id


def _answer(deployment: Deployment, job_id: str) -> str:
    with deployment.database.read() as session:
        job = jobs.get(session, job_id)
        if job.status != JobState.COMPLETED or job.output_file_id is None:
            raise ModelError("The model loads, but gave no answer to a simple question.")
        file = files.get_file(session, job.output_file_id)
    with files.open_file(deployment.store, file) as content:
        record = orjson.loads(content.read())
    body = record["response"]["body"]
    if "data" in body:
        return f"{len(body['data'][0]['embedding']):,} numbers"
    return str(body["choices"][0]["message"]["content"])
