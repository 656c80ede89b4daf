from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from batchjobs.errors import Interrupted
from batchjobs.worker.stop import SIGNALS, StopSignal

STUCK = """
import time
from batchjobs.worker.stop import StopSignal
stop = StopSignal(grace_seconds={grace}, forced_exit=5, advice="Go on so.")
with stop.install():
    print("ready", flush=True)
    while True:
        time.sleep(1)
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_asks_the_work_to_stop(number: int) -> None:
    stop = StopSignal(grace_seconds=60, forced_exit=9)
    with stop.install():
        stop.check()
        os.kill(os.getpid(), number)
        assert stop.is_set
        with pytest.raises(Interrupted):
            stop.check()


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with StopSignal(grace_seconds=60, forced_exit=9).install():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before


@pytest.mark.parametrize(("grace", "signals"), [(0.05, 1), (60, 2)])
def test_work_that_does_not_stop_is_ended_with_advice(grace: float, signals: int) -> None:
    command = [sys.executable, "-c", STUCK.format(grace=grace)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        if signals == 2:
            process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 5
    assert said.rstrip().endswith("Go on so.")
