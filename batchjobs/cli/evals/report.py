"""`batchjobs evals report RUN`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from batchjobs.cli.command import Command

if TYPE_CHECKING:
    from batchjobs.deployment import Deployment

FORMATS = {".html": "html", ".md": "md", ".json": "json", ".xml": "junit"}


@click.command(cls=Command, example="batchjobs evals report run_4c1f… -o report.html")
@click.argument("run")
@click.option("-o", "--output", metavar="FILE", required=True, help="Where to (- is stdout).")
@click.option(
    "--format",
    "kind",
    type=click.Choice(list(FORMATS.values())),
    help="By default by FILE's ending: .html, .md, .json, .xml (junit).",
)
def report(run: str, output: str, kind: str | None) -> None:
    """Write a run's report as one file that stands alone.

    Verdict, scores, trend, tags, and the items that differ from the baseline with both answers.
    """
    from pathlib import Path

    from batchjobs.cli.delivery import STREAM
    from batchjobs.cli.evals.place import open_place
    from batchjobs.errors import UsageError

    chosen = kind or FORMATS.get(Path(output).suffix.lower())
    if chosen is None:
        raise UsageError(f"{output} does not tell its format: name it with --format html.")
    with open_place() as place:
        text = _text(place.deployment, run, chosen)
    if output == STREAM:
        click.echo(text, nl=False)
        return
    Path(output).write_text(text, encoding="utf-8")
    click.echo(f"report: {output}")


def _text(deployment: Deployment, run_id: str, kind: str) -> str:
    from batchjobs.evals.history import scored_run
    from batchjobs.evals.reporting.content import gather
    from batchjobs.evals.reporting.html import html_report
    from batchjobs.evals.reporting.json_form import json_report
    from batchjobs.evals.reporting.junit import junit_report
    from batchjobs.evals.reporting.markdown import markdown_report

    content = gather(deployment, run_id)
    match kind:
        case "html":
            return html_report(content)
        case "md":
            return markdown_report(content)
        case "json":
            return json_report(content)
    with deployment.database.read() as session:
        return junit_report(content, scored_run(session, content.run))
