"""instructor's BatchProcessor; it wants an older openai than ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.client_environments import environment_python, run_script

pytestmark = [pytest.mark.clients, pytest.mark.slow]

REQUIREMENTS = ("instructor==1.17.0", "openai==3.3.0")


def test_instructor_submits_polls_reads_and_cancels(service_url: str, tmp_path: Path) -> None:
    python = environment_python(*REQUIREMENTS)
    report = run_script("instructor_client", service_url, tmp_path, python=python)

    plain = report["plain"]
    counts = {"total": 4, "completed": 4, "failed": 0}
    assert (plain["status"]["status"], plain["status"]["request_counts"]) == ("completed", counts)
    assert [row["custom_id"] for row in plain["raw"]] == [f"ask-{n}" for n in range(4)]
    assert all(row["response"]["status_code"] == 200 for row in plain["raw"])
    assert (plain["newest"]["id"], plain["newest"]["status"]) == (plain["id"], "completed")
    assert plain["newest"]["metadata"] == {"suite": "nightly"}

    # Its own lines ask for JSON of a schema, and it reads the answers as its model.
    structured = report["structured"]
    assert structured["status"]["request_counts"] == {"total": 3, "completed": 3, "failed": 0}
    assert [result["success"] for result in structured["results"]] == [True] * 3
    assert all(result["result"]["mood"] in {"good", "bad"} for result in structured["results"])

    assert report["cancel"] == {"status": "cancelling", "ended": "cancelled"}
