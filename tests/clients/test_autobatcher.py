"""autobatcher's BatchOpenAI; it wants an older openai than ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.client_environments import environment_python, run_script

pytestmark = [pytest.mark.clients, pytest.mark.slow]

REQUIREMENTS = ("autobatcher==0.12.0", "openai==2.54.0")


def test_autobatcher_answers_calls_from_a_batch(service_url: str, tmp_path: Path) -> None:
    python = environment_python(*REQUIREMENTS)
    report = run_script("autobatcher_client", service_url, tmp_path, python=python)

    run = report["run"]
    assert len(run["answers"]) == 5
    assert all(isinstance(answer, str) for answer in run["answers"])
    # It reads the output file alone: the line that failed is in the error file.
    assert run["failed"].startswith("No result for request")
    assert run["submitted"] == [6]
    assert run["completed"] == [{"completed": 5, "failed": 1, "total": 6}]
    assert run["metadata"] == {"suite": "nightly"}

    assert report["cancel"][-2:] == ["batch_cancel_requested", "batch_cancelled_upstream"]
