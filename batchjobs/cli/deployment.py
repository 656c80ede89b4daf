"""The deployment that the environment names. Imports are inside: they take half a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchjobs.deployment import Deployment


def open_deployment() -> Deployment:
    """Raises UsageError for a wrong setting or a data directory that cannot be used."""
    from batchjobs.deployment import Deployment
    from batchjobs.settings import Settings

    return Deployment.open(Settings.load())
