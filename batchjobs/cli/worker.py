"""`batchjobs worker`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from batchjobs.cli.command import Command
from batchjobs.cli.exits import Exit
from batchjobs.cli.quantize import overrides, quantize_option

if TYPE_CHECKING:
    from batchjobs.deployment import Deployment
    from batchjobs.worker.engines import EngineSource
    from batchjobs.worker.progress import RunReport
    from batchjobs.worker.stop import StopSignal

_KEPT = "Interrupted, and what is done is kept. Go on with: batchjobs worker --once"


@click.command(cls=Command, example="batchjobs worker --once")
@click.option("--once", is_flag=True, help="End when nothing is waiting, not on a signal.")
@click.option(
    "--model", "models", multiple=True, metavar="NAME", help="Run lines of this model only."
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve figures for Prometheus here; 0 takes a free port.",
)
@click.option("--profile", is_flag=True, help="Show where the engine's time went, run by run.")
@quantize_option
def worker(
    once: bool,
    models: tuple[str, ...],
    metrics_port: int | None,
    profile: bool,
    quantize: str | None,
) -> Exit:
    """Run the jobs that are waiting, the most urgent first.

    Then waits for more, the model loaded. Ctrl-C or SIGTERM ends it: shards are given back.
    """
    from batchjobs import catalogue
    from batchjobs.cli.deployment import open_deployment
    from batchjobs.cli.logs import log_to_stderr
    from batchjobs.worker.engines import CheckpointEngines, KeptEngines

    log_to_stderr("WARNING" if once else "INFO")
    with open_deployment(**overrides(quantize)) as deployment:
        with deployment.database.read() as session:
            wanted = {catalogue.resolve(session, name).name for name in models} or None
        kept = KeptEngines(CheckpointEngines(deployment.settings, profiled=profile))
        options: dict[str, Any] = {
            "engines": _watched(deployment, kept, metrics_port),
            "models": wanted,
        }
        return _run_once(deployment, options) if once else _run_on(deployment, options)


def _watched(deployment: Deployment, engines: EngineSource, port: int | None) -> EngineSource:
    """With figures for Prometheus, if there is a port for them."""
    settings = deployment.settings
    port = settings.metrics_port if port is None else port
    if port is None:
        return engines
    from batchjobs.worker.figures import WatchedEngines, serve_figures

    watched = WatchedEngines(engines)
    port = serve_figures(watched, host=settings.metrics_host, port=port)
    click.echo(f"Metrics: http://{settings.metrics_host}:{port}/metrics", err=True)
    return watched


def _run_once(deployment: Deployment, options: dict[str, Any]) -> Exit:
    from batchjobs.cli.progress import ProgressBar
    from batchjobs.cli.running import stop_signal
    from batchjobs.errors import Interrupted
    from batchjobs.worker.runner import run_jobs

    stop = stop_signal(deployment, advice=_KEPT)
    try:
        with stop.install(), ProgressBar() as bar:
            report = run_jobs(deployment, stop=stop, on_progress=bar.show, **options)
    except Interrupted as stopped:
        raise Interrupted(_KEPT) from stopped
    _show(report)
    if not report.models:
        click.echo("Nothing was waiting.")
    return Exit.DONE


def _run_on(deployment: Deployment, options: dict[str, Any]) -> Exit:
    from batchjobs.cli.running import stop_signal
    from batchjobs.errors import Interrupted
    from batchjobs.worker.runner import work_on

    stop = stop_signal(deployment, advice="Its shards go to the next worker.")
    click.echo("Waiting for jobs. Ctrl-C ends it.")
    work = partial(work_on, deployment, stop=stop, on_report=_show, **options)
    if deployment.settings.broker_url is not None:
        _run_with_broker(deployment, stop, work, options["models"])
    else:
        with stop.install(), suppress(Interrupted):
            work()
    click.echo("Stopped; what is done is kept.")
    return Exit.DONE


def _run_with_broker(
    deployment: Deployment,
    stop: StopSignal,
    work: Callable[[], None],
    models: Collection[str] | None,
) -> None:
    """Listens for the models there are now, if for no model in particular."""
    from batchjobs import catalogue
    from batchjobs.celery_bell import celery_app
    from batchjobs.worker.celery_worker import run_worker

    with deployment.database.read() as session:
        names = models or {entry.model.name for entry in catalogue.entries(session)}
    url = deployment.settings.broker_url
    assert url is not None
    run_worker(celery_app(url.get_secret_value()), models=names, stop=stop, work=work)


def _show(report: RunReport) -> None:
    from batchjobs.cli.summary import report_lines

    for sentence in report_lines(report):
        click.echo(sentence)
