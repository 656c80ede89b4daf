"""The manifest of a job: what its result files are made of, fixed before they are written.

It is a function of rows that no longer change, so that two processes that finalize a job, or one
after another's crash, write the same; a difference means that results came after the end. It
stays beside the result files, as the record of what they came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from batchjobs.errors import IntegrityError, ObjectExistsError
from batchjobs.models import File, Job
from batchjobs.queue.claims import ShardFacts
from batchjobs.states import JobState
from batchjobs.store.base import ObjectStore
from batchjobs.store.layout import fingerprint_of, manifest_key

VERSION = 1


def write_manifest(
    store: ObjectStore,
    job: Job,
    input_file: File | None,
    ending: JobState,
    shards: Sequence[ShardFacts],
) -> None:
    """Raises IntegrityError if the job has another manifest already."""
    key = manifest_key(job.id)
    data = orjson.dumps(_manifest(job, input_file, ending, shards), option=orjson.OPT_INDENT_2)
    try:
        store.put(key, data)
    except ObjectExistsError:
        with store.open(key) as stream:
            if stream.read() != data:
                raise IntegrityError(
                    f"The results of {job.id} are not those of {store.locate(key)}, which another"
                    " process wrote when it began to publish them."
                ) from None


def computed_by(shards: Sequence[ShardFacts]) -> list[str]:
    """Every `system_fingerprint` of the results, of failed lines too; of quantized weights they
    say so. Parts of older versions name none."""
    keys = [part.key for shard in shards for part in shard.parts]
    return sorted({found for key in keys if (found := fingerprint_of(key)) is not None})


def _manifest(
    job: Job, input_file: File | None, ending: JobState, shards: Sequence[ShardFacts]
) -> dict[str, Any]:
    fingerprints = computed_by(shards)
    return {
        "version": VERSION,
        "job": job.id,
        "ending": str(ending),
        "endpoint": job.endpoint,
        "models": job.models,
        "model_override": job.model_override,
        "seed": job.seed,
        "input": {
            "file": job.input_file_id,
            "sha256": None if input_file is None else input_file.sha256,
            "lines": job.total_lines,
        },
        **({"system_fingerprints": fingerprints} if fingerprints else {}),
        "shards": [_shard(shard) for shard in shards],
    }


def _shard(shard: ShardFacts) -> dict[str, Any]:
    work = shard.work
    return {
        "number": work.number,
        "model": work.model,
        "first_line": work.first_line,
        "lines": work.line_count,
        "parts": [
            {
                "key": part.key,
                "sha256": part.sha256,
                "completed": part.completed_lines,
                "failed": part.failed_lines,
            }
            for part in shard.parts
        ],
    }
