"""Which channels the settings open, which events each wants, and their sending."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Protocol

from batchjobs.deployment import Deployment
from batchjobs.models import DEFAULT_TENANT
from batchjobs.notifications.backoff import DeliveryError, pause_after
from batchjobs.notifications.message import TEST
from batchjobs.notifications.tables import Channel
from batchjobs.queue import events
from batchjobs.queue.events import Parcel
from batchjobs.settings import Settings

logger = logging.getLogger(__name__)


class Sender(Protocol):
    def send(self, parcel: Parcel) -> None:
        """Raises DeliveryError."""


def open_channels(settings: Settings) -> dict[Channel, Callable[[Settings], Sender]]:
    """Those that have their settings."""
    from batchjobs.notifications.hook import CommandHook
    from batchjobs.notifications.mail import Mail
    from batchjobs.notifications.webhook import Webhook

    every: Mapping[Channel, tuple[bool, Callable[[Settings], Sender]]] = {
        Channel.WEBHOOK: (settings.webhook_url is not None, Webhook),
        Channel.MAIL: (settings.smtp_url is not None, Mail),
        Channel.COMMAND: (settings.notify_command is not None, CommandHook),
    }
    return {channel: sender for channel, (is_open, sender) in every.items() if is_open}


class Office:
    """Routes events and delivers them. Several may work on one database."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        settings = deployment.settings
        self._senders = {
            channel: sender(settings) for channel, sender in open_channels(settings).items()
        }
        self._wanted = {
            Channel.WEBHOOK: settings.webhook_events,
            Channel.MAIL: settings.mail_events,
            Channel.COMMAND: settings.command_events,
        }

    @property
    def channels(self) -> tuple[Channel, ...]:
        return tuple(self._senders)

    def channels_for(self, event_type: str) -> tuple[Channel, ...]:
        return tuple(
            channel
            for channel in self._senders
            if event_type == TEST
            or any(
                fnmatchcase(event_type, pattern.strip())
                for pattern in self._wanted[channel].split(",")
            )
        )

    def work(self, is_stopping: Callable[[], bool] = lambda: False) -> None:
        """Everything that is to be told now. Raises DatabaseError."""
        database, clock = self._deployment.database, self._deployment.clock
        with database.read() as session:
            if not events.is_any_due(session, clock):
                return
        while (
            database.transact(lambda session: events.route(session, clock, self.channels_for))
            == events.ROUTED_AT_A_TIME
        ):
            continue
        while not is_stopping() and (parcel := self._take()) is not None:
            self._deliver(parcel)

    def _take(self) -> Parcel | None:
        return self._deployment.database.transact(
            lambda session: events.take(session, self._deployment.clock, self.channels)
        )

    def _deliver(self, parcel: Parcel) -> None:
        database, clock = self._deployment.database, self._deployment.clock
        try:
            self._senders[parcel.channel].send(parcel)
        except DeliveryError as failed:
            pause, reason = pause_after(parcel.attempt, failed), str(failed)
            database.transact(
                lambda session: events.note_failed(session, clock, parcel, reason, again_in=pause)
            )
            end = "given up" if pause is None else f"again in {pause.total_seconds():.0f} s"
            logger.warning(
                "Event %s (%s) is not delivered by %s: %s; %s",
                parcel.event_id, parcel.type, parcel.channel, reason, end,
            )  # fmt: skip
        else:
            database.transact(lambda session: events.note_delivered(session, clock, parcel))
            logger.info(
                "Event %s (%s) is delivered by %s", parcel.event_id, parcel.type, parcel.channel
            )


def try_channels(deployment: Deployment) -> dict[Channel, str | None]:
    """Send a test on every open channel; how each failed, or None."""
    found: dict[Channel, str | None] = {}
    for channel, sender in open_channels(deployment.settings).items():
        test = Parcel(
            id=0,
            channel=channel,
            attempt=1,
            event_id=events.new_event_id(),
            type=TEST,
            data={"id": TEST},
            created_at=datetime.now(UTC),
            tenant=DEFAULT_TENANT,
        )
        try:
            sender(deployment.settings).send(test)
        except DeliveryError as failed:
            found[channel] = str(failed)
        else:
            found[channel] = None
    return found
