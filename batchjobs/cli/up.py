"""`batchjobs up`."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import click

from batchjobs.cli.command import Command
from batchjobs.cli.exits import Exit
from batchjobs.cli.serve import check_listening, listening_options

LOOK_SECONDS = 0.2
END_SECONDS = 30
"""For the parts to end in, once told to; then they are killed, which loses nothing either."""


@click.command(cls=Command, example="batchjobs up --port 8000")
@listening_options
def up(host: str, port: int, require_keys: bool, insecure_open: bool) -> Exit:
    """Run it all on this machine: API, worker and scheduler.

    Each is a process of its own, as `batchjobs serve`, `worker` and `beat`. The API's URL is
    printed when it listens. Ctrl-C or SIGTERM ends all, and so does the end of any.
    """
    check_listening(require_keys=require_keys, insecure_open=insecure_open)
    options = ["--host", host, "--port", str(port)]
    if require_keys:
        options.append("--require-keys")
    if insecure_open:
        options.append("--insecure-open")
    return run_together([["serve", *options], ["worker"], ["beat"]])


def run_together(commands: Sequence[Sequence[str]]) -> Exit:
    """Run commands of ours until one ends or a signal comes, then end them all."""
    told_to_end = threading.Event()

    def end(number: int, frame: Any) -> None:
        told_to_end.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    # In a session of their own, Ctrl-C reaches them once, through us.
    processes = [
        subprocess.Popen(  # noqa: S603 - our own commands
            [sys.executable, "-m", "batchjobs", *command], start_new_session=True
        )
        for command in commands
    ]
    try:
        while not told_to_end.wait(LOOK_SECONDS):
            if any(process.poll() is not None for process in processes):
                break
    finally:
        statuses = [_end(process) for process in processes]
        for number, handler in before.items():
            signal.signal(number, handler)
    return Exit.DONE if told_to_end.is_set() and not any(statuses) else Exit.ERROR


def _end(process: subprocess.Popen[bytes]) -> int:
    """The exit status of a process that ends now, if it has not already."""
    process.terminate()
    try:
        return process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
