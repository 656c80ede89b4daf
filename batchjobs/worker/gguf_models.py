"""GGUF files as models of the catalogue: converted once, into a folder named after the content."""

from __future__ import annotations

import hashlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from batchjobs.errors import ModelError
from batchjobs.sources import Source

if TYPE_CHECKING:
    from executor.gguf_file import GgufFile

_SUFFIX = ".gguf"
_LOCK = ".gguf.lock"
_STEM_CHARS, _DIGEST_CHARS = 80, 12
"""Of a folder's name, which file systems limit."""
_WORD = re.compile(r"[^a-z0-9.]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufModel:
    """A GGUF file, the sha256 of its content in hex, and where its conversion lies or is to lie."""

    file: Path
    sha256: str
    folder: Path


def is_gguf(words: str) -> bool:
    """Whether a person means a GGUF file by `words`."""
    path = Path(words).expanduser()
    return path.suffix.lower() == _SUFFIX and path.is_file()


def find_model(words: str, models_dir: Path) -> GgufModel:
    """The file that `words` name; its content is read through. Raises ModelError: unreadable."""
    file = Path(words).expanduser().resolve()
    try:
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as failed:
        raise ModelError(f"{file} cannot be read: {failed.strerror}.") from failed
    stem = _WORD.sub("-", file.stem.lower()).strip("-.")[:_STEM_CHARS] or "model"
    return GgufModel(
        file=file, sha256=digest, folder=models_dir.resolve() / f"{stem}-{digest[:_DIGEST_CHARS]}"
    )


def convert(model: GgufModel) -> Source:
    """Make the folder if it is not there, and pin it by the file's content.

    Raises:
        ModelError: the file cannot be read, converted or served, or there is no room.
    """
    from executor.convert import convert_gguf, partial_folders
    from executor.errors import EngineError

    models_dir = model.folder.parent
    models_dir.mkdir(parents=True, exist_ok=True)
    with FileLock(models_dir / _LOCK):
        for left in partial_folders(model.folder):
            shutil.rmtree(left)
        try:
            converted = convert_gguf(model.file, model.folder)
        except EngineError as refused:
            raise ModelError(str(refused)) from refused
    notes = () if converted is None else (_describe(converted, model.folder),)
    return Source(location=str(model.folder), revision=model.sha256, notes=notes)


def _describe(file: GgufFile, folder: Path) -> str:
    """How the weights are stored now, in a sentence."""
    dtype = str(file.dtype).removeprefix("torch.")
    size = sum(part.stat().st_size for part in folder.iterdir())
    if file.quantized is None:
        said = f"{file.name} is stored as {dtype} safetensors, the same values"
    else:
        said = f"{file.name} is dequantized ({file.quantized}) and stored as {dtype} safetensors"
    return f"{said} ({size / 1e6:,.0f} MB); the file itself is no longer needed."
