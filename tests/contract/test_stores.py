"""What every object store must do."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from batchjobs.errors import ObjectExistsError, ObjectMissingError, StoreError
from batchjobs.store.base import ObjectStore
from batchjobs.store.directory import DirectoryStore
from batchjobs.store.memory import MemoryStore

STORES: dict[str, Callable[[pytest.FixtureRequest], ObjectStore]] = {
    "memory": lambda _: MemoryStore(),
    "directory": lambda request: DirectoryStore(request.getfixturevalue("tmp_path") / "store"),
    "s3": lambda request: request.getfixturevalue("s3_store"),
}
BAD_KEYS = [
    "",
    "/etc/passwd",
    "../x",
    "a/../b",
    "a//b",
    "a/",
    ".hidden",
    "a/.b",
    "a b",
    "a\\b",
    "é",
]


@pytest.fixture(params=sorted(STORES))
def store(request: pytest.FixtureRequest) -> ObjectStore:
    return STORES[request.param](request)


def read(store: ObjectStore, key: str, *, start: int = 0, end: int | None = None) -> bytes:
    with store.open(key, start=start, end=end) as stream:
        return stream.read()


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 20_000])
def test_object_reads_back_whole_after_put(store: ObjectStore, data: bytes) -> None:
    store.put("files/a.jsonl", data)
    assert read(store, "files/a.jsonl") == data
    assert store.size("files/a.jsonl") == len(data)


def test_object_is_made_of_all_writes_in_order(store: ObjectStore) -> None:
    with store.create("a") as writer:
        writer.write(b"one,")
        writer.write(b"")
        writer.write(b"two")
    assert read(store, "a") == b"one,two"


@pytest.mark.parametrize("data", [b"", b"first"])
def test_put_refuses_a_taken_key_and_keeps_the_first(store: ObjectStore, data: bytes) -> None:
    store.put("a", data)
    with pytest.raises(ObjectExistsError, match="a exists"):
        store.put("a", data)
    with pytest.raises(ObjectExistsError):
        store.put("a", b"second")
    assert read(store, "a") == data


def test_object_is_invisible_until_its_writer_ends(store: ObjectStore) -> None:
    with store.create("a") as writer:
        writer.write(b"x" * 3_000_000)
        assert list(store.list("")) == []
        with pytest.raises(ObjectMissingError):
            store.open("a")
    assert list(store.list("")) == ["a"]


def test_failed_writer_leaves_no_object(store: ObjectStore) -> None:
    def write_half() -> None:
        with store.create("a") as writer:
            writer.write(b"half of it")
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        write_half()
    assert list(store.list("")) == []
    store.put("a", b"whole")
    assert read(store, "a") == b"whole"


def test_one_of_many_racing_writers_wins(store: ObjectStore) -> None:
    barrier = threading.Barrier(8)
    won: list[bytes] = []

    def write(data: bytes) -> None:
        barrier.wait()
        try:
            store.put("jobs/1/race", data)
        except ObjectExistsError:
            return
        won.append(data)

    threads = [threading.Thread(target=write, args=(b"%d" % n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert read(store, "jobs/1/race") == won[0]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, None, b"0123456789"),
        (4, None, b"456789"),
        (0, 4, b"0123"),
        (3, 7, b"3456"),
        (3, 3, b""),
        (7, 3, b""),
        (8, 99, b"89"),
        (99, None, b""),
    ],
)
def test_open_reads_a_range(
    store: ObjectStore, start: int, end: int | None, expected: bytes
) -> None:
    store.put("a", b"0123456789")
    assert read(store, "a", start=start, end=end) == expected


def test_open_reads_lines_that_end_at_the_range(store: ObjectStore) -> None:
    store.put("a", b"one\ntwo\nthree\nfour")
    with store.open("a", start=4, end=14) as stream:
        assert stream.readline() == b"two\n"
        assert stream.readline(3) == b"thr"
        assert stream.readline() == b"ee\n"
        assert stream.readline() == b""


def test_missing_object_is_named(store: ObjectStore) -> None:
    with pytest.raises(ObjectMissingError, match="files/none"):
        store.open("files/none")
    with pytest.raises(ObjectMissingError, match="files/none"):
        store.size("files/none")


def test_list_gives_keys_of_a_prefix_in_key_order(store: ObjectStore) -> None:
    keys = ["a.jsonl", "a/b", "a/b.x", "a/b0/c", "a0", "b/1", "b/10", "b/2"]
    for key in reversed(keys):
        store.put(key, b"")
    assert list(store.list("")) == sorted(keys)
    assert list(store.list("a/b")) == ["a/b", "a/b.x", "a/b0/c"]
    assert list(store.list("b/1")) == ["b/1", "b/10"]
    assert list(store.list("b/1/")) == []
    assert list(store.list("none/")) == []


def test_list_older_gives_the_keys_of_objects_of_an_age(store: ObjectStore) -> None:
    for key in ("files/b", "files/a", "other"):
        store.put(key, b"")
    assert list(store.list_older("files/", 3600)) == []
    assert list(store.list_older("files/", 0)) == ["files/a", "files/b"]


def test_deleted_object_is_gone_and_its_key_free(store: ObjectStore) -> None:
    store.put("jobs/1/a", b"old")
    store.put("jobs/1/b", b"")
    store.delete("jobs/1/a")
    store.delete("jobs/1/a")
    assert list(store.list("")) == ["jobs/1/b"]
    store.delete("jobs/1/b")
    store.put("jobs/1/a", b"new")
    assert read(store, "jobs/1/a") == b"new"


def test_reader_keeps_its_bytes_when_the_object_is_deleted(store: ObjectStore) -> None:
    store.put("a", b"data")
    with store.open("a") as stream:
        store.delete("a")
        assert stream.read() == b"data"


@pytest.mark.parametrize("key", BAD_KEYS)
def test_every_operation_refuses_a_key_that_could_leave_the_store(
    store: ObjectStore, key: str
) -> None:
    operations: list[Callable[[], object]] = [
        lambda: store.put(key, b""),
        lambda: store.open(key),
        lambda: store.size(key),
        lambda: store.delete(key),
        lambda: store.locate(key),
    ]
    for operation in operations:
        with pytest.raises(StoreError, match="not a usable object key"):
            operation()


@pytest.mark.parametrize("prefix", ["/", "../", "a/../", "a//", ".h"])
def test_list_refuses_a_prefix_that_could_leave_the_store(store: ObjectStore, prefix: str) -> None:
    with pytest.raises(StoreError, match="not a usable prefix"):
        list(store.list(prefix))


def test_locate_names_the_object(store: ObjectStore) -> None:
    assert "files/a.jsonl" in store.locate("files/a.jsonl")


def test_sweep_leaves_what_is_whole_or_young(store: ObjectStore) -> None:
    store.put("a", b"1")
    with store.create("b") as writer:
        writer.write(b"2")
        store.sweep()
    assert list(store.list("")) == ["a", "b"]
