"""A run's answers scored again, by the suite as it is now: a run of its own, and no model is asked.

| what has changed since | then |
|---|---|
| a scorer, or what an item's right answer is | the new run scores the answers that were kept |
| what is asked: prompts, template, sampling | refused: these answers are to other questions |
| how a judge's words are read | they are read again |
| what a judge is asked, or its weights | the judge is asked again, in a job of its own |

Both runs stay. They differ in `scorers` or `items`, so neither is ever measured against the other's
baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from batchjobs.errors import ConflictError
from batchjobs.evals import pins, runs
from batchjobs.evals.material import gather
from batchjobs.evals.run_row import RunNames, run_row
from batchjobs.evals.starting import (
    asked_conditions,
    render_requests,
    revision_of_judge,
    scorer_digests,
    suite_of,
)
from batchjobs.evals.states import RunState
from batchjobs.evals.suite import Suite
from batchjobs.evals.suite_file import SuiteFile, read_suite
from batchjobs.evals.tables import EvalRun
from batchjobs.evals.templates import digest
from batchjobs.evals.workplace import Workplace

_QUESTIONS = ("prompts", "template", "sampling")


class Rescoring:
    """Of several runs, by one command: those that were judged together are again. `suite` takes the
    place of the files that the runs name."""

    def __init__(self, place: Workplace, suite: Path | None = None) -> None:
        self._place = place
        self._suite = suite
        self._nights: dict[str, str] = {}

    def begin(self, run_id: str) -> str:
        """The id of the new run, or of one that has scored these answers so before; its
        confirmation, if it has one, is scored again with it.

        Raises:
            NotFoundError: there is no such run.
            ConflictError: it has no scores, its suite asks otherwise now, or scores as it did.
            InvalidFileError: the suite or its dataset is wrong.
        """
        with self._place.deployment.database.read() as session:
            run = runs.get(session, run_id)
            runs.check_scored(run)
            first = runs.get(session, run.rescores or run.id)
            confirmation = runs.confirmation_of(session, first.id)
        file = read_suite(self._suite or Path(first.suite_path))
        begun = self._begin(file, first, confirms=first.confirms)
        if confirmation is not None and confirmation.answers_key is not None:
            self._begin(file, confirmation, confirms=begun)
        return begun

    def _begin(self, file: SuiteFile, first: EvalRun, *, confirms: str | None) -> str:
        place = self._place
        if file.suite.suite != first.suite:
            raise ConflictError(
                f"The run {first.id} is of the suite {first.suite}, not of {file.suite.suite}."
            )
        names, deployment = RunNames.new(), place.deployment
        with (
            gather(file, deployment.settings) as material,
            deployment.store.create(names.plan_key) as plan,
        ):
            digests = render_requests(material, first.model, first.id, plan=plan)
            asked = asked_conditions(file.suite, digests)
            _check_questions(first, asked)
        scorers = scorer_digests(place, file.suite, first.model)
        run = run_row(
            names,
            file,
            material,
            digests,
            model=first.model,
            state=RunState.ANSWERING,
            purpose=first.purpose,
            night=self._nights.setdefault(first.night, names.id),
            conditions={**first.conditions, **asked, "scorers": scorers},
            jobs={"answers": [], "judges": {}, "kept": self._kept_judges(first, file.suite, asked)},
            terms=first.terms,
            samples=first.samples,
            confirms=confirms,
            rescores=first.id,
            answered_at=first.created_at,
        )
        return self._keep(file, first, run)

    def _keep(self, file: SuiteFile, first: EvalRun, run: EvalRun) -> str:
        place = self._place
        assert run.plan_key is not None
        with place.deployment.database.read() as session:
            again = runs.rescored(session, first.id)
        twin = next((one for one in [first, *again] if _scores_alike(one, run)), None)
        if twin is None:
            place.deployment.store.put(run.suite_key, file.text.encode())
            place.deployment.database.transact(
                lambda session: runs.add(session, place.deployment.clock, run)
            )
            return run.id
        place.deployment.store.delete(run.plan_key)
        if twin.id == first.id:
            raise ConflictError(
                f"The run {first.id} was scored by the same scorers, of the same items: scoring it"
                " again would change nothing. If it is its baseline that was scored otherwise, name"
                " the pinned runs."
            )
        return twin.id

    def _kept_judges(self, first: EvalRun, suite: Suite, asked: dict[str, str]) -> list[str]:
        """The judges that would be asked what they were asked before."""
        if asked["items"] != first.conditions["items"]:
            return []
        before = suite_of(self._place.deployment, first).suite
        old = {judge.metrics[0]: judge for judge in before.judges}
        kept = []
        for judge in suite.judges:
            [metric] = judge.metrics
            if metric not in old or old[metric].asking() != judge.asking():
                continue
            revision = revision_of_judge(self._place, judge, first.model)
            as_before = digest([before.scorer_digest(metric), revision])
            if as_before == first.conditions["scorers"].get(metric):
                kept.append(metric)
        return kept


def pinned_beside(place: Workplace, run_ids: Sequence[str]) -> list[list[str]]:
    """The baselines of the suites and models of these runs, each once."""
    found: dict[tuple[str, str], list[str]] = {}
    with place.deployment.database.read() as session:
        for run_id in run_ids:
            run = runs.get(session, run_id)
            every = pins.pinned(session, run.suite, run.model)
            found[run.suite, run.model] = [one.id for one in every]
    return [ids for ids in found.values() if ids]


def _check_questions(first: EvalRun, asked: dict[str, str]) -> None:
    other = [name for name in _QUESTIONS if asked[name] != first.conditions[name]]
    if other:
        raise ConflictError(
            f"The suite asks otherwise now than when {first.id} was run ({', '.join(other)}"
            " differ): these answers are to other questions. Run it anew."
        )


def _scores_alike(one: EvalRun, other: EvalRun) -> bool:
    """Also of one that is not scored yet."""
    same = ("items", "scorers")
    return (
        one.state != RunState.FAILED
        and (one.metric, one.metrics) == (other.metric, other.metrics)
        and all(one.conditions[name] == other.conditions[name] for name in same)
    )
