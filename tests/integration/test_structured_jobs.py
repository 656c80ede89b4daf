"""Lines that say what their answers must be, through a worker; only the logits are made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

from batchjobs.worker.runner import run_jobs
from batchjobs.worker.stop import StopSignal
from executor.settings import Limits
from tests.support.engines import FakeEngines, add_models
from tests.support.jobs import (
    MODEL,
    load_job,
    open_deployment,
    read_records,
    request_line,
    start_job,
)

LIMITS = Limits(
    max_num_seqs=8, max_num_batched_tokens=256, max_model_len=1024, num_blocks=1024, block_size=8
)
CITY = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "big": {"type": "boolean"}},
    "required": ["name", "big"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "add", "parameters": CITY}}
STRICT = {
    "type": "function",
    "function": {"name": "add", "strict": True, "parameters": {"not": {}}},
}


def line(custom_id: str, **body: Any) -> dict[str, Any]:
    asked = request_line(custom_id)
    asked["body"] |= {"max_tokens": 150, **body}
    return asked


def form(schema: object) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "city", "schema": schema}}


LINES = [
    line("schema", response_format=form(CITY), n=2),
    line("object", response_format={"type": "json_object"}),
    line("choice", guided_choice=["good", "bad"]),
    line("demanded", tools=[TOOL], tool_choice="required", parallel_tool_calls=False),
    line("bad schema", response_format=form({"type": "array", "uniqueItems": True})),
    line("bad parameters", tools=[STRICT]),
    line("bad regex", guided_regex="a{3"),
    line("text"),
]


def test_a_line_is_answered_as_it_asks_or_fails_alone(tmp_path: Path) -> None:
    with open_deployment(tmp_path, poll_seconds=1e-9, checkpoint_seconds=1e-9) as deployment:
        add_models(deployment, MODEL)
        job_id = start_job(deployment, LINES)
        stop = StopSignal(grace_seconds=60, forced_exit=9)
        run_jobs(
            deployment,
            job_id=job_id,
            engines=FakeEngines(LIMITS),
            on_progress=lambda progress: None,
            stop=stop,
        )
        job = load_job(deployment, job_id)
        answered = {
            record["custom_id"]: record["response"]["body"]["choices"]
            for record in read_records(deployment, job.output_file_id)
        }
        failed = {
            record["custom_id"]: record["response"]["body"]["error"]
            for record in read_records(deployment, job.error_file_id)
        }

    assert set(answered) == {"schema", "object", "choice", "demanded", "text"}
    assert len(answered["schema"]) == 2
    for choice in answered["schema"]:
        jsonschema.validate(json.loads(choice["message"]["content"]), CITY)
    assert answered["choice"][0]["message"]["content"] in {"good", "bad"}
    [demanded] = answered["demanded"]
    [call] = demanded["message"]["tool_calls"]
    assert (demanded["finish_reason"], call["function"]["name"]) == ("tool_calls", "add")
    jsonschema.validate(json.loads(call["function"]["arguments"]), CITY)

    assert {name: error["param"] for name, error in failed.items()} == {
        "bad schema": "response_format",
        "bad parameters": "tools[0].function.parameters",
        "bad regex": "guided_regex",
    }
    assert failed["bad schema"]["message"] == (
        "Invalid schema for response_format 'city': Unimplemented keys: [\"uniqueItems\"]."
    )
