"""Where a model's weights are, pinned: a local folder by the digest of its files, a hub id by its
commit. Either way the same catalogue entry means the same bytes tomorrow."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from batchjobs import hub_cache
from batchjobs.errors import ModelError, NotFoundError, UsageError
from batchjobs.model_folders import ADAPTER, CONFIG, adapter_error, check_model_folder

HUB_TIMEOUT_SECONDS = 20

_WEIGHTS = ".safetensors"
_PINNED_SUFFIXES = frozenset({_WEIGHTS, ".json", ".jinja", ".model", ".txt"})
_TEMPLATES = "additional_chat_templates"
_HUB_ID = re.compile(r"^[\w.-]+(/[\w.-]+)?$", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """`location` is an absolute folder or a hub id, `revision` its digest or commit, in hex.
    `notes` are sentences on what of it is not used, or was found otherwise than asked."""

    location: str
    revision: str
    notes: tuple[str, ...] = ()


def pin_source(words: str, *, revision: str | None = None) -> Source:
    """The source that a person means by `words`; an existing folder goes before a hub id.

    A `revision` is a branch, tag or commit of a hub id, or of a folder in the hub client's cache.

    Raises:
        NotFoundError: neither a folder nor a model of the hub.
        ModelError: weights are missing, damaged or not safetensors, or the hub cannot be asked.
        UsageError: a revision of a folder that has none.
    """
    path = Path(words).expanduser()
    if path.is_dir():
        return _pin_folder(_snapshot(path.resolve(), revision))
    if path.is_file():
        raise UsageError(f"{words} is a file: add the folder it lies in, or a file that is GGUF.")
    if not _HUB_ID.match(words):
        raise NotFoundError(f"There is no folder {words}, and it is not a Hugging Face id.")
    return _pin_hub_id(words, revision)


def _snapshot(folder: Path, revision: str | None) -> Path:
    if hub_cache.is_repository(folder):
        return hub_cache.snapshot(folder, revision)
    if revision is not None:
        raise UsageError(
            f"--revision is of Hugging Face ids; {folder} is a folder, pinned as it is now."
        )
    return folder


def _pin_folder(folder: Path) -> Source:
    first = next(iter(_module_folders(folder)), folder)
    model = folder if (folder / CONFIG).is_file() else first
    check_model_folder(model)
    return Source(location=str(folder), revision=folder_digest(folder), notes=tuple(_unused(model)))


def _unused(folder: Path) -> Iterator[str]:
    if (folder / ADAPTER).is_file():
        yield (
            f"The adapter in {folder} ({ADAPTER}) is not used: the model is served without it."
            " To serve it, merge it (peft's merge_and_unload) and add the folder of the result."
        )


def folder_digest(folder: Path) -> str:
    """64 hex digits over the names and contents of the weights, tokenizer, templates and
    configuration; of an embedding model also those in the folders that its `modules.json` names."""
    digest = hashlib.sha256()
    for part in [folder, *_template_folders(folder), *_module_folders(folder)]:
        for file in sorted(part.iterdir()):
            if file.suffix in _PINNED_SUFFIXES and file.is_file():
                with file.open("rb") as content:
                    of_file = hashlib.file_digest(content, "sha256").hexdigest()
                name = file.relative_to(folder).as_posix()
                digest.update(f"{name}\0{of_file}\n".encode())
    return digest.hexdigest()


def _template_folders(folder: Path) -> list[Path]:
    return [folder / _TEMPLATES] if (folder / _TEMPLATES).is_dir() else []


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
        return _pin_cached(hub_id, revision, failed)
    names = [file.rfilename for file in found.siblings or ()]
    if ADAPTER in names and CONFIG not in names:
        raise adapter_error(hub_id)
    if found.sha is None or not any(name.endswith(_WEIGHTS) for name in names):
        raise ModelError(f"{hub_id} has no .safetensors weights; other formats are not read.")
    return Source(location=hub_id, revision=found.sha)


def _pin_cached(hub_id: str, revision: str | None, failed: Exception) -> Source:
    """The snapshot of the hub client's cache, as the hub cannot be asked (`failed`)."""
    repository = hub_cache.cached_repository(hub_id)
    if repository is None:
        raise ModelError(
            f"There is no folder {hub_id}, and the Hugging Face hub cannot be asked ({failed})."
        ) from failed
    found = _pin_folder(hub_cache.snapshot(repository, revision))
    note = f"The Hugging Face hub cannot be asked; this is what {found.location} has of {hub_id}."
    return Source(location=found.location, revision=found.revision, notes=(note, *found.notes))
