from __future__ import annotations

from batchjobs.ids import new_file_id, new_job_id
from batchjobs.store.layout import (
    check_key,
    check_prefix,
    file_key,
    fingerprint_of,
    job_prefix,
    part_key,
    shard_prefix,
)


def test_part_keys_are_in_the_order_of_shard_fence_and_part() -> None:
    numbers = [(0, 1, 0), (0, 1, 2), (0, 1, 10), (0, 2, 0), (2, 1, 0), (10, 1, 0)]
    keys = [part_key("batch_1", *each) for each in numbers]
    assert keys == sorted(keys)
    assert keys[0] == "jobs/batch_1/shards/000000/000001-000000.jsonl"


def test_parts_lie_under_their_shard_and_job() -> None:
    key = part_key("batch_1", 7, 3, 2)
    assert key.startswith(shard_prefix("batch_1", 7))
    assert key.startswith(job_prefix("batch_1"))


def test_a_part_says_what_computed_it() -> None:
    key = part_key("batch_1", 7, 3, 2, fingerprint="fp_ab_int8")
    assert fingerprint_of(key) == "fp_ab_int8"
    assert fingerprint_of(part_key("batch_1", 7, 3, 2)) is None


def test_keys_of_real_ids_are_usable() -> None:
    job_id = new_job_id()
    for key in (file_key(new_file_id()), part_key(job_id, 0, 1, 0, fingerprint="fp_ab")):
        assert check_key(key) == key
    assert check_prefix(job_prefix(job_id)) == job_prefix(job_id)
