"""Where a model's weights are, pinned: a local folder by the digest of its files, a hub id by its
commit. Either way the same catalogue entry means the same bytes tomorrow."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

from batchjobs.errors import ModelError, NotFoundError

HUB_TIMEOUT_SECONDS = 20

_WEIGHTS = ".safetensors"
_ADAPTER = "adapter_config.json"
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
    first = next(iter(_module_folders(folder)), folder)
    model = folder if (folder / "config.json").is_file() else first
    if not (model / "config.json").is_file():
        if (folder / _ADAPTER).is_file():
            raise _adapter(str(folder))
        raise ModelError(f"{folder} is not a transformers model folder: it has no config.json.")
    if not any(model.glob(f"*{_WEIGHTS}")):
        raise ModelError(
            f"{folder} has no .safetensors weights; other formats can run code and are not read."
        )
    return Source(location=str(folder), revision=folder_digest(folder))


def folder_digest(folder: Path) -> str:
    """64 hex digits over the names and contents of the weights, tokenizer and configuration; of
    an embedding model also those in the folders that its `modules.json` names."""
    digest = hashlib.sha256()
    for part in [folder, *_module_folders(folder)]:
        for file in sorted(part.iterdir()):
            if file.suffix in _PINNED_SUFFIXES and file.is_file():
                with file.open("rb") as content:
                    of_file = hashlib.file_digest(content, "sha256").hexdigest()
                name = file.relative_to(folder).as_posix()
                digest.update(f"{name}\0{of_file}\n".encode())
    return digest.hexdigest()


def _module_folders(folder: Path) -> list[Path]:
    """Where sentence-transformers keeps what comes behind the model itself."""
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        parts = [folder / path for path in sorted({module["path"] for module in modules} - {""})]
    except (OSError, ValueError, TypeError, KeyError):
        return []  # none, or not one: who loads the model says what is wrong
    inside = (part for part in parts if part.resolve().is_relative_to(folder.resolve()))
    return [part for part in inside if part.is_dir()]


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
    if _ADAPTER in names and "config.json" not in names:
        raise _adapter(hub_id)
    if found.sha is None or not any(name.endswith(_WEIGHTS) for name in names):
        raise ModelError(f"{hub_id} has no .safetensors weights; other formats are not read.")
    return Source(location=hub_id, revision=found.sha)


def _adapter(words: str) -> ModelError:
    return ModelError(
        f"{words} is an adapter (LoRA or another of peft's), which is not served by itself: merge"
        " it into its base model (peft's merge_and_unload) and add the folder that this is saved"
        " to."
    )
