"""Reads a job's input file once: every line is good and the job starts, or the job fails with
every bad line listed. Memory does not grow with the file."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy.orm import Session

from batchjobs import catalogue
from batchjobs.clock import Clock
from batchjobs.custom_ids import CustomIds
from batchjobs.cutter import PlannedShard
from batchjobs.deployment import Deployment
from batchjobs.endpoints import find_endpoint
from batchjobs.endpoints.base import Body, Endpoint, LineProblem, Task
from batchjobs.endpoints.embedding_input import count_inputs
from batchjobs.endpoints.fields import as_problem
from batchjobs.envelope import read_body, read_custom_id
from batchjobs.errors import InvalidRequestError, ObjectMissingError
from batchjobs.files import find_file
from batchjobs.jsonl import RawLine, parse_object, read_lines
from batchjobs.models import File, Job
from batchjobs.moved_lines import MovedLines
from batchjobs.planner import PlannedLine, Planner, Window, digests
from batchjobs.queue import jobs
from batchjobs.settings import Settings
from batchjobs.states import JobState

INPUT_PURPOSE = "batch"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundProblem:
    """What is wrong with `line` (from 1), or without it with the file as a whole."""

    line: int | None
    problem: LineProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A good file, cut. `models` maps names on the lines to names in the catalogue."""

    shards: list[PlannedShard]
    models: dict[str, str]
    total_lines: int
    total_bytes: int
    plan_key: str | None
    """The object of the lines that were brought together, if any were."""


def validate(deployment: Deployment, job_id: str) -> None:
    """Start the job, or fail it with what is wrong; nothing if it is not validating any more.

    Raises:
        NotFoundError: no such job.
        StoreError: the input cannot be read now; the job stays as it is.
    """
    with deployment.database.read() as session:
        job = jobs.get(session, job_id)
        if job.status != JobState.VALIDATING:
            return
        file = find_file(session, job.input_file_id, tenant=job.tenant)
        names = catalogue.names(session)
    found = examine(deployment, job, file, names)
    concluded = deployment.database.transact(
        lambda session: _conclude(session, deployment.clock, job, found)
    )
    if isinstance(concluded, Plan):
        models = set(concluded.models.values())
        logger.info(
            "Job started: %d lines in %d shards for %s",
            concluded.total_lines,
            len(concluded.shards),
            ", ".join(sorted(models)),
            extra={"job_id": job.id},
        )
        deployment.bell.ring(models)
    elif concluded is not None:
        ids = {"job_id": job.id}
        logger.info("Job failed validation with %d problems", len(concluded), extra=ids)
    if isinstance(found, Plan) and concluded is not found and found.plan_key is not None:
        deployment.store.delete(found.plan_key)  # another process was first, with its own


def _conclude(
    session: Session, clock: Clock, job: Job, found: Plan | list[FoundProblem]
) -> Plan | list[FoundProblem] | None:
    """Start or fail the job, and by what; None if it is not validating any more."""
    # The lock is against a deletion that has not yet seen this job.
    file = find_file(session, job.input_file_id, tenant=job.tenant, for_update=True)
    if isinstance(found, Plan) and file is None:
        found = [FoundProblem(line=None, problem=as_problem(_missing_file(job)))]
    if isinstance(found, list):
        failed = jobs.fail_validation(session, clock, job.id, found)
        return found if failed else None
    started = jobs.start(
        session,
        clock,
        job.id,
        shards=found.shards,
        models=found.models,
        total_lines=found.total_lines,
        total_bytes=found.total_bytes,
        plan_key=found.plan_key,
    )
    return found if started else None


