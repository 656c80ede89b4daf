"""In which types a checkpoint's weights are stored, by the headers of its safetensors files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

_TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
_HEADER_SIZE_BYTES = 8


@dataclass(frozen=True, slots=True)
class StoredTypes:
    """The type of all tensors, and of all matrices; None: several, or not known."""

    tensors: torch.dtype | None
    matrices: torch.dtype | None


def stored_types(source: str, subfolder: str, configured: torch.dtype | None) -> StoredTypes:
    """Of a local folder's files; elsewhere, and for other types, what the configuration says.

    Raises:
        OSError, ValueError: a file cannot be read, or is not of the safetensors format.
    """
    files = sorted((Path(source) / subfolder).glob("*.safetensors"))
    entries = [entry for file in files for entry in _tensors(file)]
    kinds = {entry["dtype"] for entry in entries}
    if not kinds or not kinds <= _TYPES.keys():
        return StoredTypes(configured, configured)
    matrices = {entry["dtype"] for entry in entries if len(entry["shape"]) > 1}
    return StoredTypes(_only(kinds), _only(matrices))


def _only(kinds: set[str]) -> torch.dtype | None:
    return _TYPES[next(iter(kinds))] if len(kinds) == 1 else None


def _tensors(file: Path) -> list[dict[str, Any]]:
    with file.open("rb") as opened:
        size = int.from_bytes(opened.read(_HEADER_SIZE_BYTES), "little")
        header = json.loads(opened.read(size))
    return [entry for key, entry in header.items() if key != "__metadata__"]
