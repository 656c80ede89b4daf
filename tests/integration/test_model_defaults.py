"""A model configured in the catalogue, as lines that run on it find it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchjobs.cli.exits import Exit
from tests.support.cli import run
from tests.support.tiny_models import save_tiny, tiny_config

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    save_tiny(folder, tiny_config("llama"))
    return folder


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATCHJOBS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BATCHJOBS_POLL_SECONDS", "0.05")
    monkeypatch.chdir(tmp_path)


def answers(*bodies: dict[str, Any]) -> list[dict[str, Any]]:
    lines = [
        {
            "custom_id": f"line-{number}",
            "method": "POST",
            "url": CHAT,
            "body": {"model": "tiny", "messages": [{"role": "user", "content": "abcd"}], **body},
        }
        for number, body in enumerate(bodies)
    ]
    Path("in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run("submit", "in.jsonl", "-o", "out.jsonl", "--errors", "errors.jsonl")
    names = [name for name in ("out.jsonl", "errors.jsonl") if Path(name).exists()]
    found = [json.loads(line) for name in names for line in Path(name).read_text().splitlines()]
    return sorted(found, key=lambda record: record["custom_id"])


def test_lines_run_on_the_model_as_it_was_configured(weights: Path) -> None:
    Path("chat.jinja").write_text(
        "{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}"
    )
    added = run(
        "models", "add", "tiny", str(weights), "--max-model-len", "32",
        "--chat-template", "chat.jinja", "--default", "temperature=0",
    )  # fmt: skip
    assert added.exit_code == Exit.DONE
    first, second, long = answers({"max_tokens": 8}, {"max_tokens": 8}, {"max_tokens": 32})
    texts = [record["response"]["body"]["choices"][0]["message"] for record in (first, second)]
    assert texts[0] == texts[1]  # of two seeds: greedy by default
    assert first["response"]["body"]["usage"]["prompt_tokens"] == 8
    assert long["response"]["body"]["error"]["code"] == "context_length_exceeded"
    assert "maximum context length is 32 tokens" in long["response"]["body"]["error"]["message"]


def test_a_default_that_no_line_could_have_is_refused(weights: Path) -> None:
    refused = run("models", "add", "tiny", str(weights), "--default", "top_p=2")
    assert refused.exit_code == Exit.USAGE
    assert "--default: Invalid 'top_p'" in refused.stderr
