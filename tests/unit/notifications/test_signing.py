"""Against the vectors of the standard and of OpenAI's clients."""

from __future__ import annotations

import pytest
from pydantic import SecretStr
from standardwebhooks import Webhook as Verifier

from batchjobs.errors import UsageError
from batchjobs.notifications.signing import sign
from batchjobs.settings import Settings
from tests.support.cli import run

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


@pytest.mark.parametrize(
    ("event_id", "timestamp", "body", "signature"),
    [
        (
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1614265330,
            b'{"test": 2432232314}',
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        ),
        (
            "evt_abc123",
            1719168001,
            b'{"id":"evt_abc123","object":"event","created_at":1719168000,'
            b'"type":"batch.completed","data":{"id":"batch_abc123"}}',
            "v1,BKGNUJ/6ZqgQlEaUKOUXO+KqUCmR9cIQTdwNgfNP2zs=",
        ),
    ],
)
def test_signature_is_the_published_one(
    event_id: str, timestamp: int, body: bytes, signature: str
) -> None:
    secret = SecretStr(SECRET)
    assert sign(secret, event_id=event_id, timestamp=timestamp, body=body) == signature


def test_two_secrets_sign_both() -> None:
    old = sign(SecretStr(SECRET), event_id="evt_1", timestamp=1, body=b"{}")
    new = sign(SecretStr(OTHER), event_id="evt_1", timestamp=1, body=b"{}")
    both = sign(SecretStr(f"{OTHER} {SECRET}"), event_id="evt_1", timestamp=1, body=b"{}")
    assert both == f"{new} {old}"


@pytest.mark.parametrize(
    "secret",
    ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_c2hvcnQ=", "whsec_no base64!"],
)
def test_secret_that_receivers_would_read_otherwise_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(UsageError, match="BATCHJOBS_WEBHOOK_SECRET") as wrong:
        Settings.load(webhook_secret=secret)
    assert secret not in str(wrong.value)


def test_url_without_a_secret_is_refused() -> None:
    with pytest.raises(UsageError, match="batchjobs events secret"):
        Settings.load(webhook_url="https://example.org/hook")


@pytest.mark.parametrize(
    "url", ["ftp://example.org", "https://user:word@example.org", "hook", "http://"]
)
def test_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="BATCHJOBS_WEBHOOK_URL is not usable"):
        Settings.load(webhook_url=url, webhook_secret=SECRET)


def test_made_secret_is_one_that_others_take() -> None:
    secret = run("events", "secret").stdout.strip()
    assert Settings.load(webhook_secret=secret).webhook_secret == SecretStr(secret)
    assert len(Verifier(secret)._whsecret) == 32
