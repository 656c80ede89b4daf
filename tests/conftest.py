from __future__ import annotations

from executor.threads import yield_when_idle

yield_when_idle()

pytest_plugins = ["tests.support.model"]
