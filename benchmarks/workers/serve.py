"""How a worker talks to the driver: JSON lines, a workload in, figures out. Standard library only,
as each worker runs in its peer's own environment."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Tokens = list[list[int]]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Request i has the tokens `prompts[i]` and an answer of exactly `max_tokens[i]` tokens; a
    `natural` answer ends before an end-of-sequence token, if there comes one."""

    prompts: Tokens
    max_tokens: list[int]
    natural: bool = False


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A loaded engine. `answer` may return figures of its own beside the answers; `prepare` is
    called before each workload, outside the clock."""

    version: str
    settings: dict[str, Any]
    answer: Callable[[Workload], tuple[Tokens, dict[str, Any]]]
    prepare: Callable[[], None] = lambda: None


def serve(load: Callable[[dict[str, Any]], Peer]) -> None:
    """Load with the options given as the first argument, then answer workloads until none come.

    Whatever the engine prints goes to standard error.
    """
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(value: dict[str, Any]) -> None:
        replies.write(json.dumps(value) + "\n")
        replies.flush()

    peer = load(json.loads(sys.argv[1]))
    reply({"version": peer.version, "settings": peer.settings})
    for line in sys.stdin:
        with open(json.loads(line)["workload"]) as file:
            workload = Workload(**json.load(file))
        peer.prepare()
        reply(_timed(peer, workload))


def _timed(peer: Peer, workload: Workload) -> dict[str, Any]:
    load = os.getloadavg()[0]
    started = time.perf_counter()
    answers, figures = peer.answer(workload)
    wall = time.perf_counter() - started
    return {"wall_s": wall, "load1": load, "answers": answers, **figures}
