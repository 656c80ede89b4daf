from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchjobs.deployment import Deployment
from tests.support.jobs import open_deployment
from tests.support.receiver import Receiver, receiving

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as opened:
        yield opened


@pytest.fixture
def deployment(
    tmp_path: Path, database_url: str | None, receiver: Receiver
) -> Iterator[Deployment]:
    """Its events go to the receiver."""
    with open_deployment(
        tmp_path, database_url=database_url, webhook_url=receiver.url, webhook_secret=SECRET
    ) as opened:
        yield opened