def examine(
    deployment: Deployment, job: Job, file: File | None, names: dict[str, str]
) -> Plan | list[FoundProblem]:
    """The plan for a good file, or what is wrong with a bad one, in line order."""
    settings = deployment.settings
    try:
        endpoint = find_endpoint(job.endpoint)
        if file is None:
            raise _missing_file(job)
        _check_file(file, settings)
        moved = MovedLines(deployment.store, file.key, job.id)
        with deployment.store.open(file.key) as stream, CustomIds() as ids:
            reader = _FileReader(job.model_override, endpoint, settings, names, ids, moved)
            with moved:
                found = reader.read(read_lines(stream, settings.max_line_bytes))
                if isinstance(found, list):
                    moved.discard()
            return found
    except ObjectMissingError:
        return [FoundProblem(line=None, problem=as_problem(_missing_file(job)))]
    except InvalidRequestError as wrong:
        return [FoundProblem(line=None, problem=as_problem(wrong))]


LOOKED_OVER_LINES = 10_000
"""They take about two seconds."""


def look_over(
    deployment: Deployment,
    file: File,
    names: dict[str, str],
    *,
    endpoint: str,
    model_override: str | None,
) -> list[FoundProblem]:
    """What is wrong with a file that is to be run later, as far as its first lines tell.

    Raises:
        InvalidRequestError: there is no such endpoint, or the file is of another kind or too large.
        StoreError: it cannot be read now.
    """
    settings = deployment.settings
    _check_file(file, settings)
    with deployment.store.open(file.key) as stream, CustomIds() as ids:
        reader = _FileReader(model_override, find_endpoint(endpoint), settings, names, ids)
        lines = read_lines(stream, settings.max_line_bytes)
        found = reader.read(itertools.islice(lines, LOOKED_OVER_LINES))
        return found if isinstance(found, list) else []


class _FileReader:
    """One pass over the lines of a job's input, which are not moved if they are only looked at."""

    def __init__(
        self,
        model_override: str | None,
        endpoint: Endpoint,
        settings: Settings,
        names: dict[str, str],
        ids: CustomIds,
        moved: MovedLines | None = None,
    ) -> None:
        self._model_override = model_override
        self._endpoint = endpoint
        self._settings = settings
        self._names = names
        self._ids = ids
        self._moved = moved
        self._planner = Planner(
            max_lines=settings.shard_max_lines, max_bytes=settings.shard_max_bytes
        )
        self._models: dict[str, str] = {}
        self._problems: dict[int, LineProblem] = {}
        self._total_lines = 0
        self._total_bytes = 0
        self._total_inputs = 0

    def read(self, lines: Iterator[RawLine]) -> Plan | list[FoundProblem]:
        for line in itertools.islice(lines, self._settings.max_requests_per_batch):
            self._total_lines += 1
            self._total_bytes += line.end - line.start
            if problem := self._take(line):
                self._report(line.number, problem)
        found = self._problems_of_lines()
        if next(lines, None) is not None:
            found.append(_too_many(self._settings, "requests"))
        if self._total_inputs > self._settings.max_requests_per_batch:
            found.append(_too_many(self._settings, "inputs to embed"))
        if not self._total_lines:
            found.append(_EMPTY_FILE)
        if found:
            return found
        last, shards = self._planner.finish()
        self._move(last)
        return Plan(
            shards=shards,
            models=self._models,
            total_lines=self._total_lines,
            total_bytes=self._total_bytes,
            plan_key=None if self._moved is None else self._moved.key,
        )

    def _take(self, line: RawLine) -> LineProblem | None:
        """Plan the line, or say what is wrong with it first."""
        if line.data is None:
            longest = self._settings.max_line_bytes
            return _problem("line_too_long", f"This line is longer than {longest:,} bytes.")
        try:
            request = parse_object(line.data)
            custom_id = read_custom_id(request, self._settings.max_custom_id_chars)
            self._ids.add(custom_id, line.number)
            body = read_body(request, url=self._endpoint.url, model_override=self._model_override)
        except InvalidRequestError as wrong:
            return as_problem(wrong)
        return self._endpoint.check(body) or self._assign(line, body)

    def _assign(self, line: RawLine, body: Body) -> LineProblem | None:
        name: str = body["model"]
        model = self._names.get(name)
        if model is None:
            message = f"The provided model '{name}' is not supported by the Batch API."
            return _problem("model_not_found", message, "body.model")
        first = next(iter(self._models), name)
        if not self._settings.allow_mixed_models and self._names[first] != model:
            message = (
                f"The model '{name}' of this request is not the model '{first}' of the first:"
                " all requests of a batch must use the same model."
            )
            return _problem("mismatched_model", message, "body.model")
        self._models[name] = model
        inputs = count_inputs(body) if self._endpoint.task is Task.EMBED else 1
        self._total_inputs += inputs
        self._move(
            self._planner.add(
                PlannedLine(
                    model=model,
                    line=line.number,
                    start=line.start,
                    end=line.end,
                    size=len(line.data or b""),
                    opening=digests(self._endpoint.opening(body)),
                    answers=inputs,
                )
            )
        )
        return None

    def _move(self, window: Window | None) -> None:
        if self._moved is None or window is None:
            return
        if not self._problems:  # of a bad file nothing will run
            self._moved.write(window)

    def _report(self, line: int, problem: LineProblem) -> None:
        # One more than is listed, to know that there are more.
        if len(self._problems) <= self._settings.max_listed_errors:
            self._problems[line] = problem

    def _problems_of_lines(self) -> list[FoundProblem]:
        """One a line, also for lines that repeat a custom id and are good otherwise."""
        most = self._settings.max_listed_errors
        for line, first in itertools.islice(self._ids.repeated(), most + 1):
            self._problems.setdefault(line, _repeated_custom_id(first))
        listed = sorted(self._problems)[:most]
        found = [FoundProblem(line=line, problem=self._problems[line]) for line in listed]
        if len(self._problems) > most:
            found.append(_more_bad_lines(most))
        return found


