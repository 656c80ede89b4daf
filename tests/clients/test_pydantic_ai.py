"""pydantic-ai's batches; they speak `/v1/responses` and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.client_environments import environment_python, run_script

pytestmark = [pytest.mark.clients, pytest.mark.slow]

REQUIREMENTS = ("pydantic-ai-slim[openai]==2.68.0", "openai==3.57.0")


def test_pydantic_ai_sends_its_requests_as_batches(service_url: str, tmp_path: Path) -> None:
    python = environment_python(*REQUIREMENTS)
    report = run_script("pydantic_ai_client", service_url, tmp_path, python=python)

    answered = report["batch"]
    for name in ("plain", "tool", "strict"):
        assert answered[name]["text"]
        assert (answered[name]["finish_reason"], answered[name]["output_tokens"]) == ("length", 20)
    assert answered["tool"]["input_tokens"] > answered["plain"]["input_tokens"] > 0

    # A refused request has the server's own reason, beside the others' answers.
    assert answered["long"]["code"] == "context_length_exceeded"

    assert [error["status"] for error in report["rejected"]] == [400, 400]
    assert all("model_not_found" in error["says"] for error in report["rejected"])
    assert len(report["agent"]) == 2
    assert all(report["agent"])
    assert {city["size"] for city in report["structured"].values()} <= {"big", "small"}
    assert set(report["structured"]) == {"native", "tool"}
