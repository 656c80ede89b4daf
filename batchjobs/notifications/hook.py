"""Events to a command of the operator's: the JSON on standard input, no shell between."""

from __future__ import annotations

import os
import shlex
import subprocess

from batchjobs.notifications import message
from batchjobs.notifications.backoff import DeliveryError
from batchjobs.queue.events import Parcel
from batchjobs.settings import ENV_PREFIX, Settings

TIMEOUT_SECONDS = 60


class CommandHook:
    def __init__(self, settings: Settings) -> None:
        assert settings.notify_command is not None
        self._command = shlex.split(settings.notify_command)

    def send(self, parcel: Parcel) -> None:
        """Raises DeliveryError unless the command ends with 0 in time; what it prints is left."""
        try:
            ended = subprocess.run(  # noqa: S603 - the operator's own command
                self._command,
                input=message.body(parcel),
                env=_environment(parcel),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as failed:
            raise DeliveryError(f"the command ran for {TIMEOUT_SECONDS} s") from failed
        except OSError as failed:
            raise DeliveryError(f"the command cannot be run ({failed.strerror})") from failed
        if ended.returncode:
            raise DeliveryError(f"the command ended with {ended.returncode}")


def _environment(parcel: Parcel) -> dict[str, str]:
    """This process's without any secret of ours, and what the event is."""
    secrets = {f"{ENV_PREFIX}{name}".upper() for name in Settings.secrets()}
    inherited = {name: value for name, value in os.environ.items() if name.upper() not in secrets}
    return inherited | {
        "BATCHJOBS_EVENT_ID": parcel.event_id,
        "BATCHJOBS_EVENT_TYPE": parcel.type,
        "BATCHJOBS_EVENT_SUBJECT": message.subject(parcel),
    }
