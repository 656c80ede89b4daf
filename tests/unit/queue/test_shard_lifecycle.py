"""Workers that live, stall, come back late and die in any order, against the promises.

The model knows only which claim was granted last and which lines were committed; whatever the
order, each line ends in one file, and exactly the committed ones in the output.
"""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import delete, select

from batchjobs.errors import IntegrityError, LeaseLostError
from batchjobs.finalize import finalize
from batchjobs.models import Part, Shard
from batchjobs.queue import claims, jobs
from batchjobs.queue.claims import Claim
from batchjobs.states import TERMINAL, JobState, ShardState
from tests.support.jobs import (
    LEASE_SECONDS,
    claim,
    clock_of,
    load_job,
    open_deployment,
    read_records,
    request_line,
    start_job,
    write_part,
)

LINES = 7
OWNERS = st.sampled_from(["worker-1", "worker-2", "worker-3"])


class ShardLifecycle(RuleBasedStateMachine):
    held = Bundle("held")

    def __init__(self, database_url: str | None) -> None:
        super().__init__()
        self.home = tempfile.TemporaryDirectory()
        self.deployment = open_deployment(Path(self.home.name), database_url=database_url)
        with self.deployment.database.write() as session:  # shards that another example left
            session.execute(delete(Part))
            session.execute(delete(Shard))
        self.granted: dict[int, Claim] = {}
        self.lines: dict[int, set[int]] = {}
        self.parts = 0

    @initialize()
    def start(self) -> None:
        requests = [
            request_line(f"id-{number}", model="xy"[number % 2]) for number in range(1, LINES + 1)
        ]
        self.job_id = start_job(self.deployment, requests, shard_max_lines=2)

    def teardown(self) -> None:
        """Whatever has happened, the job can be ended and every line is somewhere once."""
        with self.deployment.database.write() as session:
            clock_of(self.deployment).advance(timedelta(days=2))
            jobs.expire_due(session, self.deployment.clock)
        finalize(self.deployment, self.job_id)
        job = load_job(self.deployment, self.job_id)
        assert job.status in TERMINAL
        output = [each["custom_id"] for each in read_records(self.deployment, job.output_file_id)]
        errors = [each["custom_id"] for each in read_records(self.deployment, job.error_file_id)]
        assert sorted(output + errors) == [f"id-{number}" for number in range(1, LINES + 1)]
        committed = {f"id-{line}" for lines in self.lines.values() for line in lines}
        assert set(output) == committed
        self.deployment.close()
        self.home.cleanup()

    @rule(target=held, owner=OWNERS)
    def claim(self, owner: str) -> object:
        claimed = claim(self.deployment, owner=owner)
        if claimed is None:
            return multiple()
        before = self.granted.get(claimed.shard_id)
        assert before is None or claimed.fence > before.fence
        self.granted[claimed.shard_id] = claimed
        return claimed

    @rule(claimed=held, data=st.data())
    def commit_one_line(self, claimed: Claim, data: st.DataObject) -> None:
        """Of the lines that are not committed, as a worker that has read the parts would."""
        mine = {claimed.first_line + 2 * n for n in range(claimed.line_count)}
        open_lines = sorted(mine - self.lines.get(claimed.shard_id, set()))
        if not open_lines:
            return
        line = data.draw(st.sampled_from(open_lines))
        self.parts += 1
        facts = write_part(self.deployment, claimed, number=self.parts, lines=[line])
        is_held = self.is_held(claimed)
        try:
            with self.deployment.database.write() as session:
                claims.commit_part(session, claimed, facts)
        except LeaseLostError:
            assert not is_held
        else:
            assert is_held
            self.lines.setdefault(claimed.shard_id, set()).add(line)

    @rule(claimed=held)
    def finish(self, claimed: Claim) -> None:
        complete = len(self.lines.get(claimed.shard_id, ())) == claimed.line_count
        is_held = self.is_held(claimed)
        try:
            with self.deployment.database.write() as session:
                claims.finish(session, claimed)
        except LeaseLostError:
            assert not is_held
        except IntegrityError:
            assert is_held
            assert not complete
        else:
            assert is_held
            assert complete

    @rule(claimed=held)
    def heartbeat(self, claimed: Claim) -> None:
        is_held = self.is_held(claimed)
        with self.deployment.database.write() as session:
            lost = claims.heartbeat(session, self.deployment.clock, [claimed], LEASE_SECONDS)
        assert lost == ([] if is_held else [claimed])

    @rule(claimed=held)
    def release(self, claimed: Claim) -> None:
        is_held = self.is_held(claimed)
        with self.deployment.database.write() as session:
            assert claims.release(session, claimed) == is_held

    @rule(seconds=st.sampled_from([1.0, LEASE_SECONDS / 2, LEASE_SECONDS + 1]))
    def pass_time(self, seconds: float) -> None:
        clock_of(self.deployment).advance(timedelta(seconds=seconds))

    @rule()
    def rescue(self) -> None:
        with self.deployment.database.write() as session:
            claims.rescue(session, self.deployment.clock)

    @rule(owner=OWNERS)
    def find_dead(self, owner: str) -> None:
        with self.deployment.database.write() as session:
            claims.release_owner(session, owner)
            assert owner not in claims.owners(session)

    @rule()
    def settle(self) -> None:
        with self.deployment.database.write() as session:
            settled = jobs.settle(session, self.deployment.clock, self.job_id)
        if settled is JobState.FINALIZING:
            assert sum(map(len, self.lines.values())) == LINES

    @rule(luck=st.integers(0, 9))
    def cancel(self, luck: int) -> None:
        if luck == 0 and load_job(self.deployment, self.job_id).status is JobState.IN_PROGRESS:
            with self.deployment.database.write() as session:
                jobs.cancel(session, self.deployment.clock, self.job_id)

    @invariant()
    def running_shards_and_only_they_have_a_holder(self) -> None:
        for shard in self.shards():
            is_running = shard.state is ShardState.RUNNING
            assert (shard.owner is not None) == is_running
            assert (shard.lease_until is not None) == is_running
            assert shard.attempt >= 0

    def shards(self) -> list[Shard]:
        with self.deployment.database.read() as session:
            return list(session.scalars(select(Shard)))

    def is_held(self, claimed: Claim) -> bool:
        """Whether the database still has the shard with this claim's fence and running."""
        return any(
            shard.id == claimed.shard_id
            and shard.fence == claimed.fence
            and shard.state is ShardState.RUNNING
            for shard in self.shards()
        )


def test_promises_are_kept_in_any_order_of_events(database_url: str | None) -> None:
    run_state_machine_as_test(
        lambda: ShardLifecycle(database_url),
        settings=settings(max_examples=20, stateful_step_count=25),
    )
