"""A suite of choices on the real default model."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from batchjobs.cli.exits import Exit
from batchjobs.worker.default_model import NAME
from tests.support.cli import run, run_json

EXAMPLE = Path(__file__).parents[2] / "examples" / "evals" / "choice.yaml"


@pytest.mark.model
def test_the_model_knows_capitals(
    default_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATCHJOBS_HOME", str(tmp_path / "home"))
    assert run("models", "add", NAME, str(default_model)).exit_code == 0
    suite = yaml.safe_load(EXAMPLE.read_text())
    suite["dataset"]["source"] = str(EXAMPLE.with_name("choice.jsonl"))
    suite["dataset"]["limit"] = 12
    path = tmp_path / "capitals.yaml"
    path.write_text(yaml.safe_dump(suite))
    done = run("evals", "run", str(path))
    assert done.exit_code == Exit.NO_VERDICT
    shown = run_json("evals", "show", done.stdout.splitlines()[0])
    assert shown["scores"]["acc"]["mean"] >= 0.75
    assert shown["scores"]["margin"]["mean"] > 1
