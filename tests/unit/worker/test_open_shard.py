from __future__ import annotations

from pathlib import Path

import pytest

from batchjobs.errors import StoreError
from batchjobs.queue import jobs, tallies
from batchjobs.shard_lines import read_shard
from batchjobs.states import Outcome
from batchjobs.store.memory import MemoryStore
from batchjobs.worker.open_shard import OpenShard
from executor.request import Completion
from tests.support.jobs import must_claim, open_deployment, request_line, start_job


class StoreThatLosesAnAnswer(MemoryStore):
    """Its first `put` fails although the object was made."""

    def __init__(self) -> None:
        super().__init__()
        self.has_failed = False

    def put(self, key: str, data: bytes) -> None:
        super().put(key, data)
        if not self.has_failed:
            self.has_failed = True
            raise StoreError("The connection failed.")


def test_part_whose_writing_failed_is_written_again_although_it_was_there(tmp_path: Path) -> None:
    store = StoreThatLosesAnAnswer()
    with open_deployment(tmp_path) as deployment:
        start_job(deployment, [request_line("a"), request_line("b")])
        held = must_claim(deployment)
        first, second = read_shard(deployment.store, held)
        shard = OpenShard(held, deployment.database, store)
        shard.add(first, Outcome.COMPLETED, {"custom_id": "a"})
        with pytest.raises(StoreError):
            shard.checkpoint()
        shard.add(second, Outcome.COMPLETED, {"custom_id": "b"})
        shard.checkpoint()
        again = OpenShard(held, deployment.database, store)
        assert again.is_complete
        assert shard.pending == again.pending


def test_tokens_count_for_the_lines_that_state_them(tmp_path: Path) -> None:
    spent = Completion(request_id="0", prompt_tokens=5, cached_tokens=2)
    with open_deployment(tmp_path) as deployment:
        start_job(deployment, [request_line("a"), request_line("b")])
        held = must_claim(deployment)
        first, second = read_shard(deployment.store, held)
        shard = OpenShard(held, deployment.database, deployment.store)
        shard.add(first, Outcome.COMPLETED, {"custom_id": "a"}, [spent])
        shard.add(second, Outcome.FAILED, {"custom_id": "b"}, [spent])
        assert (shard.pending.prompt_tokens, shard.pending.cached_tokens) == (5, 2)


@pytest.mark.parametrize("details", ["completion_tokens_details", "output_tokens_details"])
def test_reasoning_counts_as_the_answer_says(tmp_path: Path, details: str) -> None:
    spent = Completion(request_id="0", prompt_tokens=5)
    usage = {"usage": {details: {"reasoning_tokens": 3}}}
    with open_deployment(tmp_path) as deployment:
        start_job(deployment, [request_line("a")])
        held = must_claim(deployment)
        (line,) = read_shard(deployment.store, held)
        shard = OpenShard(held, deployment.database, deployment.store)
        shard.add(line, Outcome.COMPLETED, {"response": {"body": usage}}, [spent])
        shard.checkpoint()
        with deployment.database.read() as session:
            tally = tallies.tally(session, jobs.get(session, held.job_id))
        assert tally.reasoning_tokens == 3


def test_what_is_unwritten_is_known_in_bytes(tmp_path: Path) -> None:
    with open_deployment(tmp_path) as deployment:
        start_job(deployment, [request_line("a"), request_line("b")])
        held = must_claim(deployment)
        first, second = read_shard(deployment.store, held)
        shard = OpenShard(held, deployment.database, deployment.store)
        shard.add(first, Outcome.COMPLETED, {"custom_id": "a", "long": "x" * 1000})
        assert 1000 < shard.unwritten_bytes < 1100
        shard.checkpoint()
        assert shard.unwritten_bytes == 0
        shard.add(second, Outcome.COMPLETED, {"custom_id": "b"})
        assert 0 < shard.unwritten_bytes < 100
