"""A worker process on the deployment of the environment, with real parts but made-up logits.

`python -m tests.support.fake_worker JOB` ends when the job has ended, whoever answered what. While
`$BATCHJOBS_HOME/slowly` exists, every step takes at least `STEP_SECONDS`.
"""

from __future__ import annotations

import sys
import time

from batchjobs.deployment import Deployment
from batchjobs.settings import Settings
from batchjobs.states import TERMINAL
from batchjobs.worker.progress import Progress
from batchjobs.worker.runner import run_jobs
from batchjobs.worker.stop import StopSignal
from tests.support.engines import FakeEngines
from tests.support.jobs import load_job

STEP_SECONDS = 0.03


def main(job_id: str) -> None:
    # At every step, as a run reports its progress whenever it polls.
    settings = Settings.load(poll_seconds=1e-9)
    brake = settings.home / "slowly"

    def pace(progress: Progress) -> None:
        if brake.exists():
            time.sleep(STEP_SECONDS)

    with Deployment.open(settings) as deployment:
        while load_job(deployment, job_id).status not in TERMINAL:
            run_jobs(
                deployment,
                job_id=job_id,
                engines=FakeEngines(),
                stop=StopSignal(grace_seconds=60, forced_exit=9),
                on_progress=pace,
            )
            time.sleep(STEP_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1])
