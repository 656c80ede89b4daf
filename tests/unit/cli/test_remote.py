"""Commands that talk to a server. What they do as they do it on their own data is tested there."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchjobs.cli.exits import Exit
from batchjobs.client import connection, remote
from batchjobs.deployment import Deployment
from batchjobs.files import get_file
from tests.support.cli import finished_job, run, run_json
from tests.support.engines import add_models
from tests.support.jobs import ENDPOINT, MODEL, complete_all, open_deployment, request_line
from tests.support.scripted_server import Asked, http, scripted
from tests.support.served import alive, serving

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REPEAT_SECONDS", (0.01,))
    monkeypatch.setattr(remote, "PATIENT_SECONDS", (0.01,))


@pytest.fixture
def untouched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data directory that must not come to be; the current folder is beside it."""
    folder = tmp_path / "untouched"
    monkeypatch.setenv("BATCHJOBS_HOME", str(folder))
    monkeypatch.chdir(tmp_path)
    yield folder
    assert not folder.exists()


@pytest.fixture
def served(
    tmp_path: Path, untouched: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Deployment]:
    """What the server has that commands talk to; nobody works on its jobs."""
    with open_deployment(tmp_path / "home", poll_seconds=0.02) as deployment:
        add_models(deployment, MODEL)
        with alive(deployment, "worker-1"), serving(deployment) as url:
            monkeypatch.setenv("BATCHJOBS_URL", f"{url}/v1/")
            yield deployment


def write(*names: str, path: str = "in.jsonl") -> str:
    Path(path).write_text("".join(json.dumps(request_line(name)) + "\n" for name in names))
    return path


