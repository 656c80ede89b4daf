"""A run begun: its requests rendered and checked, its row made, and then its jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from batchjobs.client.base import ModelName
from batchjobs.deployment import Deployment
from batchjobs.errors import InvalidFileError, UsageError
from batchjobs.evals import runs
from batchjobs.evals.material import Material, gather
from batchjobs.evals.run_row import RunNames, run_row
from batchjobs.evals.scorers.judge import Judge
from batchjobs.evals.states import Purpose, RunState
from batchjobs.evals.submission import Digests, RequestFiles, write_plan
from batchjobs.evals.submitting import abandon, submit_answers, submitting
from batchjobs.evals.suite import Suite
from batchjobs.evals.suite_file import SuiteFile, read_suite
from batchjobs.evals.tables import EvalRun
from batchjobs.evals.templates import digest
from batchjobs.evals.workplace import DEFAULT_WINDOW, Workplace
from batchjobs.store.base import ObjectWriter

Begun = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOrder:
    """How a run is to be made. `model` takes the place of the suite's; runs of one `night` are
    judged together. `takes_on` has a run that a process which died has begun by the same order go
    on, instead of a new one."""

    model: str | None = None
    window: str = DEFAULT_WINDOW
    priority: int = 0
    purpose: Purpose = Purpose.RUN
    night: str | None = None
    confirms: str | None = None
    takes_on: bool = False

    @property
    def terms(self) -> dict[str, Any]:
        return {"window": self.window, "priority": self.priority}


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


def start_run(
    place: Workplace, file: SuiteFile, order: RunOrder, *, begun: Begun = lambda run_id: None
) -> str:
    """The id of the run; `begun` hears it before the first request is submitted.

    Raises what `start` does, and what a client's `submit` raises.
    """
    model = choose_model(file.suite, order.model)
    if order.takes_on and (left := _take_on_left(place, file, model, order, begun)) is not None:
        return left
    revision = _revision(place.client.models(), model)
    scorers = scorer_digests(place, file.suite, model)
    names, store = RunNames.new(), place.deployment.store
    with request_files(place, file.suite.request.url) as files, submitting(place, names.id):
        with (
            gather(file, place.deployment.settings) as material,
            store.create(names.plan_key) as plan,
        ):
            digests = render_requests(material, model, names.id, files, plan)
        store.put(names.suite_key, file.text.encode())
        run = run_row(
            names,
            file,
            material,
            digests,
            model=model,
            state=RunState.SUBMITTING,
            purpose=order.purpose,
            night=order.night or names.id,
            conditions={
                **asked_conditions(file.suite, digests),
                "scorers": scorers,
                "model": digest([model, revision]),
            },
            jobs={"answers": [], "judges": {}},
            terms=order.terms,
            samples=files.requests,
            confirms=order.confirms,
        )
        place.deployment.database.transact(
            lambda session: runs.add(session, place.deployment.clock, run)
        )
        begun(run.id)
        submit_answers(place, run, files)
    return run.id


def check_suite(place: Workplace, file: SuiteFile, model: str | None) -> None:
    """Find what would keep a run from being started, but for mistakes in later items.

    Raises InvalidFileError, UsageError.
    """
    name = choose_model(file.suite, model)
    _revision(place.client.models(), name)
    scorer_digests(place, file.suite, name)
    with gather(file, place.deployment.settings) as material:
        next(iter(material.lines(name)))


def take_on(place: Workplace, run: EvalRun) -> None:
    """Submit what is left of a run over which a process died; nothing while one is at it.

    Raises InvalidFileError if suite or dataset ask otherwise now.
    """
    file = suite_of(place.deployment, run)
    with (
        request_files(place, file.suite.request.url) as files,
        submitting(place, run.id) as is_alone,
    ):
        if not is_alone or not _is_unsubmitted(place, run):
            return
        with gather(file, place.deployment.settings) as material:
            digests = render_requests(material, run.model, run.id, files)
        if not _asks_the_same(run, asked_conditions(file.suite, digests)):
            raise InvalidFileError(
                "It was interrupted before all its requests were submitted, and its dataset or"
                " examples are others now: start it anew."
            )
        submit_answers(place, run, files, is_taken_on=True)


def render_requests(
    material: Material,
    model: str,
    run_id: str,
    files: RequestFiles | None = None,
    plan: ObjectWriter | None = None,
) -> Digests:
    """Render the requests of a run, to be submitted (`files`) and scored by (`plan`)."""
    digests = Digests()
    for line in material.lines(model, seed=seed_of(run_id)):
        digests.add(line)
        if files is not None:
            files.add(line.custom_id, line.body)
        if plan is not None:
            write_plan(plan, line)
    return digests


def asked_conditions(suite: Suite, digests: Digests) -> dict[str, str]:
    """What a run has in common with others that ask the same."""
    return {
        "items": digests.of_items,
        "prompts": digests.of_prompts,
        "template": suite.template_digest(),
        "sampling": suite.sampling_digest(),
    }


def request_files(place: Workplace, url: str) -> RequestFiles:
    """Files as large as a job may be."""
    settings = place.deployment.settings
    return RequestFiles(
        url, max_lines=settings.max_requests_per_batch, max_bytes=settings.max_input_bytes
    )


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


def _take_on_left(
    place: Workplace, file: SuiteFile, model: str, order: RunOrder, begun: Begun
) -> str | None:
    """A run of the same suite, begun by hand and left before it was wholly submitted. If the suite
    asks otherwise now, it is ended instead, its jobs cancelled."""
    with place.deployment.database.read() as session:
        left = runs.unsubmitted(session, file.suite.suite, model, order.purpose)
    for run in left:
        with submitting(place, run.id) as is_alone:
            if not is_alone or not _is_unsubmitted(place, run):
                continue
            with gather(file, place.deployment.settings) as material:
                asked = asked_conditions(file.suite, render_requests(material, model, run.id))
            if file.text != suite_of(place.deployment, run).text or not _asks_the_same(run, asked):
                abandon(place, run, "interrupted, and begun anew by another suite of the name")
                continue
            night = order.night or run.id
            place.deployment.database.transact(partial(runs.set_night, run_id=run.id, night=night))
        begun(run.id)
        take_on(place, run)
        return run.id
    return None


def _is_unsubmitted(place: Workplace, run: EvalRun) -> bool:
    with place.deployment.database.read() as session:
        return runs.get(session, run.id).state == RunState.SUBMITTING


def _asks_the_same(run: EvalRun, asked: Mapping[str, str]) -> bool:
    return all(run.conditions[name] == value for name, value in asked.items())


def scorer_digests(place: Workplace, suite: Suite, model: str) -> dict[str, str]:
    """Of what gives each metric its scores; a judge's weights are part of it."""
    judges = {judge.metrics[0]: judge for judge in suite.judges}
    return {
        metric: digest(
            [suite.scorer_digest(metric), revision_of_judge(place, judges[metric], model)]
        )
        if metric in judges
        else suite.scorer_digest(metric)
        for metric in suite.metrics
    }


def revision_of_judge(place: Workplace, judge: Judge, model: str) -> str | None:
    """Raises UsageError if there is no such model."""
    return _revision(place.client.models(), judge.model or model)


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
