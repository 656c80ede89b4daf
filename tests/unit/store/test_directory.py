"""What the directory store does beyond the contract: disks fill, processes die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from batchjobs.errors import ObjectExistsError, StoreError
from batchjobs.store.directory import STALE_SECONDS, DirectoryStore
from tests.support.disk import file_size_limit


def leftovers(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


@pytest.mark.parametrize("size", [100_000, 5_000_000])
def test_full_disk_is_a_store_error_with_path_and_reason(tmp_path: Path, size: int) -> None:
    store = DirectoryStore(tmp_path)
    with (
        file_size_limit(50_000),
        pytest.raises(StoreError, match=r"cannot write .*objects/files/a: File too large"),
    ):
        store.put("files/a", b"x" * size)
    assert leftovers(tmp_path) == []


def test_store_works_again_after_the_disk_was_full(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    with file_size_limit(1000), pytest.raises(StoreError):
        store.put("a", b"x" * 2000)
    store.put("a", b"x" * 2000)
    assert store.size("a") == 2000


def test_error_of_the_caller_passes_through_unchanged(tmp_path: Path) -> None:
    def read_from_network() -> bytes:
        raise ConnectionResetError

    store = DirectoryStore(tmp_path)
    with pytest.raises(ConnectionResetError), store.create("a") as writer:
        writer.write(read_from_network())
    assert leftovers(tmp_path) == []


def test_taken_key_leaves_no_temporary_file(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store.put("a", b"first")
    with pytest.raises(ObjectExistsError):
        store.put("a", b"second")
    assert leftovers(tmp_path) == [tmp_path / "objects" / "a"]


def test_opening_sweeps_only_old_temporary_files(tmp_path: Path) -> None:
    DirectoryStore(tmp_path)
    old, young = tmp_path / "tmp" / "old", tmp_path / "tmp" / "young"
    for path in (old, young):
        path.touch()
    stale = old.stat().st_mtime - STALE_SECONDS - 60
    os.utime(old, (stale, stale))
    DirectoryStore(tmp_path)
    assert [path.name for path in (tmp_path / "tmp").iterdir()] == ["young"]


def test_killed_writer_leaves_no_object(tmp_path: Path) -> None:
    script = """
import os, sys
from pathlib import Path
from batchjobs.store.directory import DirectoryStore
with DirectoryStore(Path(sys.argv[1])).create("jobs/1/a") as writer:
    writer.write(b"x" * 5_000_000)
    os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    store = DirectoryStore(tmp_path)
    assert list(store.list("")) == []
    store.put("jobs/1/a", b"whole")


def test_delete_removes_directories_that_became_empty(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store.put("jobs/1/shards/0/a", b"")
    store.put("jobs/2/b", b"")
    store.delete("jobs/1/shards/0/a")
    assert sorted(path.name for path in (tmp_path / "objects" / "jobs").iterdir()) == ["2"]
    store.delete("jobs/2/b")
    assert (tmp_path / "objects").is_dir()


def test_put_survives_deletes_that_remove_its_directory(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    rounds = 100

    def cycle(name: str) -> None:
        for _ in range(rounds):
            store.put(f"jobs/1/shards/{name}", b"")
            store.delete(f"jobs/1/shards/{name}")

    failures: list[threading.ExceptHookArgs] = []
    threads = [threading.Thread(target=cycle, args=(name,)) for name in "ab"]
    hook, threading.excepthook = threading.excepthook, failures.append
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        threading.excepthook = hook
    assert failures == []
    assert list(store.list("")) == []


def test_object_where_a_directory_should_be_is_a_store_error(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store.put("a", b"")
    with pytest.raises(StoreError, match=r"cannot write .*a/b: Not a directory"):
        store.put("a/b", b"")


def test_root_that_cannot_be_made_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot create"):
        DirectoryStore(tmp_path / "file" / "store")


def test_objects_are_for_their_owner_only(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store.put("a", b"a prompt")
    assert Path(store.locate("a")).stat().st_mode & 0o077 == 0