def _check_file(file: File, settings: Settings) -> None:
    if file.purpose != INPUT_PURPOSE:
        raise InvalidRequestError(
            f"The file {file.id} has the purpose '{file.purpose}', not '{INPUT_PURPOSE}'.",
            param="file_id",
            code="invalid_request",
        )
    if file.bytes > settings.max_input_bytes:
        raise InvalidRequestError(
            f"The input file has {file.bytes:,} bytes, and a batch at most"
            f" {settings.max_input_bytes:,} (BATCHJOBS_MAX_INPUT_BYTES). Split it.",
            code="file_too_large",
        )


def _missing_file(job: Job) -> InvalidRequestError:
    message = (
        f"Cannot find file {job.input_file_id}, or this deployment does not have access to it."
    )
    return InvalidRequestError(message, param="file_id", code="invalid_request")


def _too_many(settings: Settings, what: str) -> FoundProblem:
    message = (
        f"The input file has more than {settings.max_requests_per_batch:,} {what}, the most a"
        " batch may have (BATCHJOBS_MAX_REQUESTS_PER_BATCH). Split it."
    )
    return FoundProblem(line=None, problem=_problem("too_many_tasks", message))


def _more_bad_lines(listed: int) -> FoundProblem:
    message = f"There are more bad lines than the {listed:,} listed (BATCHJOBS_MAX_LISTED_ERRORS)."
    return FoundProblem(line=None, problem=_problem("too_many_errors", message))


def _repeated_custom_id(first: int) -> LineProblem:
    message = (
        "The custom ID for this request is a duplicate of the custom ID in another request"
        f" (line {first})."
    )
    return _problem("duplicate_custom_id", message, "custom_id")


def _problem(code: str, message: str, param: str | None = None) -> LineProblem:
    return LineProblem(code=code, message=message, param=param)


_EMPTY_FILE = FoundProblem(
    line=None,
    problem=_problem(
        "empty_file",
        "The input file is empty. Please ensure that the batch contains at least one request.",
    ),
)
