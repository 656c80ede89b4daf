"""instructor's BatchProcessor: submits from memory and from a file, polls, reads, cancels."""

import contextlib
import io
import json
import sys
from typing import Literal

from instructor.batch import BatchProcessor
from pydantic import BaseModel, Field

ENDED = {"completed", "failed", "cancelled", "expired"}


class Answer(BaseModel):
    text: str = Field(max_length=20)
    mood: Literal["good", "bad"]


def line(custom_id, **more):
    body = {"model": "tiny", "messages": [{"role": "user", "content": f"I am {custom_id}."}]}
    url = "/v1/chat/completions"
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body | more}


def wait(processor, batch_id):
    while (status := processor.get_batch_status(batch_id))["status"] not in ENDED:
        pass
    return status


def plain(processor):
    """Lines without a schema: the answers are not JSON, and are handed over as they are."""
    data = "".join(json.dumps(line(f"ask-{number}")) + "\n" for number in range(4))
    batch_id = processor.submit_batch(io.BytesIO(data.encode()), metadata={"suite": "nightly"})
    status = wait(processor, batch_id)
    raw = [result.raw_data for result in processor.retrieve_results(batch_id)]
    [newest] = processor.list_batches(limit=1)
    return {"id": batch_id, "status": status, "raw": raw, "newest": newest.model_dump(mode="json")}


def structured(processor):
    """Lines as instructor writes them, which ask for JSON of a schema."""
    messages = [[{"role": "user", "content": f"Say {number}."}] for number in range(3)]
    path = processor.create_batch_from_messages(messages, "asks.jsonl", max_tokens=200)
    batch_id = processor.submit_batch(path)
    status = wait(processor, batch_id)
    results = processor.retrieve_results(batch_id)
    return {"status": status, "results": [result.model_dump(mode="json") for result in results]}


def cancel(processor):
    data = "".join(json.dumps(line(f"ask-{number}", n=8)) + "\n" for number in range(40))
    batch_id = processor.submit_batch(io.BytesIO(data.encode()))
    status = processor.cancel_batch(batch_id)["status"]
    return {"status": status, "ended": wait(processor, batch_id)["status"]}


opened = BatchProcessor("openai/tiny", Answer)
with contextlib.redirect_stdout(sys.stderr):
    report = {"plain": plain(opened), "structured": structured(opened), "cancel": cancel(opened)}
print(json.dumps(report))
