"""Where objects lie. Keys are made of ids and numbers only, so they are safe as paths."""

from __future__ import annotations

import re

from batchjobs.errors import StoreError

_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_FINGERPRINT = re.compile(r"/\d+-\d+-(\w+)\.jsonl$")
_PREFIX = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]*/)*([A-Za-z0-9_][A-Za-z0-9_.-]*)?")


FILES_PREFIX = "files/"
JOBS_PREFIX = "jobs/"
MANIFESTS_PREFIX = "manifests/"
EVALS_PREFIX = "evals/"


def file_key(file_id: str) -> str:
    """An uploaded or produced file."""
    return f"{FILES_PREFIX}{file_id}.jsonl"


def part_key(
    job_id: str, shard: int, fence: int, part: int, *, fingerprint: str | None = None
) -> str:
    """Results of some lines of shard number `shard`, written under `fence`; `fingerprint` is the
    `system_fingerprint` of what computed them."""
    computed_by = "" if fingerprint is None else f"-{fingerprint}"
    return f"{shard_prefix(job_id, shard)}{fence:06d}-{part:06d}{computed_by}.jsonl"


def fingerprint_of(key: str) -> str | None:
    """That of a `part_key`; None of one that was written without, as older versions do."""
    found = _FINGERPRINT.search(key)
    return None if found is None else found[1]


def plan_key(job_id: str, token: str) -> str:
    """The lines of a job that were brought together; `token` tells several intakes apart."""
    return f"{job_prefix(job_id)}plan-{token}.jsonl"


def manifest_key(job_id: str) -> str:
    """What a job's result files were made of."""
    return f"{MANIFESTS_PREFIX}{job_id}.json"


def eval_key(run_id: str, name: str, token: str) -> str:
    """What is kept of a run of an eval suite, as `name`; `token` tells several writers apart."""
    return f"{EVALS_PREFIX}{run_id}/{name}-{token}"


def shard_prefix(job_id: str, shard: int) -> str:
    return f"{job_prefix(job_id)}shards/{shard:06d}/"


def job_prefix(job_id: str) -> str:
    """Everything that only serves to run the job."""
    return f"{JOBS_PREFIX}{job_id}/"


def job_of(key: str) -> str:
    """The id of the job that an object below `JOBS_PREFIX` or `MANIFESTS_PREFIX` belongs to."""
    return key.split("/")[1].removesuffix(".json")


def check_key(key: str) -> str:
    """The key itself. Raises StoreError for one that could leave the store or hide in it."""
    if _KEY.fullmatch(key) is None:
        raise StoreError(f"{key!r} is not a usable object key.")
    return key


def check_prefix(prefix: str) -> str:
    """The prefix itself; it may end within a name or be empty. Raises StoreError."""
    if _PREFIX.fullmatch(prefix) is None:
        raise StoreError(f"{prefix!r} is not a usable prefix of object keys.")
    return prefix
