"""any-llm: uploads, creates, polls, reads results, lists and cancels."""

import json
import os
from pathlib import Path

from any_llm import AnyLLM
from any_llm.exceptions import BatchNotCompleteError

ENDED = {"completed", "failed", "cancelled", "expired"}


def line(custom_id, **more):
    body = {"model": "tiny", "messages": [{"role": "user", "content": f"I am {custom_id}."}]}
    url = "/v1/chat/completions"
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body | more}


def submit(client, lines, **options):
    path = Path("asks.jsonl")
    path.write_text("\n".join(map(json.dumps, lines)))
    return client.create_batch(
        input_file_path=str(path), endpoint="/v1/chat/completions", **options
    )


def wait(client, batch):
    while batch.status not in ENDED:
        batch = client.retrieve_batch(batch.id, extra_query={"wait": 5})
    return batch


def run(client):
    lines = [line(f"ask-{number}") for number in range(6)]
    lines[2]["body"]["temperature"] = 9
    batch = wait(client, submit(client, lines, metadata={"suite": "nightly"}))
    answers = {
        result.custom_id: result.result and result.result.choices[0].message.content
        for result in client.retrieve_batch_results(batch.id).results
    }
    return {"batch": batch.model_dump(), "answers": answers}


def page(client):
    made = [submit(client, [line("ask")]).id for _ in range(3)]
    listed = client.list_batches(limit=2)
    return {
        "made": made,
        "first": [batch.id for batch in listed],
        "second": [batch.id for batch in client.list_batches(after=made[1], limit=1)],
        "ended": [wait(client, batch).status for batch in listed],
    }


def cancel(client):
    batch = submit(client, [line(f"ask-{number}", n=8) for number in range(40)])
    cancelled = client.cancel_batch(batch.id)
    try:
        client.retrieve_batch_results(batch.id)
    except BatchNotCompleteError as refused:
        told = str(refused)
    return {"told": told, "status": cancelled.status, "ended": wait(client, batch).status}


opened = AnyLLM.create("openai", api_key="none", api_base=os.environ["OPENAI_BASE_URL"])
print(json.dumps({"run": run(opened), "page": page(opened), "cancel": cancel(opened)}))
