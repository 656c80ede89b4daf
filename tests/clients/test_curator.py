"""bespokelabs-curator in batch mode; it wants an older openai than ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.client_environments import environment_python, run_script

pytestmark = [pytest.mark.clients, pytest.mark.slow]

REQUIREMENTS = ("bespokelabs-curator==0.1.31", "openai==2.30.0")


def test_curator_makes_a_dataset_by_batches(service_url: str, tmp_path: Path) -> None:
    python = environment_python(*REQUIREMENTS)
    report = run_script("curator_client", service_url, tmp_path, python=python)

    rows = report["rows"]
    # The row whose prompt is longer than the context is in the error file, which it leaves out.
    assert [row["name"] for row in rows] == [f"ask-{number}" for number in (0, 1, 2, 3, 5)]
    assert all(isinstance(row["answer"], str) for row in rows)
