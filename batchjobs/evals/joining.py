"""Lines of a plan with their answers beside them, in memory that does not grow with the run.

The plan, the output file and the error file of a job are in one order, that of the request lines:
each result line belongs to the next line of the plan that has its `custom_id`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from batchjobs.client.base import Client
from batchjobs.client.batch import Batch
from batchjobs.errors import IntegrityError
from batchjobs.evals.answers import Answer, read_answer

NO_RESULT = Answer(error="no_result: the job ended without a result for this line")


class Results:
    """The result lines of jobs that follow one another in a plan."""

    def __init__(self, client: Client, batches: Iterable[Batch]) -> None:
        self._client = client
        self._batches = list(batches)

    def beside(self, custom_ids: Iterable[str]) -> Iterator[Answer | None]:
        """The answer of each, in order; None for a line that no job was asked about.

        Raises IntegrityError if results are left over.
        """
        outputs = _Cursor(self._lines("output_file_id"))
        errors = _Cursor(self._lines("error_file_id"))
        for custom_id in custom_ids:
            record = outputs.take(custom_id) or errors.take(custom_id)
            yield None if record is None else read_answer(record)
        for cursor in (outputs, errors):
            if cursor.next is not None:
                left = cursor.next["custom_id"]
                raise IntegrityError(f"A result for {left!r} belongs to no line of the run.")

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        for batch in self._batches:
            file_id = getattr(batch, name)
            if file_id is None:
                continue
            with self._client.open(file_id) as stream:
                for line in stream:
                    yield orjson.loads(line)


class _Cursor:
    """A stream that is looked at one line ahead."""

    def __init__(self, records: Iterator[dict[str, Any]]) -> None:
        self._records = records
        self.next: Mapping[str, Any] | None = next(records, None)

    def take(self, custom_id: str) -> Mapping[str, Any] | None:
        """The next record, if it is this line's."""
        record = self.next
        if record is None or record["custom_id"] != custom_id:
            return None
        self.next = next(self._records, None)
        return record
