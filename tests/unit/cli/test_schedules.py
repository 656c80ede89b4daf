from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from batchjobs.cli.exits import Exit
from batchjobs.deployment import Deployment
from batchjobs.schedules.firing import tick
from batchjobs.settings import Settings
from tests.support.api import lines
from tests.support.cli import run, run_json
from tests.support.engines import add_models
from tests.support.evals import rows, write_suite

SUITE = """\
suite: echo
dataset:
  path: items.jsonl
request:
  url: /v1/chat/completions
  body:
    messages:
      - role: user
        content: "Say {{ word }}"
scorers:
  - kind: exact
    target: "{{ word }}"
"""


@pytest.fixture
def requests(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Of a model that is in the catalogue."""
    home = request.getfixturevalue("data" if "data" in request.fixturenames else "home")
    with Deployment.open(Settings.load(home=home)) as deployment:
        add_models(deployment, "tiny")
    path = tmp_path / "requests.jsonl"
    path.write_bytes(lines(2))
    return path


def add(requests: Path, *more: str) -> str:
    made = run("schedules", "add", "nightly", "--cron", "0 2 * * *", "--file", str(requests), *more)
    assert made.exit_code == 0, made.stderr
    return made.stdout


def test_added_schedule_tells_its_next_runs(data: Path, requests: Path) -> None:
    said = add(requests, "--tz", "Asia/Shanghai", "--by", "07:00")
    assert said.startswith("nightly is added. Next runs:\n")
    assert len(re.findall(r"^  \d{4}-\d\d-\d\d 02:00 Asia/Shanghai \(", said, re.M)) == 3
    table = run("schedules", "list").stdout
    assert "nightly" in table
    assert "0 2 * * * Asia/Shanghai" in table


def test_schedule_is_paused_resumed_run_and_shown(data: Path, requests: Path) -> None:
    add(requests)
    assert "is paused" in run("schedules", "pause", "nightly").stdout
    assert "paused" in run("schedules", "list").stdout
    assert "runs next: " in run("schedules", "resume", "nightly").stdout
    assert "has not been due yet" in run("schedules", "history", "nightly").stdout
    assert "is due now" in run("schedules", "run", "nightly").stdout
    assert "(run now)" in run("schedules", "history", "nightly").stdout
    [slot] = run_json("schedules", "history", "nightly")["data"]
    assert slot["kind"] == "manual"


def test_removed_schedule_is_gone(data: Path, requests: Path) -> None:
    add(requests)
    assert run("schedules", "remove", "nightly").stdout == "nightly is removed.\n"
    assert "No schedules yet" in run("schedules", "list").stdout
    assert run_json("schedules", "list") == []


def test_file_is_the_one_that_was_added(home: Path, requests: Path) -> None:
    add(requests)
    requests.write_bytes(lines(7))
    run("schedules", "run", "nightly")
    with Deployment.open(Settings.load(home=home)) as deployment:
        tick(deployment)
    [slot] = run_json("schedules", "history", "nightly")["data"]
    batch = run_json("status", slot["batch_id"])
    assert batch["metadata"]["schedule"] == "nightly"
    [schedule] = run_json("schedules", "list")
    assert schedule["input_file_id"] == batch["input_file_id"]
    assert schedule["last_run"]["batch_id"] == batch["id"]


def test_file_with_a_bad_line_is_refused_at_once(data: Path, requests: Path) -> None:
    requests.write_bytes(requests.read_bytes() + lines(1) + b'{"custom_id": 7}\n')
    made = run("schedules", "add", "nightly", "--cron", "0 2 * * *", "--file", str(requests))
    assert made.exit_code in (Exit.INVALID, Exit.USAGE)
    assert made.stdout == ""
    assert "Line 3 of the file: The custom ID for this request is a duplicate" in made.stderr
    assert "and 1 other problem" in made.stderr
    assert made.stderr.count("\n") == 1
    assert run_json("schedules", "list") == []


def test_suite_with_a_mistake_is_refused_at_once(home: Path, tmp_path: Path) -> None:
    suite = tmp_path / "echo.yaml"
    suite.write_text(SUITE.replace("scorers", "skorers"))
    made = run("schedules", "add", "nightly", "--cron", "0 2 * * *", "--suite", str(suite))
    assert made.exit_code == Exit.INVALID
    assert "line 10: skorers" in made.stderr


@pytest.mark.parametrize(
    ("model", "changes", "complaint"),
    [
        ("nobody", {}, 'There is no model "nobody"'),
        (None, {"model": None}, "names no model: name one with --model"),
        (None, {"dataset": {"source": "gone.jsonl"}}, "gone.jsonl"),
        (None, {"scorers": [{"type": "exact", "target": "{{ m }}"}]}, "item-0 does not fit"),
    ],
)
def test_suite_that_could_not_be_started_is_refused_at_once(
    home: Path, tmp_path: Path, model: str | None, changes: dict[str, Any], complaint: str
) -> None:
    with Deployment.open(Settings.load(home=home)) as deployment:
        add_models(deployment, "tiny")
    path = write_suite(tmp_path, rows(2), **changes)
    chosen = () if model is None else ("--model", model)
    made = run("schedules", "add", "n", "--cron", "0 2 * * *", "--suite", str(path), *chosen)
    assert made.exit_code in (Exit.INVALID, Exit.USAGE)
    assert complaint in made.stderr
    assert run_json("schedules", "list") == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("add", "n", "--cron", "0 2 * * *"), Exit.USAGE, "either suites (--suite) or a file"),
        (("pause", "none"), Exit.ERROR, "There is no schedule 'none'"),
        (("history", "none"), Exit.ERROR, "There is no schedule 'none'"),
        (("remove", ".."), Exit.ERROR, "There is no schedule '..'"),
    ],
)
def test_mistake_is_one_sentence(
    data: Path, arguments: tuple[str, ...], code: Exit, said: str
) -> None:
    result = run("schedules", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--cron", "0 25 * * *", "Bad hour"),
        ("--tz", "Mars/Olympus", "There is no time zone"),
        ("--by", "7 pm", "no time of day"),
        ("--catch-up", "1y", "no span of time"),
        ("--window", "1y", "Invalid value: '1y'"),
    ],
)
def test_wrong_option_is_one_sentence(
    data: Path, requests: Path, option: str, value: str, said: str
) -> None:
    options = {"--cron": "0 2 * * *", option: value}
    words = [word for pair in options.items() for word in pair]
    result = run("schedules", "add", "nightly", "--file", str(requests), *words)
    assert (result.exit_code, result.stdout) == (Exit.USAGE, "")
    assert said in result.stderr
    assert json.loads(run("schedules", "list", "--json").stdout) == []
