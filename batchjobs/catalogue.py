"""The model catalogue: a name on a request line → where the weights are.

Names and aliases share one namespace, so that every name means one model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from batchjobs.clock import Clock
from batchjobs.db import hold_lock
from batchjobs.errors import ConflictError, NotFoundError, UsageError
from batchjobs.model_defaults import ModelDefaults
from batchjobs.models import Model, ModelAlias

MAX_NAME_CHARS = 255
_MAX_NAMED = 10
_LOCK = "catalogue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A model of the catalogue and its other names, in order."""

    model: Model
    aliases: tuple[str, ...]


def add(
    session: Session,
    clock: Clock,
    *,
    name: str,
    source: str,
    revision: str | None,
    aliases: Sequence[str] = (),
    defaults: ModelDefaults | None = None,
) -> Model:
    """Enter a model, or more aliases for one that is there with the same source and revision.

    `defaults` replace those it has; None leaves them.

    Raises:
        ConflictError: the name or an alias means something else already.
        UsageError: a name is empty, too long or not printable.
    """
    for word in (name, *aliases):
        _check_name(word)
    hold_lock(session, _LOCK)
    known = names(session)
    for word in (name, *aliases):
        if known.get(word, name) != name:
            raise ConflictError(f"'{word}' is already a name of the model '{known[word]}'.")
    model = session.get(Model, name)
    if model is None:
        model = Model(name=name, source=source, revision=revision, created_at=clock.now(session))
        session.add(model)
    elif (model.source, model.revision) != (source, revision):
        raise ConflictError(
            f"The catalogue has '{name}' from {model.source} (revision {model.revision})."
            f" Take it out first: batchjobs models remove {name}"
        )
    if defaults is not None:
        defaults.enter(model)
    session.flush()
    new = dict.fromkeys(alias for alias in aliases if alias not in known and alias != name)
    session.add_all(ModelAlias(alias=alias, model=name) for alias in new)
    session.flush()
    return model


def remove(session: Session, name: str) -> None:
    """Take out a model and its aliases; the weights stay. Raises NotFoundError."""
    hold_lock(session, _LOCK)
    model = resolve(session, name)
    session.execute(delete(ModelAlias).where(ModelAlias.model == model.name))
    session.delete(model)
    session.flush()


def entries(session: Session) -> list[Entry]:
    """The whole catalogue by name."""
    aliases: dict[str, list[str]] = {}
    for row in session.scalars(select(ModelAlias).order_by(ModelAlias.alias)):
        aliases.setdefault(row.model, []).append(row.alias)
    models = session.scalars(select(Model).order_by(Model.name))
    return [Entry(model=model, aliases=tuple(aliases.get(model.name, ()))) for model in models]


def names(session: Session) -> dict[str, str]:
    """Every name and alias → the model's name."""
    known = {row.alias: row.model for row in session.scalars(select(ModelAlias))}
    known.update((name, name) for name in session.scalars(select(Model.name)))
    return known


def resolve(session: Session, name: str) -> Model:
    """The model that `name` means. Raises NotFoundError with the names there are."""
    known = names(session)
    model = session.get(Model, known[name]) if name in known else None
    if model is None:
        message = f"No model '{name}' in the catalogue. {_names_there_are(known)}"
        raise NotFoundError(message, param="model", code="model_not_found")
    return model


def _names_there_are(known: dict[str, str]) -> str:
    how = "Add it with: batchjobs models add NAME PATH_OR_HUB_ID"
    if not known:
        return f"The catalogue is empty. {how}"
    listed = sorted(known)[:_MAX_NAMED]
    more = f" and {len(known) - len(listed)} more" if len(known) > len(listed) else ""
    return f"It has: {', '.join(listed)}{more}. {how}"


def _check_name(word: str) -> None:
    if not 0 < len(word) <= MAX_NAME_CHARS:
        raise UsageError(f"A model name has 1 to {MAX_NAME_CHARS} characters, not {len(word)}.")
    if not word.isprintable() or word != word.strip():
        message = f"The model name {word!r} has control characters or spaces around it."
        raise UsageError(message)
