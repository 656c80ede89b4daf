"""The application: routes, errors and the caretaker around one deployment."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI

from batchjobs import __version__
from batchjobs.api import (
    access,
    batches,
    failures,
    files,
    health,
    metrics,
    models,
    origin,
    schedules,
)
from batchjobs.api.names import Names
from batchjobs.api.page import assets, sign_in
from batchjobs.api.page.kept_bands import KeptBands
from batchjobs.api.page.kept_reasons import KeptReasons
from batchjobs.api.page.sections import SECTIONS
from batchjobs.api.request_ids import RequestIds
from batchjobs.api.traffic import Traffic
from batchjobs.caretaker import Caretaker
from batchjobs.deployment import Deployment
from batchjobs.forecast import Forecast


def create_app(
    deployment: Deployment,
    *,
    require_keys: bool = False,
    names: Collection[str] | None = None,
) -> FastAPI:
    """With `require_keys`, requests without an API key are refused; with `names`, those that ask
    this server by another name (`api.names`). The caretaker runs from the application's startup to
    its shutdown. Whoever sets `state.closing` beforehand has requests answered that wait for
    something."""
    forecast = Forecast(deployment)
    caretaker = Caretaker(deployment, forecast)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with caretaker.running():
            yield

    # Without documents: what is taken and given is the public API's, and docs/api.md says the rest.
    app = FastAPI(title="batchjobs", version=__version__, openapi_url=None, lifespan=lifespan)
    app.state.deployment = deployment
    app.state.require_keys = require_keys
    app.state.closing = threading.Event()
    app.state.caretaker = caretaker
    app.state.forecast = forecast
    app.state.registry = metrics.new_registry(deployment, forecast)
    failures.install(app)
    if names is not None:
        app.add_middleware(Names, names=names)
    app.add_middleware(RequestIds)
    app.add_middleware(Traffic, registry=app.state.registry)
    for room in (files, batches, models, schedules):
        app.include_router(
            room.router,
            dependencies=[Depends(origin.check_is_not_foreign), Depends(access.read_tenant)],
        )
    app.include_router(metrics.router, dependencies=[Depends(access.check_metrics_token)])
    app.include_router(health.router)
    app.state.sections = SECTIONS
    app.state.kept_reasons = KeptReasons(deployment)
    app.state.kept_bands = KeptBands()
    for page in (sign_in.router, assets.router, *(section.router for section in SECTIONS)):
        app.include_router(page)
    return app
