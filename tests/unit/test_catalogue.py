from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from batchjobs import catalogue
from batchjobs.clock import ManualClock
from batchjobs.db import Database
from batchjobs.errors import ConflictError, NotFoundError, UsageError
from batchjobs.model_defaults import ModelDefaults
from batchjobs.models import Model
from tests.support.servers.postgres import wait_for_waiter

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def session(tmp_path: Path, database_url: str | None) -> Iterator[Session]:
    database = Database.open(database_url or f"sqlite:///{tmp_path / 'catalogue.sqlite3'}")
    database.upgrade()
    with database.write() as session:
        yield session
    database.close()


def add(
    session: Session,
    name: str,
    *aliases: str,
    source: str = "/weights",
    defaults: ModelDefaults | None = None,
) -> Model:
    return catalogue.add(
        session,
        ManualClock(NOW),
        name=name,
        source=source,
        revision="r1",
        aliases=aliases,
        defaults=defaults,
    )


def test_a_model_is_found_by_its_name_and_aliases(session: Session) -> None:
    add(session, "small", "gpt-4o-mini", "org/Small")
    for name in ("small", "gpt-4o-mini", "org/Small"):
        model = catalogue.resolve(session, name)
        assert (model.name, model.source, model.revision) == ("small", "/weights", "r1")
        assert model.created_at == NOW


def test_entries_are_in_order_with_their_aliases(session: Session) -> None:
    add(session, "b", "y", "x")
    add(session, "a")
    listed = [(entry.model.name, entry.aliases) for entry in catalogue.entries(session)]
    assert listed == [("a", ()), ("b", ("x", "y"))]


def test_names_cover_models_and_aliases(session: Session) -> None:
    add(session, "small", "mini")
    assert catalogue.names(session) == {"small": "small", "mini": "small"}


def test_adding_again_adds_aliases_only(session: Session) -> None:
    add(session, "small", "one")
    add(session, "small", "one", "two")
    add(session, "small", "small", "two", "two")
    (entry,) = catalogue.entries(session)
    assert entry.aliases == ("one", "two")


def test_what_is_said_of_a_model_stays_until_it_is_said_anew(session: Session) -> None:
    short = ModelDefaults(max_model_len=64, chat_template="{{ x }}", sampling={"top_k": 4})
    add(session, "small", defaults=short)
    add(session, "small", "mini")
    assert ModelDefaults.of(catalogue.resolve(session, "mini")) == short
    add(session, "small", defaults=ModelDefaults(sampling={"top_p": 0.5}))
    assert ModelDefaults.of(catalogue.resolve(session, "small")) == ModelDefaults(
        sampling={"top_p": 0.5}
    )


def test_adding_another_source_under_a_name_is_refused(session: Session) -> None:
    add(session, "small")
    with pytest.raises(ConflictError, match="batchjobs models remove small"):
        add(session, "small", source="/other")


@pytest.mark.parametrize(
    ("name", "alias"), [("other", "small"), ("other", "mini"), ("mini", "third")]
)
def test_a_word_never_means_two_models(session: Session, name: str, alias: str) -> None:
    add(session, "small", "mini")
    with pytest.raises(ConflictError, match="is already a name of the model 'small'"):
        add(session, name, alias)


def test_removing_frees_the_name_and_its_aliases(session: Session) -> None:
    add(session, "small", "mini")
    catalogue.remove(session, "mini")
    assert catalogue.names(session) == {}
    add(session, "mini", "small", source="/other")


def test_an_unknown_name_is_answered_with_the_known_ones(session: Session) -> None:
    add(session, "small", "mini")
    with pytest.raises(NotFoundError) as refused:
        catalogue.resolve(session, "large")
    assert refused.value.code == "model_not_found"
    assert str(refused.value) == (
        "No model 'large' in the catalogue. It has: mini, small."
        " Add it with: batchjobs models add NAME PATH_OR_HUB_ID"
    )


def test_an_unknown_name_in_an_empty_catalogue_says_so(session: Session) -> None:
    with pytest.raises(NotFoundError, match="The catalogue is empty"):
        catalogue.remove(session, "large")


def test_a_long_catalogue_is_cut_short_in_the_answer(session: Session) -> None:
    add(session, "m", *(f"alias-{number:02}" for number in range(30)))
    with pytest.raises(NotFoundError, match=r"alias-09 and 21 more\."):
        catalogue.resolve(session, "large")


@pytest.mark.parametrize("word", ["", "x" * 256, "two\nlines", " padded"])
def test_a_word_that_cannot_be_a_name_is_refused(session: Session, word: str) -> None:
    with pytest.raises(UsageError):
        add(session, word)
    with pytest.raises(UsageError):
        add(session, "small", word)


def test_name_that_two_add_at_once_means_one_model(postgres_url: str) -> None:
    """As an alias of one and the name of another, which no key of a table would find."""
    database = Database.open(postgres_url)
    refused: list[ConflictError] = []

    def add_second() -> None:
        try:
            with database.write() as session:
                add(session, "word", source="/other")
        except ConflictError as error:
            refused.append(error)

    second = threading.Thread(target=add_second)
    with database.write() as session:
        add(session, "small", "word")
        second.start()
        wait_for_waiter(session, second)
    second.join()
    database.close()
    assert [error.message for error in refused] == [
        "'word' is already a name of the model 'small'."
    ]
