"""Commands as a person types them, on a real engine over a tiny random model."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from openai import AuthenticationError, OpenAI

from batchjobs.cli.exits import Exit
from batchjobs.deployment import Deployment
from batchjobs.errors import Interrupted
from batchjobs.settings import Settings
from batchjobs.worker.engines import CheckpointEngines, KeptEngines
from batchjobs.worker.runner import work_on
from batchjobs.worker.stop import StopSignal
from tests.support.cli import run, run_json
from tests.support.served import WAYS, serving
from tests.support.tiny_models import save_tiny, tiny_config

MODEL = "tiny"
URL = "/v1/completions"


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    save_tiny(folder, tiny_config("llama"))
    return folder


@pytest.fixture
def home(tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory whose catalogue has the model, and the current folder beside it."""
    monkeypatch.setenv("BATCHJOBS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BATCHJOBS_POLL_SECONDS", "0.05")
    monkeypatch.chdir(tmp_path)
    added = run("models", "add", MODEL, str(weights), "--alias", "gpt-4o-mini")
    assert added.exit_code == Exit.DONE
    return tmp_path / "home"


@pytest.fixture(params=WAYS)
def anywhere(
    request: pytest.FixtureRequest, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The same, also where a server has it, with a worker, and commands reach the server only."""
    if request.param == "embedded":
        yield home
        return
    untouched = tmp_path / "untouched"
    with Deployment.open(Settings.load()) as deployment, working(deployment):
        monkeypatch.setenv("BATCHJOBS_HOME", str(untouched))
        with serving(deployment) as url:
            monkeypatch.setenv("BATCHJOBS_URL", url)
            yield home
    assert not untouched.exists()


@contextmanager
def working(deployment: Deployment) -> Iterator[None]:
    """A worker of the deployment, in a thread."""
    stop = StopSignal(grace_seconds=60, forced_exit=9)
    engines = KeptEngines(CheckpointEngines(deployment.settings))

    def work() -> None:
        with suppress(Interrupted):
            work_on(deployment, engines=engines, stop=stop)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        stop.set()
        worker.join(30)
        assert not worker.is_alive()


def line(custom_id: str, **body: Any) -> str:
    body = {"model": MODEL, "prompt": "abc", "max_tokens": 4, "temperature": 0, **body}
    request = {"custom_id": custom_id, "method": "POST", "url": URL, "body": body}
    return json.dumps(request) + "\n"


def write(*lines: str, name: str = "in.jsonl") -> str:
    Path(name).write_text("".join(lines))
    return name


def custom_ids(path: str) -> list[str]:
    return [json.loads(row)["custom_id"] for row in Path(path).read_text().splitlines()]


def first_row(text: str) -> str:
    return text.splitlines()[0]


def test_submit_runs_the_file_and_writes_the_results(home: Path) -> None:
    result = run("submit", write(line("a"), line("b"), line("c")), "-o", "out.jsonl")
    assert result.exit_code == Exit.DONE
    assert first_row(result.stdout).startswith("batch_")
    assert "completed: 3 of 3 done" in result.stdout
    assert "tok/s generated" in result.stdout
    assert "Results written to out.jsonl." in result.stdout
    assert custom_ids("out.jsonl") == ["a", "b", "c"]


def test_without_destinations_the_summary_says_where_the_results_are(home: Path) -> None:
    result = run("submit", write(line("a")))
    (place,) = [row for row in result.stdout.splitlines() if row.startswith("results: ")]
    assert Path(place.removeprefix("results: ")).is_file()
    assert f"batchjobs results {first_row(result.stdout)} -o FILE" in result.stdout


def test_lines_that_fail_are_told_with_their_reasons(anywhere: Path) -> None:
    file = write(line("a"), line("long", max_tokens=9000), line("longer", max_tokens=9000))
    result = run("submit", file, "-o", "out.jsonl", "--errors", "err.jsonl")
    assert result.exit_code == Exit.FAILED_LINES
    assert "completed: 3 of 3 done (2 failed)" in result.stdout
    assert "2 × This model's maximum context length is 256 tokens" in result.stdout
    assert custom_ids("out.jsonl") == ["a"]
    assert custom_ids("err.jsonl") == ["long", "longer"]


def test_a_bad_file_is_told_line_by_line_and_nothing_is_touched(anywhere: Path) -> None:
    Path("out.jsonl").write_text("kept")
    result = run("submit", write(line("a"), "{\n", line("a")), "-o", "out.jsonl")
    assert result.exit_code == Exit.INVALID
    assert "line 2: This line is not parseable as valid JSON." in result.stdout
    assert "line 3: " in result.stdout
    assert Path("out.jsonl").read_text() == "kept"


def test_an_unknown_model_is_told_with_what_to_do(anywhere: Path) -> None:
    result = run("submit", write(line("a", model="gpt-99")), "--wait")
    assert result.exit_code == Exit.INVALID
    assert "batchjobs models list" in result.stdout


def test_another_providers_name_runs_unchanged(anywhere: Path) -> None:
    assert run("submit", write(line("a", model="gpt-4o-mini"))).exit_code == Exit.DONE


def test_model_takes_the_place_of_every_lines(anywhere: Path) -> None:
    file = write(line("a", model="gpt-99"), line("b", model="claude"))
    result = run("submit", file, "--model", MODEL, "-o", "out.jsonl")
    assert result.exit_code == Exit.DONE
    assert custom_ids("out.jsonl") == ["a", "b"]


def test_a_seed_redraws_the_answers_of_lines_that_have_none(anywhere: Path) -> None:
    file = write(line("a", temperature=1, max_tokens=12), line("b", temperature=1, seed=7))
    answers = []
    for seed in ("0", "0", "1"):
        assert run("submit", file, "--seed", seed, "-o", "out.jsonl").exit_code == Exit.DONE
        rows = [json.loads(row) for row in Path("out.jsonl").read_text().splitlines()]
        answers.append([row["response"]["body"]["choices"][0]["text"] for row in rows])
    assert answers[0] == answers[1]
    assert answers[0][0] != answers[2][0]
    assert answers[0][1] == answers[2][1]


def test_an_unknown_model_to_take_their_place_makes_no_job(anywhere: Path) -> None:
    result = run("submit", write(line("a")), "--model", "gpt-99")
    assert result.exit_code == Exit.ERROR
    assert "No model 'gpt-99' in the catalogue" in result.stderr
    assert run_json("list")["data"] == []


def test_standard_input_and_output_make_a_filter(anywhere: Path) -> None:
    result = run("submit", "-", "-o", "-", stdin=line("a") + line("b"))
    assert [json.loads(row)["custom_id"] for row in result.stdout.splitlines()] == ["a", "b"]
    assert first_row(result.stderr).startswith("batch_")


def test_json_is_the_batch_object_and_nothing_else(anywhere: Path) -> None:
    batch = run_json(
        "submit", write(line("a")), "--metadata", "owner=me", "--metadata", "n=a=b", "--wait"
    )
    assert batch["status"] == "completed"
    assert batch["metadata"] == {"owner": "me", "n": "a=b"}
    assert batch["endpoint"] == URL
    assert batch == run_json("status", batch["id"])


def test_failed_lines_are_run_again_as_a_new_job(anywhere: Path) -> None:
    file = write(line("a"), line("long", max_tokens=9000))
    job_id = run_json("submit", file, "--wait")["id"]
    result = run("retry", job_id, "--errors", "err.jsonl")
    assert result.exit_code == Exit.FAILED_LINES
    assert first_row(result.stdout) != job_id
    assert custom_ids("err.jsonl") == ["long"]


def test_job_that_others_run_can_be_waited_for_and_delivered(anywhere: Path) -> None:
    job_id = run_json("submit", write(line("a"), line("b")), "--detach")["id"]
    assert run("resume", job_id, "-o", "out.jsonl").exit_code == Exit.DONE
    assert custom_ids("out.jsonl") == ["a", "b"]


def test_file_that_can_be_read_once_only_is_taken(anywhere: Path) -> None:
    pipe = Path("pipe")
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(line("a")))
    writer.start()
    assert run("submit", str(pipe), "-o", "out.jsonl").exit_code == Exit.DONE
    writer.join()
    assert custom_ids("out.jsonl") == ["a"]


def test_detached_jobs_wait_for_resume(home: Path) -> None:
    result = run("submit", write(line("a")), "--detach", "-o", "out.jsonl")
    job_id = first_row(result.stdout)
    assert result.exit_code == Exit.DONE
    assert f"batchjobs resume {job_id} -o out.jsonl" in result.stdout
    assert run_json("status", job_id)["status"] == "in_progress"
    assert run("resume", job_id, "-o", "out.jsonl").exit_code == Exit.DONE
    assert custom_ids("out.jsonl") == ["a"]


def test_detaching_a_bad_file_tells_at_once(anywhere: Path) -> None:
    assert run("submit", write("{\n"), "--detach").exit_code == Exit.INVALID


def test_a_worker_runs_all_that_waits(home: Path) -> None:
    ids = [run_json("submit", write(line("a")), "--detach")["id"] for _ in range(2)]
    assert run("worker", "--once").exit_code == Exit.DONE
    assert [run_json("status", job_id)["status"] for job_id in ids] == ["completed"] * 2
    assert "Nothing was waiting." in run("worker", "--once").stdout


def test_a_worker_that_stays_runs_what_comes_until_it_is_stopped(home: Path) -> None:
    with start("worker", "--model", "gpt-4o-mini") as process:
        assert process.stdout is not None
        assert first_row(process.stdout.readline()) == "Waiting for jobs. Ctrl-C ends it."
        for name in ("a", "b"):
            job_id = run_json("submit", write(line(name)), "--detach")["id"]
            assert run("watch", job_id).exit_code == Exit.DONE
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=30)
    assert process.returncode == Exit.DONE
    assert said.count("tok/s generated") == 2
    assert said.endswith("Stopped; what is done is kept.\n")


def test_a_worker_leaves_other_models_alone(home: Path, weights: Path) -> None:
    run("models", "add", "other", str(weights))
    job_id = run_json("submit", write(line("a")), "--detach")["id"]
    assert "Nothing was waiting." in run("worker", "--once", "--model", "other").stdout
    assert run_json("status", job_id)["status"] == "in_progress"


def test_resuming_a_finished_job_only_says_so(anywhere: Path) -> None:
    job_id = run_json("submit", write(line("a")), "--wait")["id"]
    result = run("resume", job_id, "-o", "out.jsonl")
    assert result.exit_code == Exit.DONE
    assert "tok/s" not in result.stdout
    assert custom_ids("out.jsonl") == ["a"]


def test_watching_a_finished_job_ends_as_submit_did(anywhere: Path) -> None:
    batch = run_json("submit", write(line("a"), line("long", max_tokens=9000)), "--wait")
    result = run("watch", batch["id"])
    assert result.exit_code == Exit.FAILED_LINES
    assert "completed: 2 of 2 done (1 failed)" in result.stdout


def test_a_model_that_cannot_be_loaded_leaves_the_job_waiting(home: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    save_tiny(broken, tiny_config("llama"))
    (broken / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    run("models", "add", "broken", str(broken))
    result = run("submit", write(line("a", model="broken")))
    assert result.exit_code == Exit.ERROR
    error, hint = result.stderr.splitlines()[-2:]
    assert error.startswith(f"Error: Model {broken} cannot be loaded")
    assert hint.endswith(f"batchjobs resume {first_row(result.stdout)}")


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--metadata", "alone", "'alone' is not KEY=VALUE."),
        ("--window", "soon", "Invalid value: 'soon'"),
        ("-o", "in.jsonl", "in.jsonl is the input file"),
    ],
)
def test_wrong_options_make_no_job(anywhere: Path, option: str, value: str, said: str) -> None:
    result = run("submit", write(line("a")), option, value)
    assert result.exit_code == Exit.USAGE
    assert said in result.stderr
    assert run_json("list")["data"] == []


def test_a_file_that_is_too_large_makes_no_job(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHJOBS_MAX_INPUT_BYTES", "100")
    result = run("submit", write(line("a")))
    assert result.exit_code == Exit.USAGE
    assert "BATCHJOBS_MAX_INPUT_BYTES" in result.stderr
    assert run_json("list")["data"] == []


def test_the_endpoint_is_that_of_the_first_line_that_names_one(anywhere: Path) -> None:
    chat = {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
    request = {"method": "POST", "url": "/v1/chat/completions", "body": chat}
    typo = json.dumps({"custom_id": "a", **request, "url": "/v1/chat/completion"})
    file = write(typo + "\n", json.dumps({"custom_id": "b", **request}) + "\n")
    batch = run_json("submit", file, "--wait")
    assert batch["endpoint"] == "/v1/chat/completions"
    assert [(bad["line"], bad["code"]) for bad in batch["errors"]["data"]] == [(1, "invalid_url")]


def test_an_endpoint_that_is_not_served_is_named(anywhere: Path) -> None:
    request = {"custom_id": "a", "method": "POST", "url": "/v1/images", "body": {"model": MODEL}}
    result = run("submit", write(json.dumps(request) + "\n"), "--wait")
    assert result.exit_code == Exit.INVALID
    assert "'/v1/images'" in result.output


def test_doctor_runs_a_request_end_to_end(home: Path) -> None:
    result = run("doctor")
    assert result.exit_code == Exit.DONE, result.stderr
    facts = {row[:24].strip(): row[24:] for row in result.stdout.splitlines()}
    assert facts["home"].startswith(str(home))
    assert facts["device"].startswith("cpu (")
    assert re.match(r"vectors of (8|16) floats on (torch's threads|one thread)", facts["kernels"])
    assert facts["request"].startswith("tiny: What is the capital of France? → ")
    assert result.stdout.endswith("Everything works.\n")
    assert run_json("list")["data"] == []


def test_doctor_without_a_model_says_how_to_get_one(home: Path) -> None:
    run("models", "remove", MODEL)
    result = run("doctor")
    assert result.exit_code == Exit.ERROR
    assert "batchjobs models fetch" in result.stderr


def test_models_are_listed_with_their_aliases(home: Path, weights: Path) -> None:
    (model,) = run_json("models", "list")
    assert model["name"] == MODEL
    assert model["aliases"] == ["gpt-4o-mini"]
    assert model["source"] == str(weights)
    assert run("models", "list").stdout.splitlines()[1].split() == [
        MODEL,
        "gpt-4o-mini",
        str(weights),
    ]


def start(*arguments: str, **settings: str) -> subprocess.Popen[str]:
    """A command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "batchjobs", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **settings, "PYTHONPATH": str(Path(__file__).parents[2])},
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_job_says_how_to_go_on_and_loses_nothing(home: Path, number: int) -> None:
    count = 120
    long = {"max_tokens": 100, "ignore_eos": True, "temperature": 1}
    file = write(*(line(f"line-{i}", **long) for i in range(count)))
    slowly = {"BATCHJOBS_MAX_NUM_SEQS": "2", "BATCHJOBS_CHECKPOINT_SECONDS": "0.1"}
    with start("submit", file, "-o", "out.jsonl", **slowly) as process:
        assert process.stdout is not None
        job_id = process.stdout.readline().strip()
        while run_json("status", job_id)["request_counts"]["completed"] == 0:
            assert process.poll() is None
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    assert process.returncode == Exit.INTERRUPTED
    assert said.rstrip().endswith(f"batchjobs resume {job_id} -o out.jsonl")
    assert not Path("out.jsonl").exists()
    done = run_json("status", job_id)["request_counts"]["completed"]
    assert 0 < done < count
    assert run("resume", job_id, "-o", "out.jsonl").exit_code == Exit.DONE
    assert custom_ids("out.jsonl") == [f"line-{i}" for i in range(count)]


