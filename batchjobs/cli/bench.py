"""`batchjobs bench`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchjobs.cli.command import Command
from batchjobs.cli.exits import Exit
from batchjobs.cli.quantize import overrides, quantize_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from batchjobs.worker.bench.run import BenchReport
    from batchjobs.worker.bench.ways import WayResult


@click.command(
    cls=Command, example="batchjobs bench --workload mixed --requests 64 --price-per-hour 0.40"
)
@click.option("--model", metavar="NAME", help="Measure this model, not the default one.")
@click.option(
    "--workload",
    default="mixed",
    show_default=True,
    metavar="WORKLOAD",
    help="mixed, prefix, templated, or a FILE.jsonl of requests.",
)
@click.option(
    "--against",
    default="static,unchunked",
    show_default=True,
    metavar="WAYS",
    help="Of static, sorted (static, by answer length) and unchunked; '' for none.",
)
@click.option("--requests", type=click.IntRange(min=1), metavar="N", help="Only the first N.")
@click.option(
    "--price-per-hour",
    type=click.FloatRange(min=0, min_open=True),
    metavar="X",
    help="What an hour of this machine costs: shows the cost per million tokens.",
)
@click.option("--profile", is_flag=True, help="Show where the time of our steps went.")
@quantize_option
@click.option("--no-picture", is_flag=True, help="Leave the picture out, and matplotlib with it.")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("batchjobs-bench"),
    show_default=True,
    metavar="DIR",
    help="Where bench.json and bench.png go.",
)
def bench(
    model: str | None,
    workload: str,
    against: str,
    requests: int | None,
    price_per_hour: float | None,
    profile: bool,
    quantize: str | None,
    no_picture: bool,
    output: Path,
) -> Exit:
    """Measure the engine here, and static batching beside it.

    All ways answer the same requests, one after the other, in one run. Read the table and the
    picture with docs/bench.md. A slow machine takes minutes for a workload: --requests 32 is a
    quick look.
    """
    from batchjobs.cli.deployment import open_deployment
    from batchjobs.cli.doctor import choose_model
    from batchjobs.worker.bench.picture import check_can_draw, draw
    from batchjobs.worker.bench.run import BenchPlan, check_plan, run_bench

    ways = tuple(way.strip() for way in against.split(",") if way.strip())
    plan = BenchPlan(workload=workload, against=ways, requests=requests, profiled=profile)
    check_plan(plan)
    if not no_picture:
        check_can_draw()
    output.mkdir(parents=True, exist_ok=True)
    with open_deployment(**overrides(quantize)) as deployment:
        settings, chosen = deployment.settings, choose_model(deployment, model)
    with _progress() as show:
        report = run_bench(settings, chosen, plan, show)
    for line in _report_lines(report, price_per_hour):
        click.echo(line)
    _write_json(report, price_per_hour, output / "bench.json")
    click.echo(f"figures: {output / 'bench.json'}")
    if not no_picture:
        heading = f"{report.model}, {Path(workload).name}, {report.ours.figures.requests} requests"
        draw(report.results, output / "bench.png", heading=heading)
        click.echo(f"picture: {output / 'bench.png'}")
    return Exit.DONE


def _report_lines(report: BenchReport, price_per_hour: float | None) -> Iterator[str]:
    from batchjobs.cli.figures import aligned, figure_rows
    from batchjobs.cli.render import plain
    from batchjobs.cli.summary import profile_lines

    ours = report.ours
    yield (
        f"{plain(report.model)}, {plain(report.plan.workload)}: {ours.figures.requests:,} requests,"
        f" {ours.figures.prompt_tokens:,} tokens in, {ours.figures.output_tokens:,} out"
    )
    head = ("", *(result.name for result in report.results))
    yield from aligned(
        [head, *figure_rows([result.figures for result in report.results], price_per_hour)]
    )
    for result in report.results[1:]:
        times = result.figures.wall_seconds / ours.figures.wall_seconds
        same = report.equal_answers.get(result.name)
        equal = "" if same is None else f"; {same:,} of {len(ours.answers):,} answers are the same"
        yield f"{result.name} ({result.title}) takes {times:.2f} times as long as ours{equal}"
    yield from _company_lines(report.results)
    yield from (f"suggestion: {sentence}" for sentence in ours.advice)
    if report.profile is not None:
        yield from profile_lines(report.profile)


def _company_lines(results: Sequence[WayResult]) -> Iterator[str]:
    from batchjobs.worker.bench.company import NOTICEABLE

    if max(result.others_share for result in results) >= NOTICEABLE:
        shares = ", ".join(f"{result.others_share:.0%} during {result.name}" for result in results)
        yield (
            f"note: other programs took processor time ({shares}), which figures of one way beside"
            " another show as well: measure on a machine that does nothing else"
        )


def _write_json(report: BenchReport, price_per_hour: float | None, path: Path) -> None:
    import orjson

    value = report.as_dict(price_per_hour)
    path.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on standard error, if that is a terminal."""
    from tqdm import tqdm

    with tqdm(file=sys.stderr, disable=None, leave=False) as bar:

        def show(way: str, done: int, total: int) -> None:
            bar.total = total
            bar.n = done
            bar.set_description_str(way)

        yield show
