from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from batchjobs.obs.logs import JsonFormatter, TextFormatter, configure, hide, log_fields, secrets_of
from batchjobs.settings import Settings

DATABASE = "postgresql://batchjobs:s3cr%40t-word@db/batchjobs"
BROKER = "redis://:another-secret@broker/0"


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Logging is of the process: what a test sets up is taken back."""
    root, ours = logging.getLogger(), logging.getLogger("batchjobs")
    handlers, level = list(root.handlers), ours.level
    yield
    for handler in [known for known in root.handlers if known not in handlers]:
        root.removeHandler(handler)
    ours.setLevel(level)


def records(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_json_lines_carry_the_ids_of_the_record_and_of_what_is_around_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure(Settings.load(log_format="json"), default_level="info")
    logger = logging.getLogger("batchjobs.some.room")
    before = datetime.now(UTC).replace(microsecond=0)
    with log_fields(worker="w", job_id="around"):
        logger.info("Shard %s", "claimed", extra={"job_id": "batch_1", "shard": 3})
        logger.info("Looks")
    logger.info("Ends")
    claimed, looks, ends = records(capsys)
    assert datetime.fromisoformat(str(claimed.pop("time"))) >= before
    assert claimed == {
        "level": "INFO",
        "logger": "batchjobs.some.room",
        "message": "Shard claimed",
        "job_id": "batch_1",
        "shard": 3,
        "worker": "w",
    }
    assert (looks["worker"], looks["job_id"]) == ("w", "around")
    assert set(ends) == {"time", "level", "logger", "message"}


def test_traceback_is_part_of_its_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure(Settings.load(log_format="json"), default_level="info")
    try:
        raise KeyError("lost\nline \ud800")
    except KeyError:
        logging.getLogger("batchjobs").exception("Broken")
    [broken] = records(capsys)
    assert "Traceback" in str(broken["error"])


def test_text_lines_end_with_the_ids(capsys: pytest.CaptureFixture[str]) -> None:
    configure(Settings.load(), default_level="info")
    logging.getLogger("batchjobs").warning("Careful", extra={"job_id": "b", "shard": 0})
    assert capsys.readouterr().err.endswith("WARNING batchjobs: Careful [job_id=b shard=0]\n")


@pytest.mark.parametrize(
    ("asked", "default", "shown"),
    [(None, "info", {"ours"}), (None, "warning", set()), ("debug", "warning", {"ours", "detail"})],
)
def test_level_is_of_ours_and_libraries_only_warn(
    capsys: pytest.CaptureFixture[str], asked: str | None, default: str, shown: set[str]
) -> None:
    configure(Settings.load(log_format="json", log_level=asked), default_level=default)
    logging.getLogger("batchjobs.room").debug("detail")
    logging.getLogger("batchjobs.room").info("ours")
    logging.getLogger("library").info("theirs")
    logging.getLogger("library").warning("theirs, in trouble")
    assert {record["message"] for record in records(capsys)} == {*shown, "theirs, in trouble"}


def test_configuring_again_takes_the_place_of_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    configure(Settings.load(), default_level="info")
    configure(Settings.load(log_format="json"), default_level="info")
    logging.getLogger("batchjobs").info("Once")
    assert [record["message"] for record in records(capsys)] == ["Once"]


def test_ids_around_are_of_one_thread() -> None:
    lines = []
    record = logging.makeLogRecord({"msg": "x"})

    def note() -> None:
        lines.append(json.loads(JsonFormatter().format(record)))

    with log_fields(worker="w"):
        thread = threading.Thread(target=note)
        thread.start()
        thread.join()
    assert "worker" not in lines[0]


@pytest.mark.parametrize("kind", [JsonFormatter, TextFormatter])
def test_secrets_are_in_no_line(kind: type[logging.Formatter]) -> None:
    settings = Settings.load(database_url=DATABASE, broker_url=BROKER)
    formatter = kind(secrets_of(settings))  # type: ignore[arg-type]
    try:
        raise OSError(f"cannot connect to {DATABASE} with s3cr@t-word")
    except OSError as failed:
        record = logging.makeLogRecord(
            {
                "msg": "%s then http://user:unknown@proxy and another-secret",
                "args": (BROKER,),
                "exc_info": (OSError, failed, failed.__traceback__),
            }
        )
    line = formatter.format(record)
    for secret in ("s3cr%40t-word", "s3cr@t-word", "another-secret", "unknown"):
        assert secret not in line
    assert "http://user:***@proxy" in line


def test_words_that_are_no_passwords_are_shown() -> None:
    text = "GET http://host:8000/a@b at 10:30, user@host"
    assert hide(text, secrets_of(Settings.load(broker_url="redis://:short@host"))) == text
