"""A job that others work on, to its end."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from batchjobs.cli.account import Account
from batchjobs.cli.exits import Exit
from batchjobs.cli.progress import ProgressBar, progress_between
from batchjobs.cli.render import late_sentence
from batchjobs.client.base import Client
from batchjobs.client.batch import Batch
from batchjobs.errors import Interrupted, RemoteError

NEWS_SECONDS = 10.0
"""How long is waited for news at most, before the rate is shown anew."""


class Following:
    """The rest of `submit` and `resume` where a server has the job."""

    def __init__(self, client: Client, account: Account) -> None:
        self._client = client
        self._account = account

    def leave(self, job_id: str) -> Exit:
        """Without waiting for anything, its validation neither."""
        sentence = f"Its workers run it. Follow it with: {self._go_on(job_id)}"
        return self._account.leave(self._client.batch(job_id), sentence)

    def run(self, job_id: str) -> Exit:
        """Raises Interrupted with how to go on."""
        return self._account.conclude(follow(self._client, job_id, go_on=self._go_on(job_id)))

    def _go_on(self, job_id: str) -> str:
        if self._account.destinations.options:
            return self._account.resume_command(job_id)
        return watch_command(job_id)


def watch_command(job_id: str) -> str:
    return f"batchjobs watch {job_id}"


def follow(client: Client, job_id: str, *, go_on: str) -> Batch:
    """Wait until the job has ended; how it ended. `go_on` is the command that waits for more of it.

    Raises:
        Interrupted: by Ctrl-C or SIGTERM; the job goes on.
    """
    try:
        with _heeding_sigterm(), ProgressBar() as bar:
            return _follow(client, client.batch(job_id), bar)
    except KeyboardInterrupt as stopped:
        raise Interrupted(
            f"Stopped watching; the job goes on. Come back with: {go_on}"
        ) from stopped
    except RemoteError as lost:
        lost.add_note(f"The job is not lost with it. Come back with: {go_on}")
        raise


def _follow(client: Client, batch: Batch, bar: ProgressBar) -> Batch:
    first, began = batch, time.monotonic()
    told: set[str] = set()
    advice = None if batch.is_terminal else client.advice(batch)
    while not batch.is_terminal:
        for sentence in (advice, batch.notice, late_sentence(batch)):
            if sentence and sentence not in told:
                told.add(sentence)
                bar.say(sentence)
        bar.show(progress_between(first, batch, time.monotonic() - began))
        batch = client.wait(batch, seconds=NEWS_SECONDS)
    return batch


@contextmanager
def _heeding_sigterm() -> Iterator[None]:
    """As Ctrl-C is. Only the main thread hears signals."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
