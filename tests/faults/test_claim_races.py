"""Many processes on one database: every shard goes to one of them."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from batchjobs.queue import tallies
from batchjobs.states import JobState
from tests.support.jobs import load_job, open_deployment, request_line, start_job

WORKER = """
import sys
from pathlib import Path
from batchjobs.queue import claims, jobs
from tests.support.jobs import claim, complete, open_deployment

home, owner, job_id, *url = sys.argv[1:]
with open_deployment(Path(home), database_url=url[0] if url else None) as deployment:
    while (held := claim(deployment, owner=owner)) is not None:
        complete(deployment, held)
        print(held.number)
    with deployment.database.write() as session:
        jobs.settle(session, deployment.clock, job_id)
"""


def test_processes_that_claim_at_once_share_the_shards_without_overlap(
    tmp_path: Path, database_url: str | None
) -> None:
    with open_deployment(tmp_path, database_url=database_url) as deployment:
        shards = 60
        requests = [request_line(f"id-{number}") for number in range(shards)]
        job_id = start_job(deployment, requests, shard_max_lines=1)
        url = [database_url] if database_url else []
        running = [
            subprocess.Popen(
                [sys.executable, "-c", WORKER, str(tmp_path), f"worker-{number}", job_id, *url],
                stdout=subprocess.PIPE,
                text=True,
                cwd=Path(__file__).parents[2],
            )
            for number in range(4)
        ]
        printed = [process.communicate(timeout=120)[0] for process in running]
        assert [process.returncode for process in running] == [0] * 4
        claimed = Counter(int(number) for output in printed for number in output.split())
        assert claimed == Counter(range(shards))
        job = load_job(deployment, job_id)
        assert job.status is JobState.FINALIZING
        with deployment.database.read() as session:
            assert tallies.tally(session, job).completed == shards
