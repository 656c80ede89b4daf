"""Events to a URL, as Standard Webhooks 1.0.0 and OpenAI's clients have them.

The URL is the operator's own, from the settings, so that an address of the own network is no
attack; but what answers there is not trusted: nothing of the answer is kept but its status, and a
redirection is a failure and not followed.
"""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

import httpx2

from batchjobs import __version__
from batchjobs.notifications import message, signing
from batchjobs.notifications.backoff import DeliveryError
from batchjobs.queue.events import Parcel
from batchjobs.settings import Settings

TIMEOUT_SECONDS = 20
GONE = 410
_ASKS_FOR_PATIENCE = (429, 502, 503, 504)


class Webhook:
    def __init__(self, settings: Settings) -> None:
        assert settings.webhook_url is not None
        assert settings.webhook_secret is not None
        self._url = settings.webhook_url
        self._secret = settings.webhook_secret

    def send(self, parcel: Parcel) -> None:
        """Raises DeliveryError unless the receiver answers with 2xx."""
        body, timestamp = message.body(parcel), int(time.time())
        signature = signing.sign(
            self._secret, event_id=parcel.event_id, timestamp=timestamp, body=body
        )
        headers = {
            "content-type": "application/json",
            "user-agent": f"batchjobs/{__version__}",
            "webhook-id": parcel.event_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature,
        }
        try:
            with httpx2.stream(
                "POST",
                self._url,
                content=body,
                headers=headers,
                timeout=TIMEOUT_SECONDS,
                follow_redirects=False,
            ) as answer:
                _check(answer)
        except (httpx2.HTTPError, httpx2.InvalidURL) as failed:
            raise DeliveryError(f"no answer ({type(failed).__name__})") from failed


def _check(answer: httpx2.Response) -> None:
    status = answer.status_code
    if answer.is_success:
        return
    if status == GONE:
        raise DeliveryError("the receiver answered 410: it wants no more", is_final=True)
    wait = _retry_after(answer) if status in _ASKS_FOR_PATIENCE else None
    where = ", a redirection, which is not followed" if answer.is_redirect else ""
    raise DeliveryError(f"the receiver answered {status}{where}", wait_seconds=wait)


def _retry_after(answer: httpx2.Response) -> float | None:
    told = answer.headers.get("retry-after", "").strip()
    if told.isdigit():
        return float(told)
    try:
        return parsedate_to_datetime(told).timestamp() - time.time()
    except (ValueError, TypeError):
        return None
