"""A job from upload to result files with its objects in S3. Only the logits are made up."""

from __future__ import annotations

import io
import json
from pathlib import Path

from batchjobs.files import add_file, get_file
from batchjobs.states import JobState
from batchjobs.store.layout import manifest_key
from batchjobs.worker.runner import run_jobs
from batchjobs.worker.stop import StopSignal
from batchjobs.worker.tending import tend
from tests.support.engines import FakeEngines, add_models
from tests.support.jobs import (
    MODEL,
    create_job,
    load_job,
    open_deployment,
    read_records,
    request_line,
)
from tests.support.servers.s3 import S3Server


def test_job_ends_with_its_files_in_the_bucket_and_nothing_else(
    s3: S3Server, tmp_path: Path
) -> None:
    requests = [request_line(f"line-{number}") for number in range(40)]
    for number, request in enumerate(requests):
        request["body"] |= {"max_tokens": 2 + number % 5, "ignore_eos": True}
    requests[7]["body"]["max_tokens"] = 10_000  # more than the model's context: fails as a line
    data = "".join(json.dumps(request) + "\n" for request in requests).encode()
    with open_deployment(
        tmp_path,
        store_url=s3.url,
        s3_endpoint_url=s3.endpoint_url,
        shard_max_lines=16,
        checkpoint_seconds=1e-9,
    ) as deployment:
        add_models(deployment, MODEL)
        file = add_file(deployment, io.BytesIO(data), filename="input.jsonl", purpose="batch")
        job_id = create_job(deployment, file.id)
        tend(deployment, job_id)
        assert load_job(deployment, job_id).status == JobState.IN_PROGRESS
        run_jobs(
            deployment,
            job_id=job_id,
            engines=FakeEngines(),
            on_progress=lambda progress: None,
            stop=StopSignal(grace_seconds=60, forced_exit=9),
        )
        job = load_job(deployment, job_id)
        assert job.status == JobState.COMPLETED
        answered = [record["custom_id"] for record in read_records(deployment, job.output_file_id)]
        failed = [record["custom_id"] for record in read_records(deployment, job.error_file_id)]
        assert answered == [f"line-{number}" for number in range(40) if number != 7]
        assert failed == ["line-7"]
        files = [file.id, str(job.output_file_id), str(job.error_file_id)]
        with deployment.database.read() as session:
            kept = [get_file(session, file_id).key for file_id in files]
        assert list(deployment.store.list("")) == [*sorted(kept), manifest_key(job_id)]
    assert not (tmp_path / "store").exists()
