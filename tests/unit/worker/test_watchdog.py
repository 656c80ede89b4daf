from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from batchjobs.cli.exits import Exit
from batchjobs.worker.watchdog import EXIT_CODE

ROOT = Path(__file__).parents[3]


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import time\n{program}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=ROOT,
    )


def test_process_without_a_step_is_ended_and_says_so() -> None:
    done = run(
        "from batchjobs.worker.watchdog import Watchdog\n"
        "with Watchdog(seconds=0.2):\n"
        "    time.sleep(50)\n"
    )
    assert done.returncode == EXIT_CODE == Exit.HUNG
    assert "The engine made no step for 0.2 seconds" in done.stderr


def test_process_that_steps_or_has_left_the_context_goes_on() -> None:
    done = run(
        "import threading\n"
        "from types import SimpleNamespace\n"
        "from batchjobs.worker import watchdog\n"
        "now, looks = [0.0], threading.Semaphore(0)\n"
        "watchdog.time = SimpleNamespace(monotonic=lambda: looks.release() or now[0])\n"
        "with watchdog.Watchdog(seconds=0.04) as watched:\n"
        "    for _ in range(20):\n"
        "        now[0] += 0.03\n"
        "        watched.step()\n"
        "        for _ in range(3):\n"  # its own look at the clock, and the watch's
        "            looks.acquire()\n"
        "for thread in threading.enumerate():\n"
        "    if thread.name == 'watchdog':\n"
        "        thread.join()\n"
        "now[0] += 100\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
