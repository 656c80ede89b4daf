"""The command line. Nothing here, nor at the top of a command's module, imports more than click:
help must be instant."""

from __future__ import annotations

import click

from batchjobs import __version__
from batchjobs.cli.beat import beat
from batchjobs.cli.bench import bench
from batchjobs.cli.cancel import cancel
from batchjobs.cli.command import Root
from batchjobs.cli.db import db
from batchjobs.cli.doctor import doctor
from batchjobs.cli.evals import evals
from batchjobs.cli.events import events
from batchjobs.cli.keys import keys
from batchjobs.cli.listing import list_jobs
from batchjobs.cli.models import models
from batchjobs.cli.results import results
from batchjobs.cli.resume import resume
from batchjobs.cli.retry import retry
from batchjobs.cli.schedules import schedules
from batchjobs.cli.serve import serve
from batchjobs.cli.status import status
from batchjobs.cli.submit import submit
from batchjobs.cli.up import up
from batchjobs.cli.watch import watch
from batchjobs.cli.worker import worker


@click.group(cls=Root)
@click.version_option(__version__, prog_name="batchjobs")
def cli() -> None:
    """Run JSONL files of OpenAI-style requests through a model on this machine.

    Data lies in $BATCHJOBS_HOME, or on the server that $BATCHJOBS_URL names. Exit codes: 0 done,
    1 error, 2 usage, 3 done with failed lines, 4 file not valid, 5 interrupted (resumable),
    6 cancelled or expired, 7 engine hung (resumable), 8 eval worse, 9 eval without a verdict.
    """


for command in (
    submit,
    resume,
    worker,
    status,
    list_jobs,
    watch,
    results,
    cancel,
    retry,
    schedules,
    events,
    models,
    evals,
    keys,
    db,
    serve,
    beat,
    up,
    doctor,
    bench,
):
    cli.add_command(command)


def main() -> None:
    cli(prog_name="batchjobs")
