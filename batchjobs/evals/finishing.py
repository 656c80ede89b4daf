"""A run taken as far as its jobs allow, by whoever calls, as often as they like.

```
submitting ─▶ answering ─▶ judging (if judges are asked) ─▶ scored ─▶ finished
                                                             │   ▲
                                                             ▼   │ worse? the suite once more, as
                                                         confirmation   a run of its own
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from batchjobs.client.batch import Batch
from batchjobs.deployment import Deployment
from batchjobs.errors import (
    InvalidFileError,
    InvalidRequestError,
    NotFoundError,
    ObjectMissingError,
)
from batchjobs.evals import judging, runs
from batchjobs.evals.scorers.judge import Judge
from batchjobs.evals.scoring import answer_rows, answers_beside, score_rows, score_run
from batchjobs.evals.starting import RunOrder, request_files, start_run, suite_of, take_on
from batchjobs.evals.states import ENDED, UNSCORED, Purpose, RunState
from batchjobs.evals.statistics.verdict import Verdict
from batchjobs.evals.submitting import abandon, submit_judge, submitting
from batchjobs.evals.suite import CHAT, Suite
from batchjobs.evals.tables import EvalRun
from batchjobs.evals.workplace import Workplace
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
        if run.state == RunState.SUBMITTING:
            _submit_rest(place, run)
        elif run.state == RunState.ANSWERING:
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
    if run.state in ENDED or run.state == RunState.SUBMITTING:
        return []
    if run.state == RunState.SCORED:
        with place.deployment.database.read() as session:
            rerun = runs.confirmation_of(session, run.id)
        return [] if rerun is None else open_jobs(place, rerun)
    is_answering = run.state == RunState.ANSWERING
    ids = run.jobs["answers"] if is_answering else runs.jobs_of(run)
    return [job for job in ids if not place.client.batch(job).is_terminal]


def _submit_rest(place: Workplace, run: EvalRun) -> None:
    """Of a run over which a process died."""
    try:
        take_on(place, run)
    except InvalidRequestError as wrong:
        abandon(place, run, wrong.message)


def _after_answers(place: Workplace, run: EvalRun) -> None:
    answers = [place.client.batch(job) for job in run.jobs["answers"]]
    if not all(batch.is_terminal for batch in answers):
        return
    _check_ran(answers)
    suite = suite_of(place.deployment, run).suite
    kept = run.jobs.get("kept", ())
    judges = [judge for judge in suite.judges if judge.metrics[0] not in kept]
    if not judges:
        _score(place, run, suite, {})
        return
    with submitting(place, run.id) as is_alone:
        if is_alone and load(place.deployment, run.id).state == RunState.ANSWERING:
            asked = {judge.metrics[0]: _ask(place, run, judge) for judge in judges}
            _move(place, run, RunState.JUDGING, {"jobs": {**run.jobs, "judges": asked}})


def _after_judges(place: Workplace, run: EvalRun) -> None:
    judgements = {
        metric: [place.client.batch(job) for job in ids]
        for metric, ids in runs.judges_of(run).items()
    }
    every = [batch for batches in judgements.values() for batch in batches]
    if all(batch.is_terminal for batch in every):
        _check_ran(every)
        _score(place, run, suite_of(place.deployment, run).suite, judgements)


def _ask(place: Workplace, run: EvalRun, judge: Judge) -> list[str]:
    """The ids of the jobs in which the judge grades the run's answers; none if there are none."""
    with request_files(place, CHAT) as files:
        for planned, answer, _ in answers_beside(place, run):
            if answer.missing is None:
                body = judge.body(planned["fields"], answer, run.model)
                files.add(planned["custom_id"], body)
        return submit_judge(place, run, judge.metrics[0], files)


def _score(
    place: Workplace, run: EvalRun, suite: Suite, judgements: Mapping[str, Sequence[Batch]]
) -> None:
    scored = score_run(place, run, suite, judgements)
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
        if any(one.state in UNSCORED for one in night):
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
    kept = judging.wire(found)
    if found.needs_rerun and (rerun is not None or _suite(place, run).confirm):
        if rerun is not None:
            why = f"worse, but the run that was to confirm it failed: {rerun.reason}"
        elif run.rescores is not None:
            why = "worse by these answers, which were scored again; whether a second run says so"
            why += " too, only a new run of the suite can tell"
        else:
            _confirm(place, run)
            return
        kept |= {"word": "no verdict", "why": why, "sentence": f"no verdict ({why})"}
    _move(place, run, RunState.FINISHED, {"verdict": kept, "word": str(kept["word"])})


def _confirm(place: Workplace, run: EvalRun) -> None:
    order = RunOrder(
        model=run.model, purpose=Purpose.CONFIRMATION, confirms=run.id, **(run.terms or {})
    )
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
