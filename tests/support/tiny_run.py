"""Greedy answers of a checkpoint, and what computed them in this process, as JSON."""

from __future__ import annotations

import json
import sys

from executor.build import build_engine
from executor.compiled import team
from executor.compiled.emit import vector_width
from executor.compiled.faults import faults
from executor.direct import DirectLayer
from executor.loading import Checkpoint
from executor.request import Request, SamplingParams
from executor.settings import EngineSettings

PROMPTS = tuple(
    tuple(3 + (number * 7 + place * place) % 120 for place in range(40 + 9 * number))
    for number in range(5)
)
"""Of tokens that every model has."""


def main(folder: str) -> None:
    settings = EngineSettings(
        device="cpu", dtype="float32", num_threads=2, kv_cache_memory=64 << 20
    )
    ready = build_engine(Checkpoint(source=folder), settings)
    sampling = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, logprobs=0)
    requests = [
        Request(id=str(i), prompt_token_ids=prompt, sampling=sampling)
        for i, prompt in enumerate(PROMPTS)
    ]
    choices = {c.request_id: c.choices[0] for c in ready.engine.run(requests)}
    runtime = team.openmp()
    module = ready.engine._model._module  # type: ignore[attr-defined]
    forwards = [getattr(child.forward, "__self__", None) for child in module.modules()]
    answers = {
        "tokens": {name: list(choice.token_ids) for name, choice in sorted(choices.items())},
        "width": vector_width(),
        "runtime": None if runtime is None else runtime.name,
        "direct_layers": sum(isinstance(owner, DirectLayer) for owner in forwards),
        "faults": [str(fault) for fault in faults()],
    }
    sys.stdout.write("\n" + json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1])
