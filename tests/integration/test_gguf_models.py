"""A GGUF file from `models add` to results, and what is said of one that cannot be served."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGUFWriter
from safetensors.torch import load_file

from batchjobs.cli.exits import Exit
from tests.support.cli import run, run_json
from tests.support.disk import file_size_limit
from tests.support.gguf_files import stored, tokenizer, vocabulary, write_llama
from tests.support.greedy import Answer, Reference, check_greedy
from tests.support.processes import environment_of, python
from tests.support.tiny_models import tiny_config, tiny_model

CONFIG = tiny_config(
    "llama",
    vocab_size=len(vocabulary()),
    hidden_size=64,
    intermediate_size=64,
    head_dim=16,
    tie_word_embeddings=True,
)
QUESTIONS = ("Name 12 colours!", "  two  spaces", "a" * 50)
MAX_TOKENS = 10
KINDS = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "Q8_0": torch.float32,
    "Q4_0": torch.float32,
}


def original() -> Any:
    return tiny_model(CONFIG, attention="eager")


def weights() -> dict[str, Any]:
    named = {name: tensor.numpy() for name, tensor in original().state_dict().items()}
    del named["lm_head.weight"]
    return named


def write(path: Path, kind: str = "F32", **changed: Any) -> Path:
    write_llama(path, weights(), CONFIG, kind=kind, **changed)
    return path


def reference(kind: str, folder: Path) -> Reference:
    """The weights as the file's type stores them, in a folder that no GGUF reader has made."""
    model = original()
    values = {name: torch.from_numpy(value) for name, value in stored(weights(), kind).items()}
    model.load_state_dict(values, strict=False)
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return Reference(folder)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BATCHJOBS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BATCHJOBS_POLL_SECONDS", "0.05")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def answers(told: Reference) -> list[Answer]:
    lines = [
        {
            "custom_id": str(number),
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": "tiny",
                "messages": [{"role": "user", "content": question}],
                "temperature": 0,
                "max_tokens": MAX_TOKENS,
                "logprobs": True,
            },
        }
        for number, question in enumerate(QUESTIONS)
    ]
    Path("in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = run("submit", "in.jsonl", "-o", "out.jsonl")
    assert done.exit_code == Exit.DONE, done.stderr
    records = map(json.loads, Path("out.jsonl").read_text().splitlines())
    return [_answer(told, record, line) for record, line in zip(records, lines, strict=True)]


def _answer(told: Reference, record: dict[str, Any], line: dict[str, Any]) -> Answer:
    body = record["response"]["body"]
    prompt = told.prompt(line["body"]["messages"], None)
    assert body["usage"]["prompt_tokens"] == len(prompt)
    [choice] = body["choices"]
    tokens = told.tokens(choice["logprobs"]["content"])
    return Answer(prompt=prompt, tokens=tokens, finish_reason=choice["finish_reason"])


def only_folder(home: Path) -> Path:
    [folder] = [path for path in (home / "models").iterdir() if path.is_dir()]
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_the_files_values(kind: str, home: Path, tmp_path: Path) -> None:
    write(tmp_path / f"Tiny.{kind}.gguf", kind)
    added = run("models", "add", "tiny", f"Tiny.{kind}.gguf")
    assert added.exit_code == Exit.DONE, added.stderr
    is_quantized = kind.startswith("Q")
    assert (f"is dequantized ({kind})" if is_quantized else "the same values") in added.stdout
    kept = load_file(only_folder(home) / "model.safetensors")
    assert kept["model.layers.0.self_attn.q_proj.weight"].dtype == KINDS[kind]
    told = reference(kind, tmp_path / "reference")
    for answer in answers(told):
        check_greedy(told, answer, ends={2}, max_tokens=MAX_TOKENS)


def test_a_file_is_converted_once_and_then_no_longer_needed(home: Path, tmp_path: Path) -> None:
    file = write(tmp_path / f"tiny{' long' * 40}.gguf")
    assert "Converting tiny long" in run("models", "add", "tiny", str(file)).stderr
    before = (only_folder(home) / "model.safetensors").stat()
    again = run("models", "add", "tiny", str(file), "--alias", "gpt-4o-mini")
    assert "Converting" not in again.stderr
    assert (only_folder(home) / "model.safetensors").stat() == before
    file.unlink()
    [model] = run_json("models", "list")
    assert (model["source"], model["aliases"]) == (str(only_folder(home)), ["gpt-4o-mini"])
    told = reference("F32", tmp_path / "reference")
    assert len(answers(told)) == len(QUESTIONS)


def test_another_content_under_the_same_name_is_another_model(home: Path, tmp_path: Path) -> None:
    run("models", "add", "tiny", str(write(tmp_path / "tiny.gguf", "F16")))
    refused = run("models", "add", "tiny", str(write(tmp_path / "tiny.gguf", "Q8_0")))
    assert refused.exit_code == Exit.ERROR
    assert "Take it out first: batchjobs models remove tiny" in refused.stderr


def test_the_end_of_a_turn_ends_an_answer_as_well(tmp_path: Path) -> None:
    told = reference("F32", tmp_path / "reference")
    prompt = told.prompt([{"role": "user", "content": QUESTIONS[0]}], None)
    end = told.continued(prompt, 3)[-1]
    file = write(tmp_path / "tiny.gguf", extra=lambda writer: writer.add_eot_token_id(end))
    run("models", "add", "tiny", str(file))
    found = answers(told)
    assert found[0].finish_reason == "stop"
    for answer in found:
        check_greedy(told, answer, ends={2, end}, max_tokens=MAX_TOKENS)


_KILLED = """
import os, signal
from executor import convert
from batchjobs.cli import main
convert._publish = lambda partial, target: os.kill(os.getpid(), signal.SIGKILL)
main()
"""


def test_a_conversion_that_is_killed_leaves_no_model_and_is_done_again(
    home: Path, tmp_path: Path
) -> None:
    file = write(tmp_path / "tiny.gguf")
    environment = environment_of(home, {})
    with python(
        "-c", _KILLED, "models", "add", "tiny", str(file), environment=environment
    ) as process:
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert only_folder(home).name.startswith(".tiny-")
    assert run_json("models", "list") == []
    assert run("models", "add", "tiny", str(file)).exit_code == Exit.DONE
    assert not only_folder(home).name.startswith(".")
    told = reference("F32", tmp_path / "reference")
    for answer in answers(told):
        check_greedy(told, answer, ends={2}, max_tokens=MAX_TOKENS)


def cut_off(path: Path) -> None:
    write(path)
    path.write_bytes(path.read_bytes()[:-5000])


def cut_off_early(path: Path) -> None:
    write(path)
    path.write_bytes(path.read_bytes()[:900])


def with_extra(extra: Callable[[GGUFWriter], None]) -> Callable[[Path], None]:
    return lambda path: write_llama(path, weights(), CONFIG, extra=extra)


def with_field(**changed: str) -> Callable[[Path], None]:
    return lambda path: write_llama(path, weights(), CONFIG, **changed)  # type: ignore[arg-type]


def scaled_positions(writer: GGUFWriter) -> None:
    writer.add_tensor("rope_freqs.weight", torch.ones(8).numpy())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (cut_off, "is not a readable GGUF file (cannot reshape"),
        (cut_off_early, "it is cut off or damaged; download it again"),
        (lambda path: path.write_bytes(b""), "it begins with b'' and not b'GGUF'"),
        (lambda path: path.write_text("<html>"), "it begins with b'<htm' and not b'GGUF'"),
        (with_field(architecture="unheard-of"), "its architecture is 'unheard-of', which"),
        (with_field(pre="unheard-of"), "its tokenizer.ggml.pre is 'unheard-of', and only"),
        (with_extra(scaled_positions), "does not keep its tensor rope_freqs.weight"),
        (
            with_extra(lambda writer: writer.add_string("llama.rope.scaling.type", "yarn")),
            "does not keep its llama.rope.scaling.type = 'yarn'",
        ),
        (
            with_extra(lambda writer: writer.add_uint32("llama.attention.sliding_window", 6)),
            "does not keep its llama.attention.sliding_window = 6",
        ),
        (
            with_extra(lambda writer: writer.add_uint16("split.count", 3)),
            "is one of 3 parts: merge them",
        ),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_served_is_refused_in_a_sentence(
    make: Callable[[Path], None], said: str, home: Path, tmp_path: Path
) -> None:
    make(tmp_path / "odd.gguf")
    refused = run("models", "add", "tiny", "odd.gguf")
    assert refused.exit_code == Exit.ERROR
    [error] = [line for line in refused.stderr.splitlines() if line.startswith("Error: ")]
    assert said in error
    assert [path for path in (home / "models").iterdir() if path.is_dir()] == []
    assert run_json("models", "list") == []


def test_a_full_disk_is_said_and_leaves_nothing(home: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "tiny.gguf")
    assert run_json("models", "list") == []  # the database is made before the disk is full
    with file_size_limit(100_000):
        refused = run("models", "add", "tiny", str(file))
    assert refused.exit_code == Exit.ERROR
    assert "tiny.gguf cannot be converted: " in refused.stderr
    assert "make room there, and add it again" in refused.stderr
    assert [path for path in (home / "models").iterdir() if path.is_dir()] == []
    assert run("models", "add", "tiny", str(file)).exit_code == Exit.DONE


def test_no_room_for_the_weights_is_said_before_they_are_read(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "tiny.gguf")
    monkeypatch.setattr("executor.convert._OTHER_FILES_BYTES", 1 << 60)
    refused = run("models", "add", "tiny", "tiny.gguf")
    assert refused.exit_code == Exit.ERROR
    assert "tiny.gguf cannot be converted: that takes " in refused.stderr
    assert "GB are free; make room there" in refused.stderr