def test_two_processes_share_a_job_and_both_see_its_end(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 40
    file = write(*(line(f"line-{i}", max_tokens=20, ignore_eos=True) for i in range(count)))
    monkeypatch.setenv("BATCHJOBS_SHARD_MAX_LINES", "4")
    job_id = run_json("submit", file, "--detach")["id"]
    with (
        start("resume", job_id, "-o", "one.jsonl") as one,
        start("resume", job_id, "-o", "two.jsonl") as two,
    ):
        for process in (one, two):
            process.communicate(timeout=60)
            assert process.returncode == Exit.DONE
    assert custom_ids("one.jsonl") == [f"line-{i}" for i in range(count)]
    assert Path("one.jsonl").read_bytes() == Path("two.jsonl").read_bytes()


def test_job_runs_on_a_server_of_databases_as_on_the_embedded_one(
    home: Path, weights: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(line("a"), line("long", max_tokens=9000), line("c"))
    assert run("submit", file, "-o", "embedded.jsonl").exit_code == Exit.FAILED_LINES
    monkeypatch.setenv("BATCHJOBS_DATABASE_URL", postgres_url)
    assert run_json("list")["data"] == []
    assert run("models", "add", MODEL, str(weights)).exit_code == Exit.DONE
    assert run("submit", file, "-o", "server.jsonl").exit_code == Exit.FAILED_LINES
    (job,) = run_json("list")["data"]
    assert job["request_counts"] == {"total": 3, "completed": 2, "failed": 1}
    assert custom_ids("server.jsonl") == custom_ids("embedded.jsonl") == ["a", "c"]


def test_up_serves_and_answers_until_it_is_stopped(home: Path) -> None:
    with start("up", "--port", "0") as process:
        assert process.stdout is not None
        url = next(said for said in process.stdout if said.startswith("http")).strip()
        client = OpenAI(base_url=f"{url}/v1", api_key="none")
        file = client.files.create(file=line("a").encode(), purpose="batch")
        batch = client.batches.create(input_file_id=file.id, endpoint=URL, completion_window="24h")
        while batch.status not in ("completed", "failed"):
            batch = client.batches.retrieve(batch.id, extra_query={"wait": 5})
        assert batch.output_file_id is not None
        answer = json.loads(client.files.content(batch.output_file_id).text)
        assert answer["custom_id"] == "a"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == Exit.DONE


def test_up_ends_when_a_part_of_it_cannot_start(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with start("up", "--port", str(taken.getsockname()[1])) as process:
            _, said = process.communicate(timeout=60)
    assert process.returncode == Exit.ERROR
    assert "in use" in said


def test_up_asks_for_keys_when_told_to(home: Path) -> None:
    secret = run("keys", "create", "laptop").stdout.strip()
    with start("up", "--port", "0", "--require-keys") as process:
        assert process.stdout is not None
        url = next(said for said in process.stdout if said.startswith("http")).strip()
        assert OpenAI(base_url=f"{url}/v1", api_key=secret).batches.list().data == []
        with pytest.raises(AuthenticationError):
            OpenAI(base_url=f"{url}/v1", api_key="none").batches.list()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == Exit.DONE
