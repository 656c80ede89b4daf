"""The same requests in ever other company: what each of them gives must not depend on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from executor.build import ReadyEngine, build_engine
from executor.loading import Checkpoint
from executor.request import Completion, Request, SamplingParams
from executor.settings import EngineSettings

COMPANIES: dict[str, dict[str, Any]] = {
    "two at a time": {"max_num_seqs": 2},
    "small chunks": {"max_num_seqs": 16, "max_num_batched_tokens": 24},
    "large steps": {"max_num_seqs": 64, "max_num_batched_tokens": 300},
    "nothing shared": {"enable_prefix_caching": False},
    "in order of arrival": {"scheduling_policy": "fcfs", "max_num_batched_tokens": 77},
}
PREEMPTING: dict[str, Any] = {"max_num_seqs": 24, "max_num_batched_tokens": 40}


def build(folder: Path, **settings: Any) -> ReadyEngine:
    options = {"device": "cpu", "dtype": "float32", "reproducible": True, **settings}
    return build_engine(Checkpoint(source=str(folder)), EngineSettings(**options))


def mixed_requests(prompts: Sequence[tuple[int, ...]], *, tokens: int) -> list[Request]:
    """Greedy and sampled ones in turns, with log-probabilities, some scored and some in two."""
    return [
        Request(id=str(i), prompt_token_ids=prompt, sampling=_sampling(i, tokens))
        for i, prompt in enumerate(prompts)
    ]


def _sampling(number: int, tokens: int) -> SamplingParams:
    return SamplingParams(
        temperature=(0.0, 1.0, 0.7)[number % 3],
        top_p=0.9 if number % 4 == 1 else 1.0,
        seed=number,
        n=2 if number % 5 == 1 else 1,
        max_tokens=tokens + number % 3,
        ignore_eos=number % 2 == 0,
        logprobs=4,
        prompt_logprobs=2 if number % 7 == 3 else None,
    )


def answers(engine: ReadyEngine, requests: Sequence[Request]) -> dict[str, str]:
    """All of each answer, log-probabilities to the last bit."""
    return {c.request_id: _words(c) for c in engine.engine.run(requests)}


def one_by_one(engine: ReadyEngine, requests: Sequence[Request]) -> dict[str, str]:
    found: Iterator[Completion] = (
        completion for request in requests for completion in engine.engine.run([request])
    )
    return {c.request_id: _words(c) for c in found}


def _words(completion: Completion) -> str:
    assert completion.error is None
    return repr((completion.choices, completion.prompt_logprobs))
