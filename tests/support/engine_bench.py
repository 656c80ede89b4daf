"""`python -m tests.support.engine_bench MODEL LINES PROMPTS [--variant k=v,…] …`: the engine alone.

LINES is a batch file, of which only `max_tokens` is read, PROMPTS its prompts as lists of token
ids (JSON). Runs each variant of the engine's settings in turn, `--repeats` times, in one process,
and prints a JSON line a run: wall seconds, tokens a second, and where the seconds went; with
`--profile`, which costs a few microseconds a layer, by parts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import Any

from executor.threads import yield_when_idle

yield_when_idle()

import torch  # noqa: E402

from executor import linear, model  # noqa: E402
from executor.build import FastPaths, build_engine  # noqa: E402
from executor.loading import Checkpoint  # noqa: E402
from executor.memory import wait_for_memory  # noqa: E402
from executor.profile import Profile, ProfileReport  # noqa: E402
from executor.request import Request, SamplingParams  # noqa: E402
from executor.settings import EngineSettings  # noqa: E402

TIMED: dict[str, tuple[tuple[Any, str], ...]] = {
    "attention": ((model.PagedContext, "attend"),),
    "forward": ((model.PackedModel, "forward"),),
}


@contextmanager
def timed(spent: Counter[str]) -> Iterator[None]:
    """Adds the seconds inside the functions of `TIMED` to `spent`."""
    originals = [
        (owner, name, getattr(owner, name)) for _, pairs in TIMED.items() for owner, name in pairs
    ]
    for part, pairs in TIMED.items():
        for owner, name in pairs:
            setattr(owner, name, _timed(getattr(owner, name), part, spent))
    try:
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def _timed(function: Callable[..., Any], part: str, spent: Counter[str]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent[part] += time.perf_counter() - start  # type: ignore[assignment]

    return call


def requests_of(lines: Path, prompts: Path, count: int | None) -> list[Request]:
    bodies = [json.loads(line)["body"] for line in lines.read_text().splitlines()][:count]
    ids = json.loads(prompts.read_text())[:count]
    return [
        Request(
            id=str(i),
            prompt_token_ids=tuple(prompt),
            sampling=SamplingParams(temperature=0, max_tokens=body["max_tokens"], ignore_eos=True),
        )
        for i, (body, prompt) in enumerate(zip(bodies, ids, strict=True))
    ]


def built(source: str, variant: str, *, profiled: bool) -> Any:
    values: dict[str, Any] = {"device": "cpu"}
    for pair in filter(None, variant.split(",")):
        name, value = pair.split("=")
        values[name] = json.loads(value) if _is_json(value) else value
    fast = {f.name: values.pop(f.name) for f in fields(FastPaths) if f.name in values}
    checkpoint = Checkpoint(source=source)
    ready = build_engine(checkpoint, EngineSettings(**values), FastPaths(**fast), profiled=profiled)
    return ready.engine


def _is_json(value: str) -> bool:
    return value in {"true", "false", "null"} or value[0].isdigit()


def peak_gflops() -> dict[str, int]:
    """Best of a few products of 2048² matrices: torch's default, and packed."""
    size = 2048
    left, right = torch.randn(size, size), torch.randn(size, size)
    ways: dict[str, Callable[[], Any]] = {"sgemm": lambda: torch.mm(left, right)}
    if linear.can_prepack():
        packed = linear.PrepackedLinear(right, None)
        ways["packed"] = lambda: packed(left)
    rates = {}
    with torch.inference_mode():
        for name, way in ways.items():
            times = []
            for _ in range(8):
                start = time.perf_counter()
                way()
                times.append(time.perf_counter() - start)
            rates[name] = round(2 * size**3 / min(times) / 1e9)
    return rates


def run(engine: Any, requests: list[Request]) -> dict[str, Any]:
    spent: Counter[str] = Counter()
    before = replace(engine.metrics)
    profile = engine.profile if isinstance(engine.profile, Profile) else None
    if profile is not None:
        profile.reset()
    with timed(spent):
        start, cpu = time.perf_counter(), time.process_time()
        completions = {c.request_id: c for c in engine.run(requests)}
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    grown = engine.metrics.since(before)
    tokens = sum(c.completion_tokens for c in completions.values())
    ids = [completions[r.id].choices[0].token_ids for r in requests]
    return {
        "wall": round(wall, 2),
        "cpu": round(cpu, 2),
        "tok_s": round(tokens / wall, 1),
        "attention": round(spent["attention"], 2),
        "rest_of_forward": round(spent["forward"] - spent["attention"], 2),
        "outside": round(wall - spent["forward"], 2),
        "steps": grown.steps_total,
        "computed": grown.computed_tokens_total,
        "guessed": grown.spec_decode_num_draft_tokens_total,
        "right": grown.spec_decode_num_accepted_tokens_total,
        "step_cost": [round(1000 * v, 4) for v in astuple(engine.times.cost)],
        "parts": {} if profile is None else _parts(profile.report()),
        "answers": hashlib.blake2b(repr(ids).encode(), digest_size=4).hexdigest(),
        "load": round(os.getloadavg()[0], 1),
    }


def _parts(report: ProfileReport) -> dict[str, float]:
    return {part.name: round(part.seconds, 2) for part in report.parts}


def tell(figures: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("lines", type=Path)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--variant", action="append", help="settings as name=value,…")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--requests", type=int, help="only the first so many")
    parser.add_argument("--profile", action="store_true", help="seconds of each part of a step")
    options = parser.parse_args()
    requests = requests_of(options.lines, options.prompts, options.requests)
    variants = options.variant or [""]
    engines = {
        variant: built(options.model, variant, profiled=options.profile) for variant in variants
    }
    wait_for_memory()
    warm = requests[:3]
    rates: dict[str, list[float]] = {v: [] for v in variants}
    for engine in engines.values():
        list(engine.run([Request(id=r.id, prompt_token_ids=r.prompt_token_ids) for r in warm]))
    tell(peak_gflops())
    for _ in range(options.repeats):
        for variant, engine in engines.items():
            measured = run(engine, requests)
            rates[variant].append(measured["tok_s"])
            tell({"variant": variant, **measured})
    tell(peak_gflops())
    for variant, values in rates.items():
        tell({"variant": variant, "median_tok_s": statistics.median(values)})


if __name__ == "__main__":
    sys.exit(main())
