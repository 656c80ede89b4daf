"""Where runs are kept and who answers them, as the environment says. Imports are inside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchjobs.evals.workplace import Workplace


@contextmanager
def open_place() -> Iterator[Workplace]:
    """The data here, and the server that BATCHJOBS_URL names or else the workers here.

    Raises UsageError for a wrong setting or a data directory that cannot be used.
    """
    from batchjobs.client.embedded import EmbeddedClient
    from batchjobs.client.remote import RemoteClient
    from batchjobs.deployment import Deployment
    from batchjobs.evals.workplace import Workplace
    from batchjobs.settings import Settings

    settings = Settings.load()
    with Deployment.open(settings) as deployment:
        if not settings.url:
            yield Workplace(deployment=deployment, client=EmbeddedClient(deployment))
            return
        with RemoteClient(settings.url, settings.api_key or None) as client:
            yield Workplace(deployment=deployment, client=client)
