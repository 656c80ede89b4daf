from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchjobs.cli.exits import Exit
from batchjobs.deployment import Deployment
from batchjobs.notifications.office import Office
from batchjobs.queue import events
from batchjobs.settings import Settings
from tests.support.cli import run
from tests.support.receiver import Receiver, receiving

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def receiver(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiving() as opened:
        monkeypatch.setenv("BATCHJOBS_WEBHOOK_URL", opened.url)
        monkeypatch.setenv("BATCHJOBS_WEBHOOK_SECRET", SECRET)
        yield opened


def told(home: Path) -> str:
    """The id of an event that has had one attempt."""
    with Deployment.open(Settings.load(home=home)) as deployment:
        with deployment.database.write() as session:
            now = deployment.clock.now(session)
            event = events.emit(session, "batch.failed", {"id": "batch_1"}, now=now)
        Office(deployment).work()
        return event.id


def test_test_event_arrives_signed(receiver: Receiver) -> None:
    result = run("events", "test")
    assert (result.exit_code, result.stdout) == (Exit.DONE, "webhook: delivered\n")
    receiver.unwrapped(SECRET)


def test_test_says_what_is_wrong(receiver: Receiver) -> None:
    receiver.statuses = [404]
    result = run("events", "test")
    assert (result.exit_code, result.stdout) == (
        Exit.ERROR,
        "webhook: the receiver answered 404\n",
    )


def test_test_without_a_channel_says_how_to_open_one(home: Path) -> None:
    result = run("events", "test")
    assert result.exit_code == Exit.USAGE
    assert "BATCHJOBS_WEBHOOK_URL" in result.stderr


def test_list_shows_what_failed_and_resend_makes_it_due(home: Path, receiver: Receiver) -> None:
    receiver.statuses = [500]
    event_id = told(home)
    failed = run("events", "list", "--failed").stdout
    assert event_id in failed
    assert "1 attempts: the receiver answered 500; next " in failed
    assert "are due now" in run("events", "resend", event_id).stdout
    with Deployment.open(Settings.load(home=home)) as deployment:
        Office(deployment).work()
    assert receiver.ids() == [event_id] * 2
    assert "delivered" in run("events", "list").stdout
    assert "No deliveries." in run("events", "list", "--failed").stdout


def test_unknown_event_is_one_sentence(home: Path) -> None:
    result = run("events", "resend", "evt_none")
    assert result.exit_code == Exit.ERROR
    assert result.stderr.startswith("Error: There is no event 'evt_none'")
