"""An event as those read it who are told: JSON for programs, words for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from batchjobs.queue.events import Parcel

TEST = "notification.test"
_WORDS = {
    "batch.completed": "Job {id} is completed.",
    "batch.failed": "Job {id} failed: its file is not valid, and nothing ran.",
    "batch.expired": "Job {id} was not done by its deadline.",
    "batch.cancelled": "Job {id} is cancelled.",
    "eval.run.regressed": "{suite} is worse than its baseline ({schedule}).",
    "eval.run.recovered": "{suite} is as it was again ({schedule}).",
    "eval.run.no_verdict": "{suite} has no verdict ({schedule}).",
    "schedule.slot.failed": "{schedule} failed.",
    "schedule.slot.missed": "{schedule} was missed.",
    "schedule.recovered": "{schedule} has recovered.",
    TEST: "This is a test: notifications arrive.",
}


def body(parcel: Parcel) -> bytes:
    """The thin event of the public API, with what there is to say in `data`."""
    return orjson.dumps(
        {
            "id": parcel.event_id,
            "object": "event",
            "created_at": int(parcel.created_at.timestamp()),
            "type": parcel.type,
            "data": dict(parcel.data),
        }
    )


def subject(parcel: Parcel) -> str:
    """One line, also if a name in it has several."""
    words = _WORDS.get(parcel.type, parcel.type).format_map(_Known(parcel.data))
    return " ".join(f"[batchjobs] {words}".split())


def text(parcel: Parcel) -> str:
    rows = [("event", parcel.type), ("id", parcel.event_id)]
    rows += [
        (name, str(value)) for name, value in parcel.data.items() if name not in ("verdict", "id")
    ]
    verdict = parcel.data.get("verdict")
    head = [subject(parcel).removeprefix("[batchjobs] "), *([str(verdict)] if verdict else [])]
    about = [f"{name}: {' '.join(value.split())}" for name, value in rows]
    return "\n".join([*head, "", *about, *_advice(parcel.data), ""])


def _advice(data: Mapping[str, Any]) -> list[str]:
    about = str(data.get("id", ""))
    if about.startswith("run_"):
        return [f"see: batchjobs evals show {about}"]
    if about.startswith("batch_"):
        return [f"see: batchjobs status {about}"]
    if "schedule" in data:
        return [f"see: batchjobs schedules history {data['schedule']}"]
    return []


class _Known(dict[str, Any]):
    def __missing__(self, name: str) -> str:
        return f"({name})"
