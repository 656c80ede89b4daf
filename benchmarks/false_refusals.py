"""`python -m benchmarks.false_refusals`: does the check at load refuse models that are right?

Random models of many families, sizes, seeds and scales of weights, stored in 16 bits, and the
default model, are loaded as a job would load them: with the type that is chosen here, and with
each 16-bit type asked for. Nothing is wrong with any of them, so that each refusal is false.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from benchmarks.models import DEFAULT, choose, write_rounded_copy
from executor import build
from executor.build import build_engine
from executor.errors import EngineError
from executor.loading import Checkpoint
from executor.self_check import PagedForm, Truth
from executor.settings import EngineSettings
from tests.support.tiny_models import FAMILIES, tiny_config, tiny_tokenizer

STORED = {"bfloat16": torch.bfloat16, "float16": torch.float16}
ASKED: tuple[str | None, ...] = (None, "bfloat16", "float16")
SCALES = (0.5, 1.0, 2.0, 3.0)
SIZES: dict[str, dict[str, int]] = {
    "tiny": {},
    "medium": {
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 16,
    },
    "large": {
        "hidden_size": 384,
        "intermediate_size": 1024,
        "num_hidden_layers": 9,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": 4096,
    },
}
"""Up to about 20 million parameters, and 49 of gpt_oss, whose experts are as large as an MLP."""

_GAIN = 1.1
"""Of a layer's rows at scale 1: weights have a standard deviation of gain / sqrt(hidden size)."""
_CACHE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A random model; `stored` is the type of its weights on disk."""

    family: str
    size: str
    scale: float
    seed: int
    stored: str

    def __str__(self) -> str:
        return f"{self.family} {self.size} ×{self.scale:g} seed {self.seed} in {self.stored}"


class Outcome(NamedTuple):
    """Of one load. `ratio` is the difference that the check found over the one that it allows;
    None if it came to no figure. `refusal` is its sentence."""

    case: str
    asked: str | None
    ratio: float | None
    refusal: str | None


def cases(count: int) -> list[Case]:
    """Spread over families, sizes, scales and stored types; the same ones every time."""
    grid = [
        Case(family=family, size=size, scale=scale, seed=seed, stored=stored)
        for seed, (scale, size, stored, family) in enumerate(
            product(SCALES, SIZES, STORED, FAMILIES)
        )
    ]
    step = _coprime(len(grid))
    return [grid[number * step % len(grid)] for number in range(min(count, len(grid)))]


def _coprime(total: int) -> int:
    """A stride of about 0.38 of the total that comes by everything once."""
    stride = max(1, int(0.382 * total))
    while math.gcd(stride, total) != 1:
        stride += 1
    return stride


def sized_config(case: Case) -> Any:
    """The family's tiny configuration at the case's size, its pattern of layers repeated."""
    sizes: dict[str, Any] = dict(SIZES[case.size])
    pattern = FAMILIES[case.family].get("layer_types")
    if pattern and "num_hidden_layers" in sizes:
        sizes["layer_types"] = pattern * (sizes["num_hidden_layers"] // len(pattern))
    return tiny_config(case.family, **sizes)


def write_case(case: Case, folder: Path) -> None:
    config = sized_config(case)
    torch.manual_seed(case.seed)
    model = AutoModelForCausalLM.from_config(config).to(STORED[case.stored])
    spread = case.scale * _GAIN / config.hidden_size**0.5
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 or name.endswith("sinks"):
                parameter.normal_(std=spread)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)


def load_outcome(name: str, folder: Path, asked: str | None) -> Outcome:
    """Load it as a job does."""
    settings = EngineSettings(dtype=asked, kv_cache_memory=_CACHE_BYTES)
    refusal = None
    with noted_ratios() as ratios:
        try:
            build_engine(Checkpoint(source=str(folder)), settings)
        except EngineError as error:
            refusal = str(error)
        except Exception as error:
            # A model that ends in any other error does not run either.
            refusal = f"{type(error).__name__}: {error}"
    return Outcome(name, asked, max(ratios, default=None), refusal)


@contextmanager
def noted_ratios() -> Iterator[list[float]]:
    """What the check finds meanwhile, over what it allows: the one place that knows how it tells
    its figures."""
    ratios: list[float] = []
    measure = build.check_packing

    def noting(module: Any, form: PagedForm, truth: Truth) -> float:
        ratios.append(math.inf)
        distance = measure(module, form, truth)
        ratios[-1] = distance / truth.allowed
        return distance

    with mock.patch.object(build, "check_packing", noting):
        yield ratios


def outcomes(count: int) -> Iterator[Outcome]:
    """Of `count` random models, and of the default one stored in both types."""
    for case in cases(count):
        with tempfile.TemporaryDirectory() as scratch:
            write_case(case, Path(scratch))
            yield from loads(str(case), Path(scratch))
    for stored, dtype in STORED.items():
        with tempfile.TemporaryDirectory() as scratch:
            copy = Path(scratch) / "default"
            write_rounded_copy(choose(DEFAULT, Path(scratch)).folder, copy, dtype)
            yield from loads(f"default in {stored}", copy)


def loads(name: str, folder: Path) -> Iterator[Outcome]:
    for asked in ASKED:
        yield load_outcome(name, folder, asked)


def report(results: Sequence[Outcome], worst: int = 15) -> Iterator[str]:
    """Refusals by type asked for, and the largest ratios."""
    yield "| asked for | loads | refused |\n|---|---|---|"
    for asked in ASKED:
        of_type = [result for result in results if result.asked == asked]
        refused = sum(result.refusal is not None for result in of_type)
        yield f"| {asked or 'nothing'} | {len(of_type)} | {refused} |"
    yield "\n| model | asked for | found / allowed | refused |\n|---|---|---|---|"
    for case, asked, ratio, refusal in sorted(results, key=_badness)[:worst]:
        figure = "–" if ratio is None else f"{ratio:.2f}"
        yield f"| {case} | {asked or 'nothing'} | {figure} | {refusal or ''} |"


def _badness(result: Outcome) -> tuple[bool, float]:
    """Sorts what was refused first, then by the ratio, the largest first."""
    return result.refusal is None, -(result.ratio if result.ratio is not None else float("inf"))


def main(arguments: list[str] | None = None) -> int:
    """1 if anything was refused."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.false_refusals")
    parser.add_argument("--models", type=int, default=60, metavar="N", help="random ones (60)")
    options = parser.parse_args(arguments)
    transformers_logging.disable_progress_bar()
    results = []
    for result in outcomes(options.models):
        results.append(result)
        if result.refusal is not None:
            sys.stderr.write(f"{result.case}, {result.asked or 'nothing'}: {result.refusal}\n")
    sys.stdout.write("\n".join(report(results)) + "\n")
    return int(any(result.refusal is not None for result in results))


if __name__ == "__main__":
    sys.exit(main())
