"""`batchjobs worker --once`."""

from __future__ import annotations

import click

from batchjobs.cli.command import Command

_ADVICE = "Go on with: batchjobs worker --once"


@click.command(cls=Command, example="batchjobs worker --once")
@click.option("--once", is_flag=True, required=True, help="End when nothing is waiting.")
def worker(once: bool) -> None:
    """Run every job that is waiting, the most urgent first."""
    from batchjobs.cli.deployment import open_deployment
    from batchjobs.cli.progress import ProgressBar
    from batchjobs.cli.running import stop_signal
    from batchjobs.cli.summary import report_lines
    from batchjobs.errors import Interrupted
    from batchjobs.worker.engines import CheckpointEngines
    from batchjobs.worker.runner import run_jobs

    with open_deployment() as deployment:
        stop = stop_signal(deployment, advice=_ADVICE)
        try:
            with stop.install(), ProgressBar() as bar:
                report = run_jobs(
                    deployment,
                    engines=CheckpointEngines(deployment.settings),
                    on_progress=bar.show,
                    stop=stop,
                )
        except Interrupted as stopped:
            raise Interrupted(f"Interrupted, and what is done is kept. {_ADVICE}") from stopped
    for sentence in report_lines(report):
        click.echo(sentence)
    if not report.models:
        click.echo("Nothing was waiting.")
