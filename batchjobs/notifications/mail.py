"""Events by e-mail, over SMTP.

| URL | connection |
|---|---|
| `smtps://USER:PASSWORD@HOST:465` | TLS from the start |
| `smtp://HOST:25` | TLS as soon as the server offers it |
| `smtp://USER:PASSWORD@HOST:587` | the same; without TLS, no password is sent but to this host |
"""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from email.utils import formatdate
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from batchjobs.notifications import message
from batchjobs.notifications.backoff import DeliveryError
from batchjobs.queue.events import Parcel
from batchjobs.settings import Settings

TIMEOUT_SECONDS = 20
_PORTS = {"smtp": 25, "smtps": 465}
_THIS_HOST = ("localhost", "127.0.0.1", "::1")
_PERMANENT = 500


class Mail:
    def __init__(self, settings: Settings) -> None:
        assert settings.smtp_url is not None
        self._server: SecretStr = settings.smtp_url
        self._sender = settings.mail_from
        self._recipients = settings.mail_recipients

    def send(self, parcel: Parcel) -> None:
        """Raises DeliveryError unless the server takes it for every recipient."""
        try:
            with self._session() as server:
                refused = server.send_message(self._letter(parcel))
        except smtplib.SMTPResponseException as failed:
            is_final = failed.smtp_code >= _PERMANENT
            raise DeliveryError(
                f"the server answered {failed.smtp_code}", is_final=is_final
            ) from failed
        except smtplib.SMTPRecipientsRefused as failed:
            raise DeliveryError("the server refused every recipient") from failed
        except (smtplib.SMTPException, OSError) as failed:
            raise DeliveryError(f"no answer ({type(failed).__name__})") from failed
        if refused:
            raise DeliveryError(f"the server refused {', '.join(refused)}", is_final=True)

    @contextmanager
    def _session(self) -> Iterator[smtplib.SMTP]:
        parts = urlsplit(self._server.get_secret_value())
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        context = ssl.create_default_context()
        if parts.scheme == "smtps":
            server: smtplib.SMTP = smtplib.SMTP_SSL(
                host, port, timeout=TIMEOUT_SECONDS, context=context
            )
        else:
            server = smtplib.SMTP(host, port, timeout=TIMEOUT_SECONDS)
        with server:
            is_safe = parts.scheme == "smtps" or host in _THIS_HOST
            server.ehlo()
            if parts.scheme == "smtp" and server.has_extn("starttls"):
                server.starttls(context=context)
                server.ehlo()
                is_safe = True
            if parts.username:
                if not is_safe:
                    raise DeliveryError("the server offers no TLS, and gets no password without")
                server.login(unquote(parts.username), unquote(parts.password or ""))
            yield server

    def _letter(self, parcel: Parcel) -> EmailMessage:
        letter = EmailMessage()
        letter["From"] = self._sender
        letter["To"] = ", ".join(self._recipients)
        letter["Subject"] = message.subject(parcel)
        letter["Date"] = formatdate(parcel.created_at.timestamp())
        # The same for every attempt, so that a mailbox shows it once.
        letter["Message-ID"] = f"<{parcel.event_id}@batchjobs.invalid>"
        letter["Auto-Submitted"] = "auto-generated"
        letter.set_content(message.text(parcel))
        return letter
