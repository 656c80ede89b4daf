"""Where a model's weights are, pinned: a local folder by the digest of its files, a hub id by its
commit. Either way the same catalogue entry means the same bytes tomorrow."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from batchjobs.errors import ModelError, NotFoundError

HUB_TIMEOUT_SECONDS = 20

_WEIGHTS = ".safetensors"
_PINNED_SUFFIXES = frozenset({_WEIGHTS, ".json", ".jinja", ".model", ".txt"})
_HUB_ID = re.compile(r"^[\w.-]+(/[\w.-]+)?$", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """`location` is an absolute folder or a hub id, `revision` its digest or commit, in hex."""

    location: str
    revision: str


def pin_source(words: str, *, revision: str | None = None) -> Source:
    """The source that a person means by `words`; an existing folder goes before a hub id.

    Raises:
        NotFoundError: neither a folder nor a model of the hub.
        ModelError: no safetensors weights, or the hub cannot be asked.
    """
    folder = Path(words).expanduser()
    if folder.is_dir():
        return _pin_folder(folder.resolve())
    if not _HUB_ID.match(words):
        raise NotFoundError(f"There is no folder {words}, and it is not a Hugging Face id.")
    return _pin_hub_id(words, revision)


def _pin_folder(folder: Path) -> Source:
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} is not a transformers model folder: it has no config.json.")
    if not any(folder.glob(f"*{_WEIGHTS}")):
        raise ModelError(
            f"{folder} has no .safetensors weights; other formats can run code and are not read."
        )
    return Source(location=str(folder), revision=folder_digest(folder))


def folder_digest(folder: Path) -> str:
    """64 hex digits over the names and contents of the weights, tokenizer and configuration."""
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.suffix in _PINNED_SUFFIXES and file.is_file():
            with file.open("rb") as content:
                of_file = hashlib.file_digest(content, "sha256").hexdigest()
            digest.update(f"{file.name}\0{of_file}\n".encode())
    return digest.hexdigest()


def _pin_hub_id(hub_id: str, revision: str | None) -> Source:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    try:
        found = HfApi().model_info(hub_id, revision=revision, timeout=HUB_TIMEOUT_SECONDS)
    except (RepositoryNotFoundError, RevisionNotFoundError) as missing:
        at = f" at revision {revision}" if revision else ""
        raise NotFoundError(
            f"There is no folder {hub_id}, and no public model of that id{at} on the hub."
        ) from missing
    except Exception as failed:
        raise ModelError(
            f"There is no folder {hub_id}, and the Hugging Face hub cannot be asked ({failed})."
        ) from failed
    names = [file.rfilename for file in found.siblings or ()]
    if found.sha is None or not any(name.endswith(_WEIGHTS) for name in names):
        raise ModelError(f"{hub_id} has no .safetensors weights; other formats are not read.")
    return Source(location=hub_id, revision=found.sha)
