"""inspect-ai's `--batch`; it wants an older boto3 than ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.client_environments import environment_python, run_script

pytestmark = [pytest.mark.clients, pytest.mark.slow]

REQUIREMENTS = ("inspect-ai==0.3.285", "openai==3.57.0")


def test_inspect_evaluates_by_batches(service_url: str, tmp_path: Path) -> None:
    python = environment_python(*REQUIREMENTS)
    report = run_script("inspect_client", service_url, tmp_path, python=python)

    run = report["run"]
    assert (run["status"], run["errors"]) == ("success", [None] * 4)
    assert all(isinstance(answer, str) for answer in run["answers"])
    assert all(0 < tokens <= 40 for tokens in run["tokens"])

    # It maps the errors of a rejected batch to its requests, one to one.
    assert len(report["rejected"]["errors"]) == 4
    assert all("[model_not_found]" in error for error in report["rejected"]["errors"])
