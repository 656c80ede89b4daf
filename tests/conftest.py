from __future__ import annotations

import os
import random
import signal

import hypothesis
import pytest

from executor.threads import yield_when_idle

yield_when_idle()
# What the person who runs the tests has set is for another deployment, which is not to be touched.
for name in [name for name in os.environ if name.startswith("BATCHJOBS_")]:
    if not name.startswith(("BATCHJOBS_TEST_", "BATCHJOBS_UPDATE_")):
        del os.environ[name]

os.environ["BATCHJOBS_CONFIG"] = ""  # no settings file

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As from a shell's `&`, and what tests start would inherit it, but not a handler.
    signal.signal(signal.SIGINT, lambda number, frame: None)

# The same examples every time, however busy the machine: a failure is of the change at hand.
hypothesis.settings.register_profile(
    "dependable",
    derandomize=True,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("dependable")

pytest_plugins = [
    "tests.support.browser",
    "tests.support.model",
    "tests.support.servers.s3",
    "tests.support.servers.postgres",
    "tests.support.servers.valkey",
]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """The same pauses every time, where the product spreads them by chance."""
    random.seed(0)
