"""A worker that a Celery message wakes.

Celery keeps the process: its main thread listens to the broker and to signals. The engine runs
in a thread beside it, finds its work in the database and does not depend on the broker: a
message only shortens its wait. Nothing forks, so CUDA is safe.
"""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections.abc import Callable, Collection
from typing import Any

from celery import Celery, signals
from celery.exceptions import SecurityWarning
from celery.worker import state

from batchjobs.celery_bell import TASK, queue_name
from batchjobs.errors import Interrupted
from batchjobs.worker.stop import StopSignal


def run_worker(
    app: Celery, *, models: Collection[str], stop: StopSignal, work: Callable[[], None]
) -> None:
    """Run `work`, which ends when `stop` is set, until SIGTERM or SIGINT; main thread only.

    A message on the queue of one of `models` wakes whoever waits on `stop`. `app` is the bell's.

    Raises whatever ended `work` other than Interrupted.
    """
    failures: list[BaseException] = []
    engine = threading.Thread(target=_guard, args=(work, failures), name="engine")

    def look() -> None:
        stop.wake()

    def shutting_down(**_: Any) -> None:
        stop.ask()

    def leave_logging_alone(**_: Any) -> None:
        """Celery would put its own handler and level in the place of ours."""

    # Its reason is messages that run code; ours are JSON and name nothing.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    app.task(name=TASK)(look)
    signals.worker_shutting_down.connect(shutting_down)
    signals.setup_logging.connect(leave_logging_alone)
    logging.getLogger("celery").setLevel(logging.ERROR)
    # Until Celery listens to signals, `stop` does.
    with stop.install():
        engine.start()
        try:
            app.Worker(
                queues=[queue_name(model) for model in models],
                pool="threads",
                concurrency=1,
                without_gossip=True,
                without_mingle=True,
                without_heartbeat=True,
                quiet=True,
                redirect_stdouts=False,
                loglevel="ERROR",
            ).start()
        finally:
            stop.set()
            engine.join()
    if failures:
        raise failures[0]


def _guard(work: Callable[[], None], failures: list[BaseException]) -> None:
    try:
        work()
    except Interrupted:
        pass
    except BaseException as failed:
        failures.append(failed)
    finally:
        state.should_stop = os.EX_OK  # heard by Celery's loop and by its waits for the broker
