"""Results of a job a page at a time, with a search, while it runs and after.

What is read lies in objects of JSON Lines: of a job that has ended, a result file; of one that
runs, the parts that count so far, in the order they were committed. A page begins at a byte of one
of them and is found by a ranged read; it ends after so many results, or after so many bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import orjson

from batchjobs.answer_text import answer_text
from batchjobs.deployment import Deployment
from batchjobs.errors import NotFoundError
from batchjobs.files import find_file
from batchjobs.jsonl import read_lines
from batchjobs.models import Job
from batchjobs.queue import claims
from batchjobs.states import TERMINAL, Outcome
from batchjobs.store.base import ObjectStore

PAGE_BYTES = 8 << 20
"""How much is read for one page at most: a search goes on at the next."""
LONGEST_LINE_BYTES = 4 << 20
"""Of a longer result, only that it is there is told."""
MAX_PARTS = 200
"""Of a running job, so many parts are opened for one page at most."""
MAX_IDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Byte `offset` of object number `source`: of a running job, the id of a part."""

    source: int = 0
    offset: int = 0

    @classmethod
    def read(cls, text: str) -> Self:
        """What `str` gave; the beginning if it is something else."""
        source, _, offset = text.partition(".")
        if all(word.isascii() and word.isdigit() and len(word) < 19 for word in (source, offset)):
            return cls(source=int(source), offset=int(offset))
        return cls()

    def __str__(self) -> str:
        return f"{self.source}.{self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A line of a result file. `code` is what went wrong, None if nothing did; `status` the
    HTTP-like code, None of a request that was never run."""

    custom_id: str
    status: int | None
    code: str | None
    text: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None

    @classmethod
    def of(cls, record: dict[str, Any]) -> Self:
        custom_id = str(record.get("custom_id"))
        if record.get("error") is not None:
            error = record["error"]
            return cls(
                custom_id=custom_id,
                status=None,
                code=str(error["code"]),
                text=str(error["message"]),
            )
        status, body = record["response"]["status_code"], record["response"]["body"]
        if isinstance(body, dict) and isinstance(error := body.get("error"), dict):
            code = error.get("code") or error.get("type") or status
            text = str(error.get("message", ""))
            return cls(custom_id=custom_id, status=status, code=str(code), text=text)
        return cls(
            custom_id=custom_id, status=status, code=None, text=answer_text(body), **_usage(body)
        )


_TOO_LONG = Shown(
    custom_id="(too long to show)",
    status=None,
    code="too_long",
    text=f"This result has more than {LONGEST_LINE_BYTES >> 20} MB; it is in the file.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Lines of one outcome, with the words in their id or text; with a `code`, of that error."""

    failed: bool
    words: str = ""
    code: str | None = None

    def takes(self, shown: Shown) -> bool:
        if self.code not in (None, shown.code):
            return False
        words = self.words.casefold()
        return words in shown.text.casefold() or words in shown.custom_id.casefold()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsPage:
    """`following` is where the next page begins, None behind the last. `looked_at` lines were
    read for it."""

    results: tuple[Shown, ...]
    following: Cursor | None
    looked_at: int


