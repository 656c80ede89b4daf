"""From drafts to engine requests: the prompts of many in one go."""

from __future__ import annotations

from collections.abc import Sequence

from batchjobs.endpoints.base import Body, Draft, Endpoint, LineContext, ModelContext
from executor.prompts import PromptText
from executor.request import Request


def encode_together(drafts: Sequence[Draft], model: ModelContext) -> list[list[list[int]]]:
    """For each draft the token ids of its prompts, as its `finish` takes them."""
    texts = [
        prompt for draft in drafts for prompt in draft.prompts if isinstance(prompt, PromptText)
    ]
    encoded = iter(model.encode_batch(texts))
    return [
        [next(encoded) if isinstance(prompt, PromptText) else prompt for prompt in draft.prompts]
        for draft in drafts
    ]


def prepare_alone(
    endpoint: Endpoint, body: Body, line: LineContext, model: ModelContext
) -> list[Request]:
    """The engine requests of one body alone. Raises InvalidRequestError."""
    draft = endpoint.draft(body, line, model)
    [encoded] = encode_together([draft], model)
    return draft.finish(encoded)
