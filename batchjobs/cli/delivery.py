"""Result files: where they lie, and copies of them where a person wants them."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from batchjobs.errors import UsageError

if TYPE_CHECKING:
    from batchjobs.client.base import Client
    from batchjobs.client.batch import Batch

STREAM = "-"
"""The path that means standard input or output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destinations:
    """Where copies of the two result files are to go; None leaves them in the store only."""

    output: str | None
    errors: str | None

    @property
    def uses_stdout(self) -> bool:
        return STREAM in (self.output, self.errors)

    @property
    def options(self) -> str:
        """As they are typed behind a command."""
        pairs = (("-o", self.output), ("--errors", self.errors))
        return "".join(f" {option} {shlex.quote(path)}" for option, path in pairs if path)

    def check(self, *, source: str | None = None, as_json: bool = False) -> None:
        """Find out now, not after hours of work, that a copy could not be written.

        Raises UsageError.
        """
        if as_json and self.uses_stdout:
            raise UsageError("--json and a result file cannot both go to standard output.")
        paths = [path for path in (self.output, self.errors) if path is not None]
        if len(paths) == 2 and _same(paths[0], paths[1]):
            raise UsageError(f"Output and errors cannot both go to {paths[0]}.")
        for path in paths:
            if source is not None and path != STREAM and _same(path, source):
                raise UsageError(f"{path} is the input file; results must go elsewhere.")
            _check_writable(path)


def deliver(client: Client, batch: Batch, destinations: Destinations) -> list[str]:
    """Copy a job's result files; a sentence on each. A copy appears whole or not at all.

    A destination whose file does not exist, because no line ended in it, is removed: what lies
    there is of another run. After a failed validation, nothing is touched. Raises OSError,
    StoreError and RemoteError.
    """
    from batchjobs.states import JobState

    if batch.status == JobState.FAILED:
        return []
    said = []
    for what, file_id, path in (
        ("results", batch.output_file_id, destinations.output),
        ("errors", batch.error_file_id, destinations.errors),
    ):
        if path is None:
            continue
        if file_id is None:
            _remove(path)
            said.append(f"No {what}: {path} not written.")
        else:
            _copy(client, file_id, path)
            said.append(f"{what.capitalize()} written to {_name(path)}.")
    return said


def locations(client: Client, batch: Batch) -> dict[str, str]:
    """File id → where its object lies, of the result files that exist."""
    ids = [file_id for file_id in (batch.output_file_id, batch.error_file_id) if file_id]
    return {file_id: client.locate(file_id) for file_id in ids}


def _copy(client: Client, file_id: str, path: str) -> None:
    with client.open(file_id) as content:
        if path == STREAM:
            shutil.copyfileobj(content, sys.stdout.buffer)
            sys.stdout.buffer.flush()
            return
        with _replacing(Path(os.path.realpath(path))) as target:
            shutil.copyfileobj(content, target)


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` at the end; devices and pipes are written to."""
    if path.exists() and not path.is_file():
        with path.open("wb") as device:
            yield device
        return
    descriptor, scratch = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as target:
            yield target
        Path(scratch).chmod(_mode_of_new_files())
        Path(scratch).replace(path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise


def _mode_of_new_files() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _remove(path: str) -> None:
    if path != STREAM and Path(path).is_file():
        Path(path).unlink()


def _check_writable(path: str) -> None:
    if path == STREAM:
        return
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise UsageError(f"{path} is a folder; name a file in it.")
    if not target.parent.is_dir():
        raise UsageError(f"There is no folder {target.parent} to write {target.name} in.")
    if not os.access(target.parent, os.W_OK) and not target.exists():
        raise UsageError(f"The folder {target.parent} cannot be written to.")


def _same(one: str, other: str) -> bool:
    if STREAM in (one, other):
        return one == other
    return os.path.realpath(one) == os.path.realpath(other)


def _name(path: str) -> str:
    return "standard output" if path == STREAM else path
