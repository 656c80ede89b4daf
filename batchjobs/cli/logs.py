"""Logs of commands that run for long."""

from __future__ import annotations


def log_to_stderr() -> None:
    """Warnings and errors of ours and of libraries, one line each but for tracebacks."""
    import logging

    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
