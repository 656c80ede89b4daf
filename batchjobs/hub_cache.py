"""Models that the Hugging Face client has downloaded: `models--ORG--NAME/snapshots/COMMIT`."""

from __future__ import annotations

from pathlib import Path

from batchjobs.errors import ModelError

_SNAPSHOTS, _REFS = "snapshots", "refs"
DEFAULT_REVISION = "main"


def is_repository(folder: Path) -> bool:
    """Whether the folder is a model's whole entry in a cache, and not one snapshot of it."""
    return folder.name.startswith("models--") and (folder / _SNAPSHOTS).is_dir()


def snapshot(repository: Path, revision: str | None = None) -> Path:
    """The folder of a revision (branch, tag or commit), by default of `main` or of the only one.

    Raises:
        ModelError: the cache does not hold it, or holds several and none is `main`.
    """
    there = sorted(folder for folder in (repository / _SNAPSHOTS).iterdir() if folder.is_dir())
    wanted = _commit(repository, revision or DEFAULT_REVISION)
    found = [folder for folder in there if folder.name == wanted]
    if not found and revision is None:
        found = there
    if len(found) != 1:
        names = ", ".join(folder.name for folder in there) or "none"
        raise ModelError(
            f"{repository} has no snapshot of {revision or DEFAULT_REVISION} (it has: {names}):"
            " download it, or add one of its snapshots' folders."
        )
    return found[0]


def cached_repository(hub_id: str) -> Path | None:
    """The entry of a hub id in this machine's cache, None if there is none."""
    from huggingface_hub.constants import HF_HUB_CACHE

    repository = Path(HF_HUB_CACHE) / f"models--{hub_id.replace('/', '--')}"
    return repository if is_repository(repository) else None


def _commit(repository: Path, revision: str) -> str:
    ref = repository / _REFS / revision
    return ref.read_text(encoding="utf-8").strip() if ref.is_file() else revision
