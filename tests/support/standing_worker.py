"""A worker process for whatever jobs come, with real parts but made-up logits.

`python -m tests.support.standing_worker` serves the deployment of the environment until SIGTERM,
and says when it is ready for one.
"""

from __future__ import annotations

import sys

from batchjobs.deployment import Deployment
from batchjobs.errors import Interrupted
from batchjobs.settings import Settings
from batchjobs.worker.runner import work_on
from batchjobs.worker.stop import StopSignal
from executor.settings import Limits
from tests.support.engines import FakeEngines

READY = "ready\n"
LIMITS = Limits(
    max_num_seqs=8, max_num_batched_tokens=256, max_model_len=1024, num_blocks=1024, block_size=8
)
"""A token is a byte here, and other people's clients send long prompts."""


def main() -> int:
    settings = Settings.load()
    stop = StopSignal(grace_seconds=settings.stop_grace_seconds, forced_exit=9)
    with Deployment.open(settings) as deployment, stop.install():
        sys.stdout.write(READY)
        sys.stdout.flush()
        try:
            work_on(deployment, engines=FakeEngines(LIMITS), stop=stop)
        except Interrupted:
            return 0


if __name__ == "__main__":
    sys.exit(main())
