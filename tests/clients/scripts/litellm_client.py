"""LiteLLM's SDK: files and batches, each by its own function, as its proxy calls them."""

import json
import os

import litellm

URL = os.environ["OPENAI_BASE_URL"]
ENDED = {"completed", "failed", "cancelled", "expired"}
WHERE = {"custom_llm_provider": "openai", "api_base": URL, "api_key": "none"}
ENDPOINT = "/v1/chat/completions"


def line(custom_id, **more):
    body = {"model": "tiny", "messages": [{"role": "user", "content": f"I am {custom_id}."}]}
    return {"custom_id": custom_id, "method": "POST", "url": ENDPOINT, "body": body | more}


def submit(lines):
    data = "\n".join(map(json.dumps, lines)).encode()
    file = litellm.create_file(file=("asks.jsonl", data), purpose="batch", **WHERE)
    batch = litellm.create_batch(
        completion_window="24h",
        endpoint=ENDPOINT,
        input_file_id=file.id,
        metadata={"suite": "nightly"},
        **WHERE,
    )
    return file, batch


def wait(batch):
    while batch.status not in ENDED:
        batch = litellm.retrieve_batch(batch_id=batch.id, **WHERE)
    return batch


def lines_of(file_id):
    return [
        json.loads(row)
        for row in litellm.file_content(file_id=file_id, **WHERE).content.splitlines()
    ]


def run():
    lines = [line(f"ask-{number}") for number in range(6)]
    lines[2]["body"]["temperature"] = 9
    file, batch = submit(lines)
    ended = wait(batch)
    report = {
        "batch": ended.model_dump(),
        "file": litellm.file_retrieve(file_id=file.id, **WHERE).model_dump(),
        "outputs": [f.id for f in litellm.file_list(purpose="batch_output", **WHERE).data],
        "output": lines_of(ended.output_file_id),
        "errors": lines_of(ended.error_file_id),
        "listed": [b.id for b in litellm.list_batches(limit=1, **WHERE).data],
    }
    report["deleted"] = litellm.file_delete(file_id=file.id, **WHERE).deleted
    return report


def nothing_but_failures():
    _, batch = submit([line("ask", temperature=9)])
    return wait(batch).model_dump()


def cancel():
    _, batch = submit([line(f"ask-{number}", n=8) for number in range(40)])
    status = litellm.cancel_batch(batch_id=batch.id, **WHERE).status
    return {"status": status, "ended": wait(batch).status}


print(json.dumps({"run": run(), "failures": nothing_but_failures(), "cancel": cancel()}))