def start(*arguments: str) -> subprocess.Popen[str]:
    """A command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "batchjobs", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_submit_prints_the_id_and_leaves_the_job_to_the_server(served: Deployment) -> None:
    result = run("submit", write("a", "b"))
    assert (result.exit_code, result.stderr) == (Exit.DONE, "")
    job_id, advice = result.stdout.splitlines()
    assert advice == f"Its workers run it. Follow it with: batchjobs watch {job_id}"
    assert run_json("status", job_id)["id"] == job_id


def test_submit_as_json_is_the_batch_object(served: Deployment) -> None:
    batch = run_json("submit", write("a"), "--metadata", "a=b", "--model", MODEL)
    assert (batch["object"], batch["endpoint"], batch["metadata"]) == (
        "batch",
        ENDPOINT,
        {"a": "b"},
    )


def test_detached_submit_says_how_its_results_are_had(served: Deployment) -> None:
    result = run("submit", write("a"), "--detach", "-o", "out.jsonl")
    assert result.exit_code == Exit.DONE
    assert result.stdout.endswith(" -o out.jsonl\n")


def test_waiting_and_detaching_exclude_each_other(served: Deployment) -> None:
    for command in (["submit", write("a")], ["retry", "batch_1"]):
        result = run(*command, "--wait", "--detach")
        assert (result.exit_code, result.stderr.count("\n")) == (Exit.USAGE, 1)


def test_bad_file_is_told_to_one_who_waits(served: Deployment) -> None:
    Path("in.jsonl").write_text(json.dumps(request_line("a")) + '\n{"custom_id": "b"}\n')
    result = run("submit", "in.jsonl", "--wait")
    assert result.exit_code == Exit.INVALID
    assert "line 2: " in result.stdout


def test_submit_waits_for_results_and_writes_them(served: Deployment) -> None:
    with start("submit", write("a", "b"), "-o", "out.jsonl", "--errors", "err.jsonl") as process:
        assert process.stdout is not None
        job_id = process.stdout.readline().strip()
        while run_json("status", job_id)["status"] == "validating":
            assert process.poll() is None
        complete_all(served, job_id, failed=(2,))
        said, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (Exit.FAILED_LINES, "")
    assert "completed: 2 of 2 done (1 failed)" in said
    assert "Results written to out.jsonl." in said
    for path, custom_id in (("out.jsonl", "a"), ("err.jsonl", "b")):
        assert json.loads(Path(path).read_text())["custom_id"] == custom_id


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "command", [["watch", "batch_1"], ["resume", "batch_1", "-o", "out.jsonl"]]
)
def test_one_who_stops_waiting_leaves_the_job_alone(
    untouched: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], number: int
) -> None:
    batch = json.dumps({"id": "batch_1", "object": "batch", "status": "in_progress"}).encode()
    is_waiting, is_over = threading.Event(), threading.Event()
    asked_for: list[str] = []

    def answer(asked: Asked) -> bytes:
        asked_for.append(f"{asked.method} {asked.path}")
        if "wait=" in asked.path:
            is_waiting.set()
            is_over.wait(60)
        return http(200, batch)

    with scripted(answer) as url:
        monkeypatch.setenv("BATCHJOBS_URL", url)
        with start(*command) as process:
            assert is_waiting.wait(60)
            process.send_signal(number)
            said, complaints = process.communicate(timeout=60)
        is_over.set()
    stopped = f"Stopped watching; the job goes on. Come back with: batchjobs {' '.join(command)}\n"
    assert (process.returncode, said, complaints) == (Exit.INTERRUPTED, "", stopped)
    assert {request.split("?")[0] for request in asked_for} == {"GET /v1/batches/batch_1"}
    assert not Path("out.jsonl").exists()


def test_ended_job_is_only_delivered_by_resume(served: Deployment) -> None:
    job_id = finished_job(served.settings.home)
    result = run("resume", job_id, "-o", "out.jsonl")
    assert result.exit_code == Exit.DONE
    assert len(Path("out.jsonl").read_text().splitlines()) == 3


def test_unfinished_lines_are_run_again_as_a_new_job(served: Deployment) -> None:
    job_id = finished_job(served.settings.home, failed=(2,))
    new_id = run("retry", job_id).stdout.splitlines()[0]
    assert new_id != job_id
    assert run_json("watch", run_json("cancel", new_id)["id"])["request_counts"]["total"] == 1


def test_standard_input_is_sent_too(served: Deployment) -> None:
    text = Path(write("a", "b")).read_bytes()
    batch = run_json("submit", "-", stdin=text)
    with served.database.read() as session:
        file = get_file(session, batch["input_file_id"])
    assert (file.bytes, file.filename) == (len(text), "stdin")


def test_places_of_results_are_urls(served: Deployment) -> None:
    job_id = finished_job(served.settings.home)
    url = os.environ["BATCHJOBS_URL"].removesuffix("/v1/")
    said = run("watch", job_id).stdout
    assert f"results: {url}/v1/files/" in said
    assert f"batchjobs results {job_id} -o FILE" in said


def test_models_of_a_server_have_names_only(served: Deployment) -> None:
    assert run_json("models", "list") == [
        {"name": MODEL, "aliases": [], "source": None, "revision": None}
    ]
    assert run("models", "list").stdout.splitlines()[1].split() == [MODEL, "–"]


@pytest.mark.parametrize(
    "command", [["add", "x", "/models/x"], ["remove", "x"], ["fetch"]], ids=lambda words: words[0]
)
def test_catalogue_of_a_server_is_not_changed_from_afar(
    served: Deployment, command: list[str]
) -> None:
    result = run("models", *command)
    assert result.exit_code == Exit.USAGE
    assert f"`batchjobs models {command[0]}` works on the data of its own machine" in result.stderr
    assert result.stderr.count("\n") == 1


def test_commands_for_the_data_here_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHJOBS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BATCHJOBS_URL", "http://elsewhere:8000")
    for command in (["db", "upgrade"], ["worker", "--once"]):
        result = run(*command)
        assert result.exit_code == Exit.DONE
        assert result.stderr.startswith("BATCHJOBS_URL (http://elsewhere:8000) is not used")


def test_doctor_looks_at_the_server(served: Deployment) -> None:
    result = run("doctor")
    assert result.exit_code == Exit.DONE, result.stderr
    facts = {row[:24].strip(): row[24:] for row in result.stdout.splitlines()}
    assert facts["server"].endswith(" (ready)")
    assert facts["key"] == "none is needed"
    assert facts["model"] == MODEL
    assert "no model 'none'" in run("doctor", "--model", "none").stderr


@pytest.mark.parametrize("command", ["list", "doctor"])
def test_server_that_is_not_there_is_one_sentence(
    untouched: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("BATCHJOBS_URL", url)
        result = run(command)
    assert result.exit_code == Exit.ERROR
    assert result.stderr.startswith(f"Error: {url} cannot be reached")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://me:hunter2@host"])
def test_url_that_is_none_is_wrong_usage(
    untouched: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("BATCHJOBS_URL", url)
    result = run("list")
    assert result.exit_code == Exit.USAGE
    assert result.stderr.startswith("Error: BATCHJOBS_URL is not usable: ")
    assert "hunter2" not in result.stderr


def test_key_that_cannot_be_one_is_not_shown(
    untouched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHJOBS_API_KEY", "bj hunter2")
    result = run("list")
    assert result.exit_code == Exit.USAGE
    assert result.stderr.startswith("Error: BATCHJOBS_API_KEY is not usable: ")
    assert "hunter2" not in result.output


def test_wrong_key_is_wrong_usage(untouched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(lambda asked: http(401)) as url:
        monkeypatch.setenv("BATCHJOBS_URL", url)
        monkeypatch.setenv("BATCHJOBS_API_KEY", "bj-1")
        result = run("list")
    assert result.exit_code == Exit.USAGE
    assert result.stderr.startswith(f"Error: {url} does not take the key in BATCHJOBS_API_KEY")


def test_copy_that_breaks_off_leaves_what_was_there(
    untouched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {"total": 1, "completed": 1, "failed": 0}
    batch = {"id": "batch_1", "object": "batch", "status": "completed", "output_file_id": "file-1"}

    def answer(asked: Asked) -> bytes:
        if asked.path.endswith("/content"):
            return http(200, b"{}\n", length=1000)
        return http(200, json.dumps({**batch, "request_counts": counts}).encode())

    Path("results").mkdir()
    target = Path("results/out.jsonl")
    target.write_text("old")
    with scripted(answer) as url:
        monkeypatch.setenv("BATCHJOBS_URL", url)
        result = run("results", "batch_1", "-o", str(target))
    assert result.exit_code == Exit.ERROR
    assert result.stderr.startswith(f"Error: The connection to {url} broke")
    assert result.stderr.count("\n") == 1
    assert target.read_text() == "old"
    assert list(target.parent.iterdir()) == [target]


def test_watch_says_what_its_server_says_of_the_job(
    untouched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = {"id": "batch_1", "object": "batch", "at_risk": True, "notice": "No worker serves it."}
    statuses = iter(["in_progress", "in_progress", "failed"])

    def answer(asked: Asked) -> bytes:
        return http(200, json.dumps({**batch, "status": next(statuses)}).encode())

    with scripted(answer) as url:
        monkeypatch.setenv("BATCHJOBS_URL", url)
        monkeypatch.setattr(remote, "SAME_AGAIN_SECONDS", 0.0)
        result = run("watch", "batch_1")
    assert result.exit_code == Exit.INVALID
    assert result.stderr.splitlines() == [
        "No worker serves it.",
        "It is expected to miss its deadline: what is not done by then will be listed as expired.",
    ]


def test_server_that_goes_away_leaves_the_job_and_says_how_to_go_on(
    untouched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = json.dumps({"id": "batch_1", "object": "batch", "status": "in_progress"}).encode()
    replies = iter([http(200, batch)])
    with scripted(lambda asked: next(replies, None)) as url:
        monkeypatch.setenv("BATCHJOBS_URL", url)
        result = run("watch", "batch_1")
    assert result.exit_code == Exit.ERROR
    error, advice = result.stderr.splitlines()
    assert error.startswith(f"Error: The connection to {url} broke")
    assert advice.endswith("batchjobs watch batch_1")


def test_nothing_heavy_is_loaded_to_ask_a_server(served: Deployment) -> None:
    heavy = ("torch", "transformers", "sqlalchemy", "boto3", "celery", "fastapi")
    program = (
        "import sys\nfrom batchjobs.cli import main\ntry:\n    main()\nfinally:\n"
        f"    print('heavy:', sorted(set({heavy!r}) & set(sys.modules)), file=sys.stderr)"
    )
    for command in (["submit", write("a")], ["list"], ["models", "list"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *command],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert (done.returncode, done.stderr) == (Exit.DONE, "heavy: []\n")
