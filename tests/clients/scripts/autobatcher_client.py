"""autobatcher: `chat.completions.create` as ever, gathered into batches underneath."""

import asyncio
import json
import os

from autobatcher import BatchOpenAI

URL = os.environ["OPENAI_BASE_URL"]
FAST = {"batch_window_seconds": 0.2, "poll_interval_seconds": 0.2, "completion_window": "24h"}


def ask(client, number, **more):
    messages = [{"role": "user", "content": f"I am {number}."}]
    return client.chat.completions.create(model="tiny", messages=messages, **more)


async def run():
    events = []
    client = BatchOpenAI(
        api_key="none",
        base_url=URL,
        batch_metadata={"suite": "nightly"},
        batch_event_handler=events.append,
        **FAST,
    )
    good = [ask(client, number) for number in range(5)]
    answers = await asyncio.gather(*good, ask(client, 5, temperature=9), return_exceptions=True)
    await client.close()
    return {
        "answers": [answer.choices[0].message.content for answer in answers[:5]],
        "failed": str(answers[5]),
        "submitted": [e["request_count"] for e in events if e["event"] == "batch_submitted"],
        "completed": [e["counts"] for e in events if e["event"] == "batch_completed"],
        "metadata": events[0]["metadata"],
    }


async def cancel():
    """Closing the client cancels what runs."""
    submitted = asyncio.Event()
    events = []

    def note(event):
        events.append(event)
        if event["event"] == "batch_submitted":
            submitted.set()

    client = BatchOpenAI(
        api_key="none",
        base_url=URL,
        batch_event_handler=note,
        cancel_active_batches_on_close=True,
        **FAST | {"poll_interval_seconds": 60},
    )
    asked = [asyncio.create_task(ask(client, number, n=8)) for number in range(40)]
    await submitted.wait()
    await client.close()
    await asyncio.gather(*asked, return_exceptions=True)
    return [event["event"] for event in events]


print(json.dumps({"run": asyncio.run(run()), "cancel": asyncio.run(cancel())}))
