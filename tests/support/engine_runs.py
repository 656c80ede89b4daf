"""Small requests for the engine over `HashModel`, and what they give without any company."""

from __future__ import annotations

from executor.engine import Engine
from executor.fake import fake_engine
from executor.request import Completion, Request, SamplingParams
from executor.settings import Limits


def limits(
    *, seqs: int = 4, tokens: int = 16, length: int = 96, blocks: int = 64, size: int = 4
) -> Limits:
    return Limits(
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        max_model_len=length,
        num_blocks=blocks,
        block_size=size,
    )


def request(name: str, prompt: str = "hello", **sampling: object) -> Request:
    options = {"temperature": 0.0, "max_tokens": 8, **sampling}
    return Request(
        id=name,
        prompt_token_ids=tuple(prompt.encode()),
        sampling=SamplingParams(**options),  # type: ignore[arg-type]
    )


def run(engine: Engine, *requests: Request) -> dict[str, Completion]:
    completions = list(engine.run(requests))
    assert len({c.request_id for c in completions}) == len(completions)
    return {c.request_id: c for c in completions}


def alone(request: Request) -> Completion:
    """The answer without any neighbour, chunk or shortage."""
    roomy = limits(seqs=16, tokens=512, length=256, blocks=256, size=16)
    return run(fake_engine(roomy), request)[request.id]
