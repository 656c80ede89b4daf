"""any-llm's batch calls, in a process of its own: it leaves connections open."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.client_environments import run_script

pytestmark = pytest.mark.clients


def test_any_llm_gets_results_pages_and_cancels(service_url: str, tmp_path: Path) -> None:
    report = run_script("any_llm_client", service_url, tmp_path)

    batch, answers = report["run"]["batch"], report["run"]["answers"]
    assert (batch["status"], batch["metadata"]) == ("completed", {"suite": "nightly"})
    assert batch["request_counts"] == {"completed": 5, "failed": 1, "total": 6}
    # It reads the output file alone: the line that failed is in the error file.
    assert list(answers) == [f"ask-{number}" for number in range(6) if number != 2]
    assert all(isinstance(answer, str) for answer in answers.values())

    page = report["page"]
    assert page["first"] == page["made"][:0:-1]
    assert page["second"] == page["made"][:1]
    assert page["ended"] == ["completed", "completed"]

    assert "cancel" in report["cancel"]["told"]
    assert (report["cancel"]["status"], report["cancel"]["ended"]) == ("cancelling", "cancelled")
