from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from batchjobs.cli.delivery import Destinations, deliver
from batchjobs.client.embedded import EmbeddedClient
from tests.support.cli import finished_job
from tests.support.disk import file_size_limit
from tests.support.jobs import open_deployment


def copy(home: Path, job_id: str, path: Path) -> list[str]:
    with EmbeddedClient(open_deployment(home)) as client:
        destinations = Destinations(output=str(path), errors=None)
        return deliver(client, client.batch(job_id), destinations)


def test_a_copy_takes_the_place_of_what_was_there(home: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    target.write_text("old")
    said = copy(home, finished_job(home), target)
    assert said == [f"Results written to {target}."]
    assert len(target.read_text().splitlines()) == 3


def test_a_copy_that_fails_leaves_what_was_there(home: Path, tmp_path: Path) -> None:
    job_id = finished_job(home, 500)
    target = tmp_path / "out" / "out.jsonl"
    target.parent.mkdir()
    target.write_text("old")
    with file_size_limit(100_000), pytest.raises(OSError, match="File too large"):
        copy(home, job_id, target)
    assert target.read_text() == "old"
    assert list(target.parent.iterdir()) == [target]


def test_a_copy_has_the_rights_of_any_new_file(home: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    copy(home, finished_job(home), tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").stat().st_mode == plain.stat().st_mode


def test_a_link_keeps_pointing_to_the_new_content(home: Path, tmp_path: Path) -> None:
    real, link = tmp_path / "real.jsonl", tmp_path / "link.jsonl"
    real.write_text("old")
    link.symlink_to(real)
    copy(home, finished_job(home), link)
    assert link.is_symlink()
    assert len(real.read_text().splitlines()) == 3


def test_a_pipe_is_written_to_and_not_replaced(home: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    job_id, read = finished_job(home), []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    copy(home, job_id, pipe)
    reader.join()
    assert len(read[0].splitlines()) == 3
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_options_can_be_typed_again() -> None:
    destinations = Destinations(output="my results.jsonl", errors="-")
    assert destinations.options == " -o 'my results.jsonl' --errors -"
