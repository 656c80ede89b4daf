"""`python -m tests.support.service_worker fake|echo`: what `batchjobs worker` is, but for a
made-up engine. Says "ready" when it looks for work. While `$BATCHJOBS_HOME/slowly` exists, a fake
engine takes at least `STEP_SECONDS` a step."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from functools import partial

from batchjobs.celery_bell import celery_app
from batchjobs.deployment import Deployment
from batchjobs.errors import Interrupted
from batchjobs.settings import Settings
from batchjobs.worker.celery_worker import run_worker
from batchjobs.worker.engines import EngineSource, KeptEngines
from batchjobs.worker.runner import work_on
from batchjobs.worker.stop import StopSignal
from executor.engine import Engine
from executor.span import Span
from tests.support.echo import EchoEngines
from tests.support.engines import FakeEngines
from tests.support.jobs import MODEL

STEP_SECONDS = 0.03


def main(kind: str) -> None:
    settings = Settings.load()
    engines: EngineSource = EchoEngines() if kind == "echo" else FakeEngines()
    _brake(settings)
    stop = StopSignal(grace_seconds=settings.stop_grace_seconds, forced_exit=5)
    with Deployment.open(settings) as deployment:
        work = partial(work_on, deployment, engines=KeptEngines(engines), stop=stop)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        if settings.broker_url is None:
            with stop.install(), suppress(Interrupted):
                work()
        else:
            app = celery_app(settings.broker_url.get_secret_value())
            run_worker(app, models=[MODEL], stop=stop, work=work)


def _brake(settings: Settings) -> None:
    brake, observe = settings.home / "slowly", Engine._observe

    def slowly(engine: Engine, spans: list[Span]) -> None:
        if brake.exists():
            time.sleep(STEP_SECONDS)
        observe(engine, spans)

    Engine._observe = slowly  # type: ignore[method-assign]


if __name__ == "__main__":
    main(sys.argv[1])
