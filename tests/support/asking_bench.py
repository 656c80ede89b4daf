"""`python -m tests.support.asking_bench MODEL`: what lines that ask for more cost all of them.

The same requests, plain and with every tenth asking for log-probabilities, penalties, JSON of a
schema, text of a regular expression or all of it, in one engine of one process, in turns. Every
answer has the same length in both. Prints a JSON line a pass, and the throughput with them as a
share of that without.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from executor.threads import yield_when_idle

yield_when_idle()

from batchjobs.worker.bench.generated import generate  # noqa: E402
from executor.build import build_engine  # noqa: E402
from executor.engine import Engine  # noqa: E402
from executor.loading import Checkpoint  # noqa: E402
from executor.memory import wait_for_memory  # noqa: E402
from executor.request import Grammar, GrammarKind, Request  # noqa: E402
from executor.settings import EngineSettings  # noqa: E402

_NEVER_WHOLE = 500
"""Elements that an answer must have: more than there are tokens for, so that none ends early."""
_SCHEMA = {
    "type": "array",
    "minItems": _NEVER_WHOLE,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "kind": {"enum": ["person", "place", "thing"]},
            "count": {"type": "integer", "minimum": 0, "maximum": 999},
        },
        "required": ["name", "kind", "count"],
        "additionalProperties": False,
    },
}
_LOGPROBS: dict[str, Any] = {"logprobs": 5}
_PENALTIES: dict[str, Any] = {
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "repetition_penalty": 1.1,
}
_JSON: dict[str, Any] = {"grammar": Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps(_SCHEMA))}
_REGEX: dict[str, Any] = {
    "grammar": Grammar(kind=GrammarKind.REGEX, text=rf"([A-Z]?[a-z]+[,.]? ){{{_NEVER_WHOLE}}}")
}
KINDS: dict[str, dict[str, Any]] = {
    "logprobs": _LOGPROBS,
    "penalties": _PENALTIES,
    "schema": _JSON,
    "regex": _REGEX,
    "all": _LOGPROBS | _PENALTIES | _JSON,
}


def asking(
    requests: Sequence[Request], share: float, kinds: Sequence[str] = tuple(KINDS)
) -> list[Request]:
    """The requests, of which so many, evenly spread, ask for one of the kinds each, in turn."""
    asked = 0
    found = []
    for number, request in enumerate(requests, start=1):
        if asked < int(number * share):
            changes = KINDS[kinds[asked % len(kinds)]]
            request = replace(request, sampling=replace(request.sampling, **changes))
            asked += 1
        found.append(request)
    return found


def passes(
    engine: Engine, ways: dict[str, list[Request]], turns: int
) -> Iterator[tuple[str, float, int]]:
    """Which way, its seconds and the tokens of its answers; every other turn the other way round,
    so that what changes with time falls on both."""
    for turn in range(turns):
        names = list(ways) if turn % 2 == 0 else list(reversed(ways))
        for name in names:
            began = time.perf_counter()
            tokens = sum(completion.completion_tokens for completion in engine.run(ways[name]))
            yield name, time.perf_counter() - began, tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=128)
    parser.add_argument("--most-prompt-tokens", type=int, help="of longer prompts the last so many")
    parser.add_argument("--most-tokens", type=int, default=256, help="of an answer")
    parser.add_argument("--share", type=float, default=0.1, help="of requests that ask for more")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    ready = build_engine(Checkpoint(source=options.model), EngineSettings(device="cpu"))
    plain = [
        _shortened(request, options.most_prompt_tokens, options.most_tokens)
        for request in generate("mixed", ready.tokenizer, options.requests)
    ]
    ways = {"plain": plain, "asking": asking(plain, options.share, options.kinds)}
    wait_for_memory()
    list(ready.engine.run(asking(plain[: 2 * len(options.kinds)], 0.5, options.kinds)))
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for name, spent, tokens in passes(ready.engine, ways, options.turns):
        seconds[name].append(spent)
        load = os.getloadavg()[0]
        _tell(way=name, seconds=round(spent, 2), tokens=tokens, load=round(load, 1))
    median = {name: statistics.median(found) for name, found in seconds.items()}
    _tell(
        throughput_of_plain=round(median["plain"] / median["asking"], 3),
        each=[round(a / b, 3) for a, b in zip(seconds["plain"], seconds["asking"], strict=True)],
        asking=sum(a != b for a, b in zip(plain, ways["asking"], strict=True)),
        requests=len(plain),
    )


def _shortened(request: Request, most_prompt: int | None, most: int) -> Request:
    prompt = request.prompt_token_ids[-(most_prompt or 0) :]
    sampling = replace(request.sampling, max_tokens=min(most, request.sampling.max_tokens))
    return replace(request, prompt_token_ids=prompt, sampling=sampling)


def _tell(**figures: object) -> None:
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
