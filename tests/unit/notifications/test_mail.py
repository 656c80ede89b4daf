from __future__ import annotations

import email
from collections.abc import Iterator
from datetime import UTC, datetime
from email.message import Message

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from batchjobs.errors import UsageError
from batchjobs.models import DEFAULT_TENANT
from batchjobs.notifications.backoff import DeliveryError
from batchjobs.notifications.mail import Mail
from batchjobs.notifications.tables import Channel
from batchjobs.queue.events import Parcel
from batchjobs.settings import Settings


class Postbox:
    """Takes letters, or answers as it is told."""

    def __init__(self) -> None:
        self.letters: list[tuple[list[str], Message]] = []
        self.answer = "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.answer.startswith("250"):
            assert isinstance(envelope.content, bytes)
            letter = email.message_from_bytes(envelope.content)
            self.letters.append((envelope.rcpt_tos, letter))
        return self.answer


class OnFreePort(Controller):
    def _trigger_server(self) -> None:
        assert self.server is not None
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


@pytest.fixture
def postbox() -> Postbox:
    return Postbox()


@pytest.fixture
def settings(postbox: Postbox) -> Iterator[Settings]:
    controller = OnFreePort(postbox, hostname="127.0.0.1", port=0)
    controller.start()
    try:
        yield Settings.load(
            smtp_url=f"smtp://127.0.0.1:{controller.port}",
            mail_from="evals@example.org",
            mail_to="ann@example.org, bo@example.org",
        )
    finally:
        controller.stop()


def parcel(kind: str = "eval.run.regressed", **data: str) -> Parcel:
    about = {
        "id": "run_1",
        "schedule": "nightly",
        "suite": "arith",
        "verdict": "worse: −4.0 points [−6.1, −1.9], p = 0.0012",
    }
    return Parcel(
        id=1,
        channel=Channel.MAIL,
        attempt=1,
        event_id="evt_1",
        type=kind,
        data=about | data,
        created_at=datetime(2026, 11, 30, 2, 0, tzinfo=UTC),
        tenant=DEFAULT_TENANT,
    )


def test_alarm_arrives_as_a_letter_with_the_verdict(settings: Settings, postbox: Postbox) -> None:
    Mail(settings).send(parcel())
    [(recipients, letter)] = postbox.letters
    assert recipients == ["ann@example.org", "bo@example.org"]
    assert letter["Subject"] == "[batchjobs] arith is worse than its baseline (nightly)."
    assert letter["Message-ID"] == "<evt_1@batchjobs.invalid>"
    body = letter.get_payload(decode=True)
    assert isinstance(body, bytes)
    assert "worse: −4.0 points [−6.1, −1.9], p = 0.0012" in body.decode()
    assert "see: batchjobs evals show run_1" in body.decode()


def test_name_with_a_line_break_makes_no_header(settings: Settings, postbox: Postbox) -> None:
    Mail(settings).send(parcel(suite="a\r\nBcc: eve@example.org"))
    [(recipients, letter)] = postbox.letters
    assert letter["Bcc"] is None
    assert "eve@example.org" not in recipients


@pytest.mark.parametrize(
    ("answer", "is_final"), [("451 try later", False), ("554 no such mailbox", True)]
)
def test_refusal_is_final_if_the_server_says_so(
    settings: Settings, postbox: Postbox, answer: str, is_final: bool
) -> None:
    postbox.answer = answer
    with pytest.raises(DeliveryError, match=answer[:3]) as failed:
        Mail(settings).send(parcel())
    assert failed.value.is_final == is_final


def test_no_server_is_a_failed_attempt() -> None:
    settings = Settings.load(smtp_url="smtp://127.0.0.1:9", mail_to="a@example.org")
    with pytest.raises(DeliveryError, match="no answer"):
        Mail(settings).send(parcel())


@pytest.mark.parametrize(
    "url", ["http://example.org", "smtp://", "smtp://h:0", "smtp://u:secret@[h"]
)
def test_wrong_server_is_refused_and_its_password_not_shown(url: str) -> None:
    with pytest.raises(UsageError, match="BATCHJOBS_SMTP_URL is not usable") as wrong:
        Settings.load(smtp_url=url, mail_to="a@example.org")
    assert "secret" not in str(wrong.value)


def test_server_without_recipients_is_refused() -> None:
    with pytest.raises(UsageError, match="BATCHJOBS_MAIL_TO"):
        Settings.load(smtp_url="smtp://127.0.0.1")
