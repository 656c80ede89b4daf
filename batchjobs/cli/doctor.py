"""`batchjobs doctor`."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from batchjobs import __version__
from batchjobs.cli.command import Command, explain, is_debugging
from batchjobs.cli.exits import Exit

if TYPE_CHECKING:
    from batchjobs.deployment import Deployment
    from batchjobs.models import Model
    from batchjobs.settings import Settings

PACKAGES = ("torch", "transformers", "tokenizers", "numba", "sqlalchemy")
_NAME_COLUMN = 24


@click.command(cls=Command, example="batchjobs doctor")
@click.option("--model", metavar="NAME", help="Try this model, not the default one.")
@click.pass_context
def doctor(ctx: click.Context, model: str | None) -> Exit:
    """Check that everything works here.

    Shows versions, where data lies, what the engine would use and why, and runs one request end to
    end. Of a server ($BATCHJOBS_URL) it shows whether it can be used instead, and its models. Ends
    with 1 at the first thing that does not work.
    """
    try:
        for name, value in _findings(model):
            click.echo(f"{name:<{_NAME_COLUMN}}{value}")
    except Exception as error:
        if is_debugging(ctx):
            raise
        sentence, code = explain(error)
        click.echo(sentence, err=True)
        return code
    click.echo("Everything works.")
    return Exit.DONE


def _findings(name: str | None) -> Iterator[tuple[str, str]]:
    """What is so, a fact at a time; raises at the first thing that is not as it must be."""
    from batchjobs.cli.deployment import open_deployment
    from batchjobs.settings import Settings

    yield from _versions()
    settings = Settings.load()
    if settings.url:
        yield from _server(settings, settings.url, name)
        return
    with open_deployment() as deployment:
        yield from _data(deployment)
        model = choose_model(deployment, name)
        yield from _engine(deployment, model)


def _versions() -> Iterator[tuple[str, str]]:
    from importlib.metadata import version

    yield "batchjobs", __version__
    yield "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    for package in PACKAGES:
        yield package, version(package)


def _server(settings: Settings, url: str, name: str | None) -> Iterator[tuple[str, str]]:
    """Of the server whose workers run what is submitted here."""
    from batchjobs.cli.render import plain
    from batchjobs.client.remote import RemoteClient
    from batchjobs.errors import NotFoundError

    with RemoteClient(url, settings.api_key or None) as client:
        client.check_ready()
        yield "server", f"{url} (ready)"
        models = client.models()
    yield "key", "none is needed" if not settings.api_key else "not refused"
    for model in models:
        aliases = f" (also {', '.join(model.aliases)})" if model.aliases else ""
        yield "model", plain(f"{model.name}{aliases}")
    known = {word for model in models for word in (model.name, *model.aliases)}
    if not known or (name is not None and name not in known):
        what = "no model" if name is None else f"no model '{name}'"
        raise NotFoundError(
            f"{url} has {what}; add it there with: batchjobs models add NAME PATH_OR_HUB_ID"
        )


def _data(deployment: Deployment) -> Iterator[tuple[str, str]]:
    from batchjobs import catalogue

    settings = deployment.settings
    free = shutil.disk_usage(settings.home).free
    yield "home", f"{settings.home} ({free / 1e9:,.1f} GB free)"
    yield "database", deployment.database.place
    yield "store", settings.store_url or str(settings.store_dir)
    with deployment.database.read() as session:
        for entry in catalogue.entries(session):
            aliases = f" (also {', '.join(entry.aliases)})" if entry.aliases else ""
            yield "model", f"{entry.model.name}{aliases}: {entry.model.source}"


def choose_model(deployment: Deployment, name: str | None) -> Model:
    """The one of this name, else the default model, else any. Raises NotFoundError."""
    from batchjobs import catalogue
    from batchjobs.errors import NotFoundError
    from batchjobs.worker import default_model

    with deployment.database.read() as session:
        if name is not None:
            return catalogue.resolve(session, name)
        known = {entry.model.name: entry.model for entry in catalogue.entries(session)}
    if not known:
        raise NotFoundError(
            "The catalogue has no model to try. Fetch the default one: batchjobs models fetch"
        )
    return known.get(default_model.NAME) or next(iter(known.values()))


def _engine(deployment: Deployment, model: Model) -> Iterator[tuple[str, str]]:
    from batchjobs.cli.render import plain
    from batchjobs.worker.checkup import (
        QUESTION,
        device_decisions,
        kernel_decisions,
        try_model,
    )

    yield from device_decisions(deployment.settings)
    trial = try_model(deployment.settings, model)
    yield from kernel_decisions()
    for run in trial.report.models:
        yield from (decision for decision in run.decisions if decision[0] not in _SAID)
        yield "request", f"{run.model}: {QUESTION} → {plain(trial.answer)}"
        yield "speed", f"{run.wall_seconds:.2f} s with the model loaded"


_SAID = frozenset({"device", "threads"})
"""Decisions that do not wait for the model."""
