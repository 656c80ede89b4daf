"""Logs of commands that run for long."""

from __future__ import annotations


def log_to_stderr(default_level: str = "INFO") -> None:
    """As the settings say; raises UsageError for a wrong one."""
    from batchjobs.obs.logs import configure
    from batchjobs.settings import Settings

    configure(Settings.load(), default_level=default_level)
