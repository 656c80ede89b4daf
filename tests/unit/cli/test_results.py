from __future__ import annotations

import json
from pathlib import Path

import pytest

from batchjobs.cli.exits import Exit
from tests.support.cli import finished_job, run, run_json, waiting_job
from tests.support.jobs import open_deployment


def ids_in(path: Path) -> list[str]:
    return [json.loads(line)["custom_id"] for line in path.read_text().splitlines()]


def test_both_files_are_copied(data: Path, tmp_path: Path) -> None:
    job_id = finished_job(data, failed=(2,))
    out, errors = tmp_path / "out.jsonl", tmp_path / "errors.jsonl"
    result = run("results", job_id, "-o", str(out), "--errors", str(errors))
    assert result.exit_code == Exit.DONE
    assert ids_in(out) == ["line-1", "line-3"]
    assert ids_in(errors) == ["line-2"]


def test_a_dash_is_standard_output(data: Path) -> None:
    job_id = finished_job(data)
    result = run("results", job_id, "-o", "-")
    assert [json.loads(line)["custom_id"] for line in result.stdout.splitlines()] == [
        "line-1",
        "line-2",
        "line-3",
    ]


def test_a_file_that_does_not_exist_takes_away_the_copy_of_another_run(
    data: Path, tmp_path: Path
) -> None:
    job_id = finished_job(data)
    stale = tmp_path / "errors.jsonl"
    stale.write_text("{}\n")
    result = run("results", job_id, "--errors", str(stale))
    assert not stale.exists()
    assert "No errors" in result.stderr


def test_without_options_the_first_answers_are_shown(data: Path) -> None:
    job_id = finished_job(data, 25, failed=(2,))
    rows = run("results", job_id).stdout.splitlines()
    assert rows[0].split() == ["CUSTOM_ID", "STATUS", "ANSWER"]
    assert rows[1].split() == ["line-1", "200", "to", "line-1"]
    assert rows[-1] == f"… and 5 more: batchjobs results {job_id} -o FILE"


def test_errors_are_shown_behind_the_answers(data: Path) -> None:
    job_id = finished_job(data, failed=(1,))
    rows = run("results", job_id).stdout.splitlines()
    assert rows[-1].split() == ["line-1", "400", "The", "line", "is", "bad."]


def test_a_job_that_is_not_finished_has_none_yet(data: Path) -> None:
    with open_deployment(data) as deployment:
        job_id = waiting_job(deployment)
    result = run("results", job_id)
    assert result.exit_code == Exit.ERROR
    assert "is not finished: it is in_progress, 0 of 3 done" in result.stderr
    assert run_json("results", job_id)["status"] == "in_progress"


def test_what_is_there_is_not_touched_by_a_job_that_is_not_finished(
    data: Path, tmp_path: Path
) -> None:
    with open_deployment(data) as deployment:
        job_id = waiting_job(deployment)
    kept = tmp_path / "out.jsonl"
    kept.write_text("kept")
    run("results", job_id, "-o", str(kept))
    assert kept.read_text() == "kept"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-o", "-", "--json"], "--json and a result file"),
        (["-o", "same", "--errors", "./same"], "cannot both go to"),
        (["-o", "no/such/folder/out"], "There is no folder"),
        (["-o", "."], "is a folder"),
    ],
)
def test_destinations_that_cannot_be_are_wrong_usage(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("results", "any", *arguments)
    assert result.exit_code == Exit.USAGE
    assert said in result.stderr
