"""`scripts/eval-parity`: real data, scored by lm-evaluation-harness and by us, item by item."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from batchjobs import catalogue
from batchjobs.cli.evals.course import Course
from batchjobs.client.embedded import EmbeddedClient
from batchjobs.deployment import Deployment
from batchjobs.evals import history
from batchjobs.evals.starting import RunOrder, start_run
from batchjobs.evals.suite_file import read_suite
from batchjobs.evals.workplace import Workplace
from batchjobs.settings import Settings
from batchjobs.sources import pin_source
from batchjobs.worker.default_model import fetch_weights
from benchmarks.eval_parity import harness
from benchmarks.eval_parity.compare import compare_arc, compare_gsm8k
from benchmarks.eval_parity.data import fetch, write_datasets
from benchmarks.eval_parity.suites import MODEL, write_suites

COMPARE = {"arc": compare_arc, "gsm8k": compare_gsm8k}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}


def main() -> None:
    asked = _arguments()
    folder: Path = asked.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    model = asked.model or fetch_weights(folder / "models")
    write_datasets(fetch(folder), folder, arc=asked.arc, gsm8k=asked.gsm8k)
    for task in asked.tasks:
        if not (asked.keep and (folder / f"harness-{task}.jsonl").exists()):
            _run_harness(asked.harness_python, folder, model, task)
    ours = _run_ours(folder, model, asked.tasks)
    for task in asked.tasks:
        with (folder / f"harness-{task}.jsonl").open() as stream:
            theirs = [json.loads(line) for line in stream]
        for sentence in COMPARE[task](theirs, ours[task]):
            print(sentence)  # noqa: T201  # it is the program's output


def _run_harness(python: Path, folder: Path, model: Path, task: str) -> None:
    command = [str(python), str(Path(harness.__file__)), str(folder), str(model), task]
    subprocess.run(command, check=True, env={**os.environ, **_OFFLINE})  # noqa: S603  # it is ours


def _run_ours(folder: Path, model: Path, tasks: list[str]) -> dict[str, dict[str, dict]]:  # type: ignore[type-arg]
    suites = write_suites(folder)
    pinned = pin_source(str(model))
    settings = Settings.load(home=folder / "home", dtype="float32", url=None)
    with Deployment.open(settings) as deployment:
        with deployment.database.write() as session:
            catalogue.add(
                session,
                deployment.clock,
                name=MODEL,
                source=pinned.location,
                revision=pinned.revision,
            )
        place = Workplace(deployment=deployment, client=EmbeddedClient(deployment))
        files = {task: read_suite(suites[task]) for task in tasks}
        run_ids = [start_run(place, file, RunOrder()) for file in files.values()]
        found = {}
        for task, run in zip(tasks, Course(place, quiet=True).see_through(run_ids), strict=True):
            with deployment.database.read() as session:
                answers = history.answers_page(session, deployment.store, run, limit=1 << 30)
            found[task] = {answer.item: dict(answer.record) for answer in answers}
            (folder / f"ours-{task}.json").write_text(json.dumps(found[task]))
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/eval-parity", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("eval-parity"))
    parser.add_argument("--model", type=Path, help="its folder; by default the default model")
    parser.add_argument("--harness-python", type=Path, default=Path(sys.executable))
    parser.add_argument("--arc", type=int, default=240, help="items of ARC-Easy")
    parser.add_argument("--gsm8k", type=int, default=50, help="items of GSM8K")
    parser.add_argument("--tasks", nargs="+", choices=list(COMPARE), default=list(COMPARE))
    parser.add_argument("--keep", action="store_true", help="take the harness's earlier results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