NOTHING = ResultsPage(results=(), following=None, looked_at=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Failed lines of one error code: how many, one of the messages, and some of the ids."""

    code: str
    count: int
    message: str
    custom_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """The most frequent first. Only the first `looked_at` lines are counted if not `is_whole`."""

    groups: tuple[Group, ...]
    looked_at: int
    is_whole: bool


def page(
    deployment: Deployment, job: Job, query: Query, *, limit: int, start: Cursor | None = None
) -> ResultsPage:
    """At most `limit` results from `start`, the file's beginning without.

    Raises:
        NotFoundError: the result file has been deleted.
        ObjectMissingError: the job has ended in the meantime, and its parts are gone.
    """
    found: list[Shown] = []
    looked_at = 0
    walk = _Walk(deployment.store, _sources(deployment, job, query, start or Cursor()))
    for shown, behind in walk.results():
        looked_at += 1
        if query.takes(shown):
            found.append(shown)
            if len(found) == limit:
                return ResultsPage(
                    results=tuple(found), following=walk.onward(behind), looked_at=looked_at
                )
    return ResultsPage(results=tuple(found), following=walk.rest, looked_at=looked_at)


def reasons(deployment: Deployment, job: Job) -> Reasons:
    """Why lines failed. Raises as `page` does."""
    times: Counter[str] = Counter()
    messages: dict[str, str] = {}
    ids: dict[str, list[str]] = {}
    looked_at = 0
    walk = _Walk(deployment.store, _sources(deployment, job, Query(failed=True), Cursor()))
    for shown, _ in walk.results():
        looked_at += 1
        code = str(shown.code)
        times[code] += 1
        messages.setdefault(code, shown.text)
        if len(some := ids.setdefault(code, [])) < MAX_IDS:
            some.append(shown.custom_id)
    groups = [
        Group(code=code, count=count, message=messages[code], custom_ids=tuple(ids[code]))
        for code, count in times.most_common()
    ]
    return Reasons(groups=tuple(groups), looked_at=looked_at, is_whole=walk.rest is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """An object of results from a byte on. The lines of a part say themselves which outcome they
    are of."""

    number: int
    key: str
    start: int
    is_part: bool
    failed: bool


def _sources(deployment: Deployment, job: Job, query: Query, start: Cursor) -> Sequence[_Source]:
    if job.status in TERMINAL:
        return _result_file(deployment, job, query, start)
    with deployment.database.read() as session:
        parts = claims.parts_from(
            session, job.id, first=start.source, limit=MAX_PARTS, failed=query.failed
        )
    return [
        _Source(
            number=part.id,
            key=part.key,
            start=start.offset if part.id == start.source else 0,
            is_part=True,
            failed=query.failed,
        )
        for part in parts
    ]


def _result_file(
    deployment: Deployment, job: Job, query: Query, start: Cursor
) -> Sequence[_Source]:
    file_id = job.error_file_id if query.failed else job.output_file_id
    if file_id is None:
        return []
    with deployment.database.read() as session:
        file = find_file(session, file_id)
    if file is None:
        raise NotFoundError("This result file has been deleted.")
    if start.offset >= file.bytes:
        return []
    return [_Source(number=0, key=file.key, start=start.offset, is_part=False, failed=query.failed)]


@dataclass(slots=True)
class _Walk:
    """Through sources, as far as `PAGE_BYTES` go."""

    store: ObjectStore
    sources: Sequence[_Source]
    rest: Cursor | None = field(default=None, init=False)
    """Where it would go on; None at the end."""
    _left: int = field(default_factory=lambda: PAGE_BYTES, init=False)

    def results(self) -> Iterator[tuple[Shown, Cursor]]:
        """Each result, and where the next one begins."""
        for source in self.sources:
            if self._left <= 0:
                self.rest = Cursor(source=source.number, offset=source.start)
                return
            yield from self._of(source)
            if self.rest is not None:
                return
        if len(self.sources) == MAX_PARTS:
            self.rest = Cursor(source=self.sources[-1].number + 1)

    def onward(self, behind: Cursor) -> Cursor | None:
        """`behind`, or None if nothing follows it."""
        last = self.sources[-1]
        if len(self.sources) == MAX_PARTS or behind.source != last.number:
            return behind
        return behind if behind.offset < self.store.size(last.key) else None

    def _of(self, source: _Source) -> Iterator[tuple[Shown, Cursor]]:
        size = self.store.size(source.key)
        before = max(0, source.start - 1)
        with self.store.open(source.key, start=before) as stream:
            # Anybody can write a cursor: what does not begin a line is the end of one.
            start = before + len(stream.readline(LONGEST_LINE_BYTES)) if source.start else 0
            for line in read_lines(stream, LONGEST_LINE_BYTES, start=start):
                self._left -= line.end - line.start
                behind = Cursor(source=source.number, offset=line.end)
                record = None if line.data is None else orjson.loads(line.data)
                if record is None:
                    yield _TOO_LONG, behind
                elif not source.is_part:
                    yield Shown.of(record), behind
                elif _is_failed(record) == source.failed:
                    yield Shown.of(record["record"]), behind
                if self._left <= 0 and line.end < size:
                    self.rest = behind
                    return


def _is_failed(entry: dict[str, Any]) -> bool:
    return bool(entry["outcome"] != Outcome.COMPLETED)


def _usage(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        return {}
    usage = body.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else {}
    return {
        "prompt_tokens": counts.get("prompt_tokens", counts.get("input_tokens")),
        "completion_tokens": counts.get("completion_tokens", counts.get("output_tokens")),
        "finish_reason": first.get("finish_reason") or body.get("stop_reason"),
    }
