"""A run taken as far as its jobs allow, by whoever calls, as often as they like.

```
answering ─▶ judging (if judges are asked) ─▶ scored ─▶ finished
                                               │   ▲
                                               ▼   │ worse? the suite once more, as a run of its own
                                              confirmation
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from batchjobs.client.batch import Batch
from batchjobs.deployment import Deployment
from batchjobs.errors import InvalidFileError, NotFoundError, ObjectMissingError
from batchjobs.evals import judging, runs
from batchjobs.evals.scorers.judge import Judge
from batchjobs.evals.scoring import answer_rows, answers_beside, score_rows, score_run
from batchjobs.evals.starting import (
    RunOrder,
    Workplace,
    start_run,
    submit_files,
    suite_of,
)
from batchjobs.evals.states import ENDED, Purpose, RunState
from batchjobs.evals.statistics.verdict import Verdict
from batchjobs.evals.submission import RequestFiles
from batchjobs.evals.suite import CHAT, Suite
from batchjobs.evals.tables import EvalRun
from batchjobs.states import JobState


def finish(deployment: Deployment, run_id: str) -> EvalRun:
    """`advance` for a run whose requests are answered here. The run as it is then; ended or not.

    Raises NotFoundError for an unknown run.
    """
    from batchjobs.client.embedded import EmbeddedClient

    return advance(Workplace(deployment=deployment, client=EmbeddedClient(deployment)), run_id)


def advance(place: Workplace, run_id: str) -> EvalRun:
    """Score a run whose jobs have ended, ask its judges, judge it, or do nothing yet.

    A suite that does not fit its answers makes a failed run, with the reason; what is broken
    elsewhere (store, database, server) is raised, and another call goes on.
    """
    run = load(place.deployment, run_id)
    try:
        if run.state == RunState.ANSWERING:
            _after_answers(place, run)
        elif run.state == RunState.JUDGING:
            _after_judges(place, run)
    except (InvalidFileError, NotFoundError) as wrong:
        _fail(place, load(place.deployment, run_id), wrong.message)
    except ObjectMissingError:
        if load(place.deployment, run_id).state == run.state:
            raise
        # Another process has scored it meanwhile, and the plan is gone.
    run = load(place.deployment, run_id)
    if run.state == RunState.SCORED:
        _settle(place, run)
    return load(place.deployment, run_id)


def load(deployment: Deployment, run_id: str) -> EvalRun:
    """Raises NotFoundError."""
    with deployment.database.read() as session:
        return runs.get(session, run_id)


def open_jobs(place: Workplace, run: EvalRun) -> list[str]:
    """Jobs that have to end before the run goes on: its own, or those of the run that confirms
    it."""
    if run.state in ENDED:
        return []
    if run.state == RunState.SCORED:
        with place.deployment.database.read() as session:
            rerun = runs.confirmation_of(session, run.id)
        return [] if rerun is None else open_jobs(place, rerun)
    judged = run.jobs["judges"].values()
    ids = run.jobs["answers"] if run.state == RunState.ANSWERING else [*filter(None, judged)]
    return [job for job in ids if not place.client.batch(job).is_terminal]


def _after_answers(place: Workplace, run: EvalRun) -> None:
    answers = [place.client.batch(job) for job in run.jobs["answers"]]
    if not all(batch.is_terminal for batch in answers):
        return
    _check_ran(answers)
    suite = suite_of(place.deployment, run).suite
    if not suite.judges:
        _score(place, run, suite, answers, {})
        return
    asked = {judge.metrics[0]: _ask(place, run, judge, answers) for judge in suite.judges}
    _move(place, run, RunState.JUDGING, {"jobs": {**run.jobs, "judges": asked}})


def _after_judges(place: Workplace, run: EvalRun) -> None:
    judgements = {
        metric: None if job is None else place.client.batch(job)
        for metric, job in run.jobs["judges"].items()
    }
    if not all(batch is None or batch.is_terminal for batch in judgements.values()):
        return
    _check_ran([batch for batch in judgements.values() if batch is not None])
    answers = [place.client.batch(job) for job in run.jobs["answers"]]
    suite = suite_of(place.deployment, run).suite
    _score(place, run, suite, answers, judgements)


def _ask(place: Workplace, run: EvalRun, judge: Judge, answers: Sequence[Batch]) -> str | None:
    """The id of the job in which the judge grades the run's answers; None if there are none."""
    settings = place.deployment.settings
    with RequestFiles(
        CHAT, max_lines=settings.max_requests_per_batch, max_bytes=settings.max_input_bytes
    ) as files:
        for planned, answer in answers_beside(place, run, answers):
            if answer.missing is None:
                body = judge.body(planned["fields"], answer, run.model)
                files.add(planned["custom_id"], body)
        if files.requests == 0:
            return None
        [batch] = submit_files(place, files, run.suite, run.id, RunOrder())
        return batch.id


