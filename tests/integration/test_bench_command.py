"""`batchjobs bench` and `--profile` on a tiny random model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from batchjobs.cli.exits import Exit
from tests.support.cli import run
from tests.support.tiny_models import save_tiny, tiny_config


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    save_tiny(folder, tiny_config("llama", max_position_embeddings=4096))
    return folder


@pytest.fixture
def home(tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BATCHJOBS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BATCHJOBS_MAX_NUM_SEQS", "4")
    monkeypatch.chdir(tmp_path)
    assert run("models", "add", "tiny", str(weights)).exit_code == Exit.DONE
    return tmp_path


def write_lines(path: Path, count: int) -> None:
    body = {"model": "tiny", "prompt": "Once upon a time", "max_tokens": 6}
    lines = [
        {"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": body}
        for i in range(count)
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def bench(*arguments: str) -> tuple[str, dict[str, Any]]:
    done = run("bench", *arguments)
    assert done.exit_code == Exit.DONE, done.output
    return done.stdout, json.loads(Path("batchjobs-bench/bench.json").read_text())


@pytest.mark.usefixtures("home")
def test_all_ways_are_measured_on_the_same_requests() -> None:
    text, figures = bench(
        "--requests", "8", "--against", "static,sorted,unchunked", "--price-per-hour", "0.5"
    )
    ways = figures["ways"]
    assert list(ways) == ["ours", "unchunked", "static", "sorted"]
    assert (
        len({(w["requests"], w["prompt_tokens"], w["output_tokens"]) for w in ways.values()}) == 1
    )
    ours, static = ways["ours"], ways["static"]
    assert 0 < static["occupancy"] < 1
    wrong = ours["guessed_tokens"] - ours["right_guesses"]
    assert ours["useful_share"] == pytest.approx(1 - wrong / ours["computed_positions"])
    assert static["useful_share"] < ours["useful_share"]
    assert ours["roofline"]["share"] > 0
    assert ours["output_tokens_per_second"] > 0
    assert ours["cost_per_million_output_tokens"] > 0
    assert ours["slots"] == 4
    assert max(running for _, running in ours["course"]) == 4
    assert 0 < ours["step_p50"] <= ours["step_p99"]
    assert 0 < ours["first_token_p50"] <= ours["first_token_p99"] <= ours["wall_seconds"]
    assert figures["equal_answers"] == {"unchunked": 8, "static": 8, "sorted": 8}
    assert {"batchjobs", "python", "torch", "transformers"} <= set(figures["versions"])
    for words in ("slots, busy on average", "share of roofline", "cost per million", "sorted"):
        assert words in text
    with Image.open("batchjobs-bench/bench.png") as picture:
        assert picture.format == "PNG"


@pytest.mark.usefixtures("home")
def test_static_answers_go_on_behind_the_end_of_a_sequence_as_ours_do(weights: Path) -> None:
    settings = weights / "generation_config.json"
    before = json.loads(settings.read_text())
    settings.write_text(json.dumps(before | {"eos_token_id": list(range(3, 128))}))
    try:
        _, figures = bench("--requests", "4", "--against", "static", "--no-picture")
    finally:
        settings.write_text(json.dumps(before))
    assert figures["equal_answers"] == {"static": 4}
    assert figures["ways"]["static"]["steps"] > 4


@pytest.mark.usefixtures("home")
def test_a_folder_that_cannot_be_made_is_told_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def measure(*arguments: object) -> None:
        raise AssertionError("measured for nothing")

    monkeypatch.setattr("batchjobs.worker.bench.run.run_bench", measure)
    Path("file").write_text("")
    done = run("bench", "-o", "file/figures", "--no-picture")
    assert (done.exit_code, "file/figures" in done.stderr) == (Exit.ERROR, True)


@pytest.mark.usefixtures("home")
def test_a_file_is_measured_and_profiled_without_a_picture() -> None:
    write_lines(Path("own.jsonl"), 3)
    text, figures = bench("--workload", "own.jsonl", "--against", "", "--no-picture", "--profile")
    assert list(figures["ways"]) == ["ours"]
    assert figures["ways"]["ours"]["requests"] == 3
    assert "With 3 requests there is next to nothing to batch" in text
    assert not Path("batchjobs-bench/bench.png").exists()
    parts = {part["name"]: part["seconds"] for part in figures["profile"]["parts"]}
    assert min(parts["attention"], parts["linears"], parts["sampling"]) > 0
    assert sum(parts.values()) == pytest.approx(figures["profile"]["wall_seconds"])


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--against", "vllm"), "--against 'vllm' is none of"),
        (("--workload", "nowhere.jsonl"), "is neither a file nor one of"),
        (("--requests", "0"), "0 is not in the range"),
        (("--price-per-hour", "0"), "0.0 is not in the range"),
        (("--model", "nobody"), "No model 'nobody' in the catalogue"),
    ],
)
def test_what_cannot_be_measured_is_said_in_a_sentence(
    arguments: tuple[str, ...], words: str
) -> None:
    done = run("bench", *arguments)
    assert done.exit_code in {Exit.USAGE, Exit.ERROR}
    assert words in done.stderr


@pytest.mark.usefixtures("home")
def test_a_model_that_is_too_short_for_the_workload_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BATCHJOBS_MAX_MODEL_LEN", "64")
    done = run("bench", "--requests", "4", "--against", "")
    assert done.exit_code == Exit.USAGE
    assert "and this model takes 64" in done.stderr


@pytest.mark.usefixtures("home")
def test_a_profiled_job_ends_with_where_its_time_went() -> None:
    write_lines(Path("own.jsonl"), 6)
    done = run("submit", "own.jsonl", "--profile")
    assert done.exit_code == Exit.DONE
    for words in ("slots, busy on average", "attention", "linears", "tokenising, waited for"):
        assert words in done.stdout


@pytest.mark.usefixtures("home")
def test_a_profiled_worker_shows_it_too() -> None:
    write_lines(Path("own.jsonl"), 1)
    assert run("submit", "own.jsonl", "--detach").exit_code == Exit.DONE
    done = run("worker", "--once", "--profile")
    assert done.exit_code == Exit.DONE
    assert "I/O between steps" in done.stdout
    assert "slots, busy on average" not in done.stdout


@pytest.mark.usefixtures("home")
def test_a_job_of_another_process_cannot_be_profiled_here() -> None:
    write_lines(Path("own.jsonl"), 1)
    done = run("submit", "own.jsonl", "--profile", "--detach")
    assert done.exit_code == Exit.USAGE
    assert "batchjobs worker --profile" in done.stderr
