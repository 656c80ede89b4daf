"""Where runs are kept, and who answers their requests."""

from __future__ import annotations

from dataclasses import dataclass

from batchjobs.client.base import Client
from batchjobs.deployment import Deployment

DEFAULT_WINDOW = "24h"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """Runs are rows of the data here; their requests are answered here too, or by a server."""

    deployment: Deployment
    client: Client
