"""Items of a suite's dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from batchjobs.errors import InvalidFileError
from batchjobs.evals.templates import digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One question. `digest` is of all its fields; `cluster` is what repeats have in common."""

    id: str
    fields: Mapping[str, Any]
    digest: str
    cluster: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFields:
    """Which fields of an item say what it is called, what it is like, and what it belongs to."""

    id: str | None = None
    group: str | None = None
    tags: tuple[str, ...] = ()


def number_items(rows: Iterator[dict[str, Any]], names: ItemFields, source: str) -> Iterator[Item]:
    """Rows as items, in order. Without a field for it, an item's id is its field `id`, or else its
    number from 1.

    Raises InvalidFileError for an id that repeats, or a named field that a row lacks.
    """
    seen: set[str] = set()
    for number, row in enumerate(rows, start=1):
        item = _item(row, number, names, source)
        if item.id in seen:
            raise InvalidFileError(
                f"{source}: row {number} has the id {item.id!r} of another row; ids must differ."
            )
        seen.add(item.id)
        yield item


def _item(row: dict[str, Any], number: int, names: ItemFields, source: str) -> Item:
    def field(name: str) -> str:
        if name not in row:
            raise InvalidFileError(
                f"{source}: row {number} has no field {name!r}; it has: {', '.join(row)}."
            )
        return str(row[name])

    own = field(names.id) if names.id is not None else str(row.get("id", number))
    return Item(
        id=own,
        fields=row,
        digest=digest(row),
        cluster=own if names.group is None else field(names.group),
        tags=tuple(f"{name}={field(name)}" for name in names.tags),
    )
