"""The doorbell over Celery (`bell`), and the Celery application that both of its sides use."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError

TASK = "batchjobs.look"
SOCKET_SECONDS = 5
"""Without a limit, a broker that is half gone would hang whoever rings (kombu's default)."""

logger = logging.getLogger(__name__)


class CeleryBell:
    """Rings through a broker, one queue a model."""

    def __init__(self, broker_url: str) -> None:
        self.app = celery_app(broker_url)

    def ring(self, models: Collection[str]) -> None:
        for model in models:
            try:
                self.app.send_task(TASK, queue=queue_name(model), retry=False, ignore_result=True)
            except OperationalError as failed:
                # The cause names the broker's host and port, but its text may hold a password.
                logger.warning(
                    "the broker cannot be reached (%s); workers look by themselves",
                    type(failed.__cause__ or failed).__name__,
                )
                return


def queue_name(model: str) -> str:
    """A queue's name has few characters to choose from, a model's has many."""
    return f"batchjobs.{hashlib.blake2b(model.encode(), digest_size=8).hexdigest()}"


def celery_app(broker_url: str) -> Celery:
    """The application that both sides of the bell use; connects when first needed."""
    app = Celery("batchjobs", broker=broker_url, set_as_current=False)
    options: dict[str, Any] = {
        "accept_content": ["json"],
        "task_serializer": "json",
        "task_ignore_result": True,
        "task_create_missing_queues": True,
        "worker_prefetch_multiplier": 1,
        "worker_hijack_root_logger": False,
        "worker_enable_remote_control": False,
        "worker_send_task_events": False,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_connection_timeout": SOCKET_SECONDS,
        "broker_transport_options": {
            "socket_timeout": SOCKET_SECONDS,
            "socket_connect_timeout": SOCKET_SECONDS,
            "socket_keepalive": True,
            "max_retries": 0,
        },
    }
    app.conf.update(options)
    return app
