"""A check at load that was passed is known by all that it depends on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from executor import check_cache
from executor.check_cache import check_key, is_known, note


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_cache, "_folder", lambda: tmp_path / "cache" / "checks")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "config.json").write_text("{}")
    return folder


def test_passed_check_is_known_until_a_part_changes(checkpoint: Path) -> None:
    key = check_key(str(checkpoint), types="float32")
    assert not is_known(key)
    note(key)
    assert is_known(check_key(str(checkpoint), types="float32"))
    assert not is_known(check_key(str(checkpoint), types="bfloat16"))


@pytest.mark.parametrize("change", ["content", "config", "time", "file"])
def test_changed_checkpoint_is_not_known(change: str, checkpoint: Path) -> None:
    note(check_key(str(checkpoint)))
    if change == "content":
        (checkpoint / "model.safetensors").write_bytes(b"other weights")
    elif change == "config":
        (checkpoint / "config.json").write_text('{"a": 1}')
    elif change == "time":
        os.utime(checkpoint / "model.safetensors", ns=(1, 1))
    else:
        (checkpoint / "more.safetensors").write_bytes(b"")
    assert not is_known(check_key(str(checkpoint)))


@pytest.mark.parametrize(
    ("name", "value"),
    [("_source_digest", lambda: 1), ("features", lambda: frozenset({"avx2"}))],
)
def test_other_code_or_processor_is_not_known(
    name: str, value: object, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note(check_key(str(checkpoint)))
    monkeypatch.setattr(check_cache, name, value)
    assert not is_known(check_key(str(checkpoint)))


def test_source_that_is_no_folder_has_no_key(tmp_path: Path) -> None:
    assert check_key("organisation/model") is None
    assert check_key(str(tmp_path / "empty")) is None
    assert not is_known(None)


def test_cache_that_cannot_be_written_is_done_without(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    key = check_key(str(checkpoint))
    note(key)
    assert not is_known(key)
