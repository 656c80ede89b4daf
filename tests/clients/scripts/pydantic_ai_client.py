"""pydantic-ai's batches of model requests, which speak `/v1/responses`."""

import asyncio
import json
import os
import sys
from datetime import timedelta
from typing import Literal

from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.capabilities import BatchModelRequests
from pydantic_ai.direct import model_request_batch
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import ModelRequest, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.batch import BatchRequest
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition

FAST = {"poll_interval": timedelta(seconds=0.2), "max_poll_interval": timedelta(seconds=0.2)}
TALKATIVE = {"extra_body": {"ignore_eos": True}}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class City(BaseModel):
    name: str = Field(max_length=8)
    size: Literal["big", "small"]


def model(name):
    base_url = os.environ["OPENAI_BASE_URL"]
    return OpenAIResponsesModel(name, provider=OpenAIProvider(base_url=base_url, api_key="none"))


def request(custom_id, *, strict=None, max_tokens=20):
    tool = ToolDefinition(name="weather", parameters_json_schema=SCHEMA, strict=strict)
    return BatchRequest(
        custom_id=custom_id,
        messages=[ModelRequest(parts=[UserPromptPart(content="Hi")], instructions="Be brief.")],
        model_settings={"max_tokens": max_tokens, "temperature": 0.5, **TALKATIVE},
        model_request_parameters=ModelRequestParameters(
            function_tools=[] if strict is None else [tool]
        ),
    )


def seen(answer):
    if isinstance(answer, ModelAPIError):
        return {"status": answer.status_code, "code": answer.body["code"], "says": str(answer)}
    return {
        "text": answer.text,
        "finish_reason": answer.finish_reason,
        "input_tokens": answer.usage.input_tokens,
        "output_tokens": answer.usage.output_tokens,
    }


async def batch():
    requests = [
        request("plain"),
        request("tool", strict=False),
        request("strict", strict=True),
        request("long", max_tokens=1_000_000),
    ]
    answers = await model_request_batch(model("tiny"), requests, **FAST)
    return {one.custom_id: seen(answer) for one, answer in zip(requests, answers, strict=True)}


async def rejected():
    answers = await model_request_batch(model("unknown"), [request("a"), request("b")], **FAST)
    return [seen_rejection(answer) for answer in answers]


def seen_rejection(answer):
    return {"status": answer.status_code, "says": str(answer)}


async def agent():
    async with BatchModelRequests(
        max_requests=2, max_wait=timedelta(seconds=5), **FAST
    ) as batching:
        asked = Agent(model("tiny"), capabilities=[batching], instructions="Be brief.")
        settings = {"max_tokens": 20, **TALKATIVE}
        runs = [asked.run(f"Say {n}.", model_settings=settings) for n in range(2)]
        return [run.output for run in await asyncio.gather(*runs)]


async def structured():
    """Answers that it reads as its own model: JSON of a schema, and a demanded call."""
    found = {}
    for name, output in {"native": NativeOutput(City), "tool": ToolOutput(City)}.items():
        async with BatchModelRequests(
            max_requests=1, max_wait=timedelta(seconds=5), **FAST
        ) as batching:
            asked = Agent(model("tiny"), capabilities=[batching], output_type=output)
            found[name] = (await asked.run("Hi")).output.model_dump()
    return found


async def main():
    return {
        "batch": await batch(),
        "rejected": await rejected(),
        "agent": await agent(),
        "structured": await structured(),
    }


sys.stdout.write(f"\n{json.dumps(asyncio.run(main()))}\n")
