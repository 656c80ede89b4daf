"""Which checkpoints passed the check at load here, so that it is not done again.

A checkpoint is known by its files' names, sizes, times and inodes, and a check by everything that
it depends on beside them: this package's source, torch, transformers, the processor's vectors and
threads, and the types and ways that are computed with.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import platformdirs
import torch
import transformers

from executor.compiled.processor import features

_KEPT = ("*.safetensors", "*.json")


def check_key(source: str, **parts: Any) -> str | None:
    """A name for the check of a folder, under these further parts of it; None for other sources,
    whose files are not known."""
    folder = Path(source)
    files = sorted(file for pattern in _KEPT for file in folder.rglob(pattern))
    if not folder.is_dir() or not files:
        return None
    states = [(file.name, (s := file.stat()).st_size, s.st_mtime_ns, s.st_ino) for file in files]
    described = {
        "files": states,
        "code": _source_digest(),
        "versions": [torch.__version__, transformers.__version__],
        "processor": sorted(features()),
        **parts,
    }
    words = json.dumps(described, sort_keys=True, default=str)
    return hashlib.blake2b(words.encode(), digest_size=16).hexdigest()


def is_known(key: str | None) -> bool:
    """Whether this check was passed before."""
    return key is not None and (_folder() / key).exists()


def note(key: str | None) -> None:
    """This check was passed. Where nothing can be kept it is done again the next time."""
    if key is None:
        return
    try:
        _folder().mkdir(parents=True, exist_ok=True)
        (_folder() / key).touch()
    except OSError:
        return


def _folder() -> Path:
    return Path(platformdirs.user_cache_dir("batchjobs")) / "checks"


@cache
def _source_digest() -> int:
    """Of this package's source."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return crc32(b"".join(file.read_bytes() for file in files))
