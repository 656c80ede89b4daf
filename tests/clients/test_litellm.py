"""LiteLLM's SDK, whose functions its proxy calls as well; in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.client_environments import run_script

pytestmark = pytest.mark.clients


def test_litellm_uses_files_and_batches(service_url: str, tmp_path: Path) -> None:
    report = run_script("litellm_client", service_url, tmp_path)

    run = report["run"]
    batch, counts = run["batch"], {"completed": 5, "failed": 1, "total": 6}
    assert (batch["status"], batch["request_counts"]) == ("completed", counts)
    assert batch["metadata"] == {"suite": "nightly"}
    assert (run["file"]["status"], run["file"]["purpose"]) == ("processed", "batch")
    assert {batch["output_file_id"], batch["error_file_id"]} <= set(run["outputs"])
    assert [row["custom_id"] for row in run["output"]] == [f"ask-{n}" for n in (0, 1, 3, 4, 5)]
    [failed] = run["errors"]
    assert (failed["custom_id"], failed["response"]["status_code"]) == ("ask-2", 400)
    assert run["listed"] == [batch["id"]]
    assert run["deleted"]

    failures = report["failures"]
    assert (failures["status"], failures["output_file_id"]) == ("completed", None)
    assert failures["error_file_id"]

    assert report["cancel"] == {"status": "cancelling", "ended": "cancelled"}
