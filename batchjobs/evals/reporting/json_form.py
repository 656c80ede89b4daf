"""A report as JSON, for other programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson

from batchjobs.evals.reporting.content import Content, FlipTexts
from batchjobs.evals.wire import run_object


def json_report(content: Content) -> str:
    report = {
        "object": "eval.report",
        "run": run_object(content.run),
        "baseline": [run.id for run in content.baseline],
        "trend": [asdict(point) for point in content.trend],
        "flips": [{**asdict(flip), "way": flip.way} for flip in content.flips],
        "answers": [_texts(one) for one in content.texts],
    }
    return orjson.dumps(report, option=orjson.OPT_INDENT_2).decode() + "\n"


def _texts(one: FlipTexts) -> dict[str, Any]:
    return {
        "item": one.flip.item,
        "before": [dict(record.record) for record in one.before],
        "after": [dict(record.record) for record in one.after],
    }
