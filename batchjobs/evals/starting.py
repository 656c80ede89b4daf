"""A run begun: its requests rendered, checked and submitted as jobs, and its row made."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from batchjobs.client.base import Client, ModelName, Order
from batchjobs.client.batch import Batch
from batchjobs.deployment import Deployment
from batchjobs.errors import InvalidFileError, UsageError
from batchjobs.evals import runs
from batchjobs.evals.material import gather
from batchjobs.evals.rendering import PlannedLine
from batchjobs.evals.runs import METADATA_RUN, METADATA_SUITE
from batchjobs.evals.states import Purpose, RunState
from batchjobs.evals.submission import Digests, RequestFiles, write_plan
from batchjobs.evals.suite import Suite
from batchjobs.evals.suite_file import SuiteFile, read_suite
from batchjobs.evals.tables import EvalRun
from batchjobs.evals.templates import digest
from batchjobs.ids import new_run_id
from batchjobs.store.base import ObjectWriter
from batchjobs.store.layout import eval_key

DEFAULT_WINDOW = "24h"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """Where runs are kept, and who answers their requests: the data here, or a server."""

    deployment: Deployment
    client: Client


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrder:
    """How a run is to be made. `model` takes the place of the suite's; runs of one `night` are
    judged together."""

    model: str | None = None
    window: str = DEFAULT_WINDOW
    priority: int = 0
    purpose: Purpose = Purpose.RUN
    night: str | None = None
    confirms: str | None = None


def start(
    deployment: Deployment,
    suite_path: Path,
    *,
    model: str | None = None,
    deadline: datetime | None = None,
    night: str | None = None,
) -> str:
    """Begin a run whose requests are answered here, by this deployment's workers; its id.

    `finishing.finish` takes it further, whenever it is called. `deadline` becomes the jobs' (whole
    hours, at least one).

    Raises:
        InvalidFileError: the suite or its dataset is wrong; says where.
        NotFoundError, UsageError: there is no such model, or none is named.
    """
    from batchjobs.client.embedded import EmbeddedClient

    place = Workplace(deployment=deployment, client=EmbeddedClient(deployment))
    window = DEFAULT_WINDOW if deadline is None else _window_until(deployment, deadline)
    order = RunOrder(model=model, window=window, night=night)
    return start_run(place, read_suite(suite_path), order)


def start_run(place: Workplace, file: SuiteFile, order: RunOrder) -> str:
    """The id of the run. Raises what `start` does, and what a client's `submit` raises."""
    model = choose_model(file.suite, order.model)
    known = place.client.models()
    revision = _revision(known, model)
    scorers = _scorer_digests(file.suite, model, known)
    run_id = new_run_id()
    settings, store = place.deployment.settings, place.deployment.store
    plan_key = eval_key(run_id, "plan", secrets.token_hex(4))
    files = RequestFiles(
        file.suite.request.url,
        max_lines=settings.max_requests_per_batch,
        max_bytes=settings.max_input_bytes,
    )
    with gather(file, settings) as material, files:
        with store.create(plan_key) as plan:
            digests = _render(material.lines(model, seed=seed_of(run_id)), files, plan)
        batches = submit_files(place, files, file.suite.suite, run_id, order)
    suite_key = eval_key(run_id, "suite", secrets.token_hex(4))
    store.put(suite_key, file.text.encode())
    run = EvalRun(
        id=run_id,
        suite=file.suite.suite,
        model=model,
        state=RunState.ANSWERING,
        purpose=order.purpose,
        night=order.night or run_id,
        metric=file.suite.deciding,
        metrics=list(file.suite.metrics),
        suite_path=str(file.path),
        suite_key=suite_key,
        dataset_sha256=material.sha256,
        conditions={
            "items": digests.of_items,
            "prompts": digests.of_prompts,
            "template": file.suite.template_digest(),
            "sampling": file.suite.sampling_digest(),
            "scorers": scorers,
            "model": digest([model, revision]),
        },
        jobs={"answers": [batch.id for batch in batches], "judges": {}},
        plan_key=plan_key,
        items=digests.items,
        samples=files.requests,
        prompt_tokens=0,
        completion_tokens=0,
        confirms=order.confirms,
    )
    place.deployment.database.transact(
        lambda session: runs.add(session, place.deployment.clock, run)
    )
    return run_id


def submit_files(
    place: Workplace, files: RequestFiles, suite: str, run_id: str, order: RunOrder
) -> list[Batch]:
    """A job of each file; if one is refused, those before it are cancelled."""
    batches: list[Batch] = []
    try:
        for number, stream in enumerate(files.streams(), start=1):
            asked = Order(
                filename=f"{suite}-{run_id}-{number}.jsonl",
                endpoint=files.url,
                window=order.window,
                metadata={METADATA_SUITE: suite, METADATA_RUN: run_id},
                priority=order.priority,
            )
            batches.append(place.client.submit(stream, asked))
    except BaseException:
        for batch in batches:
            place.client.cancel(batch.id)
        raise
    return batches


def choose_model(suite: Suite, asked: str | None) -> str:
    """Raises UsageError where neither the suite nor the caller names one, or the suite several."""
    if asked is not None:
        return asked
    if not suite.models:
        raise UsageError(f"The suite {suite.suite} names no model: name one with --model.")
    if len(suite.models) > 1:
        raise UsageError(f"The suite {suite.suite} names several models: name one with --model.")
    return suite.models[0]


def suite_of(deployment: Deployment, run: EvalRun) -> SuiteFile:
    """The suite as it was when the run began, its scorers' files as they are now."""
    from batchjobs.evals.suite_file import parse_suite

    with deployment.store.open(run.suite_key) as stream:
        return parse_suite(stream.read().decode(), Path(run.suite_path))


def seed_of(run_id: str) -> int:
    """The seed that a run draws, if its suite names none."""
    return int(run_id.removeprefix("run_")[:8], 16)


def _render(lines: Iterable[PlannedLine], files: RequestFiles, plan: ObjectWriter) -> Digests:
    digests = Digests()
    for line in lines:
        digests.add(line)
        files.add(line.custom_id, line.body)
        write_plan(plan, line)
    return digests


def _scorer_digests(suite: Suite, model: str, known: Sequence[ModelName]) -> dict[str, str]:
    """Of what gives each metric its scores; a judge's weights are part of it."""
    judges = {judge.metrics[0]: judge.model or model for judge in suite.judges}
    return {
        metric: digest([suite.scorer_digest(metric), _revision(known, judges[metric])])
        if metric in judges
        else suite.scorer_digest(metric)
        for metric in suite.metrics
    }


def _revision(known: Sequence[ModelName], asked: str) -> str | None:
    """Which weights stand behind the name now; None if the server does not say.

    Raises UsageError for a name that it does not know.
    """
    for model in known:
        if asked in (model.name, *model.aliases):
            return model.revision or model.name
    names = ", ".join(model.name for model in known) or "none"
    raise UsageError(f"There is no model {json.dumps(asked)}; there is: {names}.")


def _window_until(deployment: Deployment, deadline: datetime) -> str:
    """Raises InvalidFileError for a deadline that is past."""
    with deployment.database.read() as session:
        left = (deadline - deployment.clock.now(session)).total_seconds()
    if left <= 0:
        raise InvalidFileError(f"The deadline {deadline.isoformat()} is past.")
    return f"{max(1, int(left // 3600))}h"
