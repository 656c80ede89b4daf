"""A suite with what it is made of: its dataset checked, its examples read, its items at hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO

from batchjobs.errors import InvalidFileError
from batchjobs.evals.datasets import kind_of, open_dataset, read_rows, sha256_of
from batchjobs.evals.items import Item, ItemFields, number_items
from batchjobs.evals.rendering import PlannedLine, Renderer
from batchjobs.evals.suite import Dataset
from batchjobs.evals.suite_file import SuiteFile
from batchjobs.evals.templates import TemplateError
from batchjobs.settings import Settings

DEFAULT_EXAMPLES = 5
"""How many rows of `fewshot.source` are shown, if the suite does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """`sha256` is of the dataset as it was read."""

    file: SuiteFile
    sha256: str
    examples: Sequence[Mapping[str, Any]]
    _stream: BinaryIO

    def items(self) -> Iterator[Item]:
        """In the dataset's order, from its start. Raises InvalidFileError."""
        dataset = self.file.suite.dataset
        self._stream.seek(0)
        rows = read_rows(self._stream, _kind(dataset.source, dataset.format), dataset.source)
        names = ItemFields(id=dataset.id, group=dataset.group, tags=dataset.tags)
        items = islice(number_items(rows, names, dataset.source), dataset.limit)
        first = next(items, None)
        if first is None:
            raise InvalidFileError(f"The dataset {dataset.source} has no rows.")
        yield first
        yield from items

    def lines(self, model: str, *, seed: int = 0) -> Iterator[PlannedLine]:
        """The requests of a run; `seed` is for a suite that names none.

        Raises InvalidFileError, also if the first item does not fit what a scorer wants of it.
        """
        suite = self.file.suite
        for line in Renderer(suite, model, self.examples, seed=seed).lines(self.items()):
            if line.number == 0 and line.sample == 0:
                self._check(line)
            yield line

    def _check(self, line: PlannedLine) -> None:
        for scorer in self.file.suite.scorers:
            try:
                scorer.check(line.fields)
            except TemplateError as wrong:
                raise InvalidFileError(
                    f"Item {line.item.id} does not fit the scorer `{scorer.kind}`: {wrong.message}."
                ) from wrong


@contextmanager
def gather(file: SuiteFile, settings: Settings) -> Iterator[Material]:
    """Raises InvalidFileError for a dataset that cannot be had, or is not the one named."""
    dataset = file.suite.dataset
    with open_dataset(dataset.source, beside=file.folder, settings=settings) as stream:
        found = sha256_of(stream)
        if dataset.sha256 not in (None, found):
            raise InvalidFileError(
                f"The dataset {dataset.source} is another than the suite names: its SHA-256 is"
                f" {found}, not {dataset.sha256}. If the new one is meant, write that into"
                " `dataset.sha256`; scores of before do not compare with it."
            )
        yield Material(
            file=file, sha256=found, examples=_examples(file, settings, dataset), _stream=stream
        )


def _examples(file: SuiteFile, settings: Settings, dataset: Dataset) -> Sequence[Mapping[str, Any]]:
    few = file.suite.request.fewshot
    if few is None:
        return ()
    if few.source is None:
        return few.items[: few.count]
    if few.source == dataset.source:
        raise InvalidFileError(
            f"The examples of `fewshot` are the dataset {few.source} itself, whose answers they"
            " would give away: name another file."
        )
    with open_dataset(few.source, beside=file.folder, settings=settings) as stream:
        rows = read_rows(stream, _kind(few.source, few.format), few.source)
        return list(islice(rows, few.count or DEFAULT_EXAMPLES))


def _kind(source: str, named: str | None) -> str:
    kind = named or kind_of(source)
    if kind is None:
        raise InvalidFileError(
            f"The name {source} does not tell its format: write `format: jsonl`, csv or parquet."
        )
    return kind