def _score(
    place: Workplace,
    run: EvalRun,
    suite: Suite,
    answers: Sequence[Batch],
    judgements: Mapping[str, Batch | None],
) -> None:
    scored = score_run(place, run, suite, answers, judgements)
    values: dict[str, Any] = {
        "answers_key": scored.key,
        "plan_key": None,
        "scores": dict(scored.scores),
        "prompt_tokens": scored.prompt_tokens,
        "completion_tokens": scored.completion_tokens,
    }

    def keep(session: Session) -> bool:
        moved = runs.move(
            session,
            place.deployment.clock,
            run.id,
            of=run.state,
            to=RunState.SCORED,
            values=values,
        )
        if moved:
            runs.add_marks(
                session,
                answer_rows(place, run.id, scored.key),
                score_rows(place, run.id, scored.key),
            )
            judging.add_intervals(session, runs.get(session, run.id))
        return moved

    won = place.deployment.database.transact(keep)
    place.deployment.store.delete(run.plan_key if won and run.plan_key else scored.key)


def _settle(place: Workplace, run: EvalRun) -> None:
    """Judge a scored run with those of its night, once all of them are scored or have ended."""
    if run.purpose != Purpose.RUN:
        _move(place, run, RunState.FINISHED, {})
        return
    with place.deployment.database.read() as session:
        night = runs.of_night(session, run.night)
        if any(one.state in (RunState.ANSWERING, RunState.JUDGING) for one in night):
            return
        together = [one for one in night if one.answers_key is not None]
        reruns = {one.id: runs.confirmation_of(session, one.id) for one in together}
    for rerun in reruns.values():
        if rerun is not None and rerun.state not in ENDED:
            advance(place, rerun.id)
    with place.deployment.database.read() as session:
        reruns = {one.id: runs.confirmation_of(session, one.id) for one in together}
        if any(rerun is not None and rerun.state not in ENDED for rerun in reruns.values()):
            return
        cases = [
            judging.case_of(session, one, _suite(place, one), _usable(reruns[one.id]))
            for one in together
        ]
    for one, found in zip(together, judging.judge(cases), strict=True):
        _conclude(place, one, found, reruns[one.id])


def _conclude(place: Workplace, run: EvalRun, found: Verdict, rerun: EvalRun | None) -> None:
    if run.state != RunState.SCORED:
        return
    if found.needs_rerun and rerun is None and _suite(place, run).confirm:
        _confirm(place, run)
        return
    kept = judging.wire(found)
    if found.needs_rerun and rerun is not None:
        why = f"worse, but the run that was to confirm it failed: {rerun.reason}"
        kept |= {"word": "no verdict", "why": why, "sentence": f"no verdict ({why})"}
    _move(place, run, RunState.FINISHED, {"verdict": kept, "word": str(kept["word"])})


def _confirm(place: Workplace, run: EvalRun) -> None:
    order = RunOrder(model=run.model, purpose=Purpose.CONFIRMATION, confirms=run.id)
    with place.deployment.database.alone(f"confirm-{run.id}") as is_alone:
        if not is_alone:
            return
        with place.deployment.database.read() as session:
            if runs.confirmation_of(session, run.id) is not None:
                return
        try:
            start_run(place, suite_of(place.deployment, run), order)
        except (InvalidFileError, NotFoundError) as wrong:
            _fail(place, run, f"it is worse, and cannot be run again: {wrong.message}")


def _check_ran(batches: Sequence[Batch]) -> None:
    """Raises InvalidFileError for a job whose lines were refused: a suite that cannot run."""
    for batch in batches:
        if batch.status == JobState.FAILED:
            first = next(iter(batch.problems), None)
            why = "nothing ran" if first is None else str(first["message"])
            raise InvalidFileError(f"The requests were refused ({batch.id}): {why}")


def _suite(place: Workplace, run: EvalRun) -> Suite:
    return suite_of(place.deployment, run).suite


def _usable(rerun: EvalRun | None) -> EvalRun | None:
    return None if rerun is None or rerun.answers_key is None else rerun


def _move(place: Workplace, run: EvalRun, to: RunState, values: Mapping[str, Any]) -> bool:
    return place.deployment.database.transact(
        lambda session: runs.move(
            session, place.deployment.clock, run.id, of=run.state, to=to, values=values
        )
    )


def _fail(place: Workplace, run: EvalRun, reason: str) -> None:
    if run.state not in ENDED:
        _move(place, run, RunState.FAILED, {"reason": reason})
    if run.plan_key is not None:
        place.deployment.store.delete(run.plan_key)
