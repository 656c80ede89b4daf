"""`kill -9` at random moments of a run on the real engine and the real model, then resume."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from batchjobs.deployment import Deployment
from batchjobs.models import Part
from batchjobs.settings import Settings
from tests.support.processes import environment_of, python

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

SUBJECTS = ("the sea", "bread", "7 x 6", "Lisbon", "a cat", "iron", "the year 1900", "tea")


def request_line(number: int) -> str:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": f"Say something on {SUBJECTS[number % 8]}."}],
        "max_tokens": 4 + number * 7 % 40,
        "temperature": 0.7 if number % 2 else 0,
        "n": 2 if number % 5 == 0 else 1,
    }
    if number % 17 == 0:
        body["max_tokens"] = 1_000_000
    request = {"custom_id": f"line-{number}", "method": "POST", "url": "/v1/chat/completions"}
    return json.dumps({**request, "body": body})


EAGER = {"BATCHJOBS_CHECKPOINT_SECONDS": "0.5", "BATCHJOBS_SHARD_MAX_LINES": "32"}


@contextmanager
def command(home: Path, *arguments: str, **settings: str) -> Iterator[subprocess.Popen[str]]:
    """A batchjobs process; it is dead when the context ends."""
    environment = environment_of(home, {"max_num_seqs": 8}) | settings
    with python("-m", "batchjobs", *arguments, environment=environment) as process:
        yield process


def must_run(home: Path, *arguments: str, **settings: str) -> str:
    with command(home, *arguments, **settings) as process:
        said, complained = process.communicate(timeout=300)
        assert process.returncode in (0, 3), complained
        return said


def parts(home: Path) -> list[tuple[int, int]]:
    """(row id, lines) of every committed part."""
    with (
        Deployment.open(Settings.load(home=home)) as deployment,
        deployment.database.read() as session,
    ):
        rows = session.execute(select(Part.id, Part.completed_lines + Part.failed_lines))
        return [(row[0], row[1]) for row in rows]


def longest_gap(home: Path, process: subprocess.Popen[str]) -> float:
    """Seconds from one commit to the next, at most, until the process ends."""
    seen, last, gap = len(parts(home)), time.monotonic(), 0.0
    while process.poll() is None:
        time.sleep(0.05)
        if len(parts(home)) != seen:
            now = time.monotonic()
            gap = max(gap, now - last) if seen else 0.0
            seen, last = len(parts(home)), now
    return gap


def wait_for_parts(home: Path, process: subprocess.Popen[str], count: int) -> None:
    """Until `count` more parts are committed, or the process has ended."""
    before = len(parts(home))
    while len(parts(home)) < before + count and process.poll() is None:
        time.sleep(0.02)


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def answers(path: Path) -> dict[str, Any]:
    return {r["custom_id"]: r["response"]["body"]["choices"] for r in records(path)}


@pytest.fixture
def home(tmp_path: Path, default_model: Path) -> Path:
    must_run(tmp_path / "home", "models", "add", "m", str(default_model))
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("kills", "count"), [(3, 60), pytest.param(6, 120, marks=pytest.mark.slow)]
)
def test_kills_lose_nothing_and_double_nothing(
    home: Path, tmp_path: Path, kills: int, count: int
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(request_line(number) for number in range(count)))
    whole = [tmp_path / "whole.jsonl", tmp_path / "whole-errors.jsonl"]
    copies = ("-o", str(whole[0]), "--errors", str(whole[1]))
    with command(home, "submit", str(source), *copies) as process:
        assert longest_gap(home, process) < 10, "a crash could cost more than ten seconds of work"
        assert process.returncode == 3

    job_id = json.loads(must_run(home, "submit", str(source), "--detach", "--json", **EAGER))["id"]
    chance = random.Random(20261130)
    kept: list[tuple[int, int]] = []
    for kill in range(kills):
        with command(home, "resume", job_id, **EAGER) as process:
            if kill % 3:
                wait_for_parts(home, process, 2)
                time.sleep(chance.uniform(0, 1.5))
            else:  # while it starts, loads or runs
                time.sleep(chance.uniform(0.3, 4))
            assert process.poll() is None, "the job ended before all kills"
        now = parts(home)
        assert now[: len(kept)] == kept, "a committed part changed or went away"
        kept = now
    assert 4 <= sum(lines for _, lines in kept) < count  # two of three kills wait for two parts

    mended = [tmp_path / "mended.jsonl", tmp_path / "mended-errors.jsonl"]
    must_run(home, "resume", job_id, "-o", str(mended[0]), "--errors", str(mended[1]))
    finished = [r["custom_id"] for path in mended for r in records(path)]
    assert sorted(finished) == sorted(f"line-{number}" for number in range(count))
    assert [r["custom_id"] for r in records(mended[0])] == [
        r["custom_id"] for r in records(whole[0])
    ]
    assert answers(mended[0]) == answers(whole[0])
    assert len(records(mended[1])) == len(records(whole[1])) == len(range(0, count, 17))


def test_a_killed_run_of_embeddings_goes_on(tmp_path: Path, embedding_model: Path) -> None:
    home, source = tmp_path / "home", tmp_path / "in.jsonl"
    must_run(home, "models", "add", "e", str(embedding_model))
    text = "Embeddings of number {} are long: " + "so are their lines. " * 5
    lines = [
        {
            "custom_id": f"line-{number}",
            "method": "POST",
            "url": "/v1/embeddings",
            "body": {"model": "e", "input": [text.format(number), f"{number}"]},
        }
        for number in range(400)
    ]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    eager = {
        "BATCHJOBS_CHECKPOINT_SECONDS": "0.1",
        "BATCHJOBS_SHARD_MAX_LINES": "64",
        "BATCHJOBS_MAX_NUM_BATCHED_TOKENS": "128",
    }
    job_id = json.loads(must_run(home, "submit", str(source), "--detach", "--json", **eager))["id"]
    with command(home, "resume", job_id, **eager) as process:
        wait_for_parts(home, process, 2)
        assert process.poll() is None, "the job ended before the kill"
        process.kill()
        process.wait()
        kept = parts(home)
    assert 0 < sum(lines for _, lines in kept) < 400
    must_run(home, "resume", job_id, "-o", str(tmp_path / "out.jsonl"), **eager)
    found = records(tmp_path / "out.jsonl")
    assert [record["custom_id"] for record in found] == [f"line-{i}" for i in range(400)]
    bodies = [record["response"]["body"] for record in found]
    assert {len(item["embedding"]) for body in bodies for item in body["data"]} == {384}
