"""Prove on the loaded weights that packing leaves a model's answers right.

| compared | how |
|---|---|
| truth | the model's own eager run over the same weights in float32, in float64 if it is tiny |
| own | the model's own eager run in the type that it would compute in by itself |
| ours | `scenarios`: packed, chunked, shared, copied and preempted rows over the paged cache |

Ours may be farther from the truth than own by a factor, as both round in another order, and by a
floor, as a model that rounds nothing would leave no room for it. Distances are root mean squares
over the vocabulary, as a share of the spread of the true logits; of several rows the largest
counts, so that one wrong row is not hidden by the others. Where products round to 16 bits, packing
was checked in float32 before.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence as Many
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from executor.attention.base import AttentionBackend
from executor.errors import UnsupportedModelError
from executor.layer_states import LayerStates
from executor.model import LayerShape, PagedCache
from executor.scenarios import LIMITS, Scenario, own_logits, questions, scenarios
from executor.widening import widened

FACTOR = 2.0
"""How much farther from the truth than the model's own run packing may be."""

FLOOR = 2e-3
"""Of the spread, that packing may be off however exact the model's own run is."""

TINY_PARAMETERS = 20_000_000
"""Models of so many parameters at most are evaluated in float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedForm:
    """How packed rows attend: shapes and number type of the cache, and the backend over it."""

    layers: dict[int, LayerShape]
    backend: AttentionBackend
    cache: torch.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnAnswers:
    """What a model says by itself, in its own type: of each scenario the logits [R, V]."""

    asked: list[Scenario]
    logits: list[Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The right logits [R, V] of each scenario, and how far the model's own run is from them."""

    asked: list[Scenario]
    logits: list[Tensor]
    noise: float

    @property
    def allowed(self) -> float:
        return FLOOR + FACTOR * self.noise

    def beside(self, own: OwnAnswers) -> Truth:
        """The same truth, with the noise of these answers."""
        return replace(self, noise=self.distance(own.logits))

    def distance(self, logits: Many[Tensor]) -> float:
        """Of the row that is farthest off: root mean square, as a share of the spread."""
        return float(torch.cat(self.distances(logits)).max())

    def distances(self, logits: Many[Tensor]) -> list[Tensor]:
        """The same of each scenario's rows [R]."""
        return [_distances(*pair) for pair in zip(self.logits, logits, strict=True)]


def _distances(true: Tensor, logits: Tensor) -> Tensor:
    errors = (logits.double() - true.double()).square().mean(dim=1).sqrt()
    # What is not a number is as wrong as can be, and would not be the largest.
    return (errors / true.double().std(dim=1).clamp_min(1e-6)).nan_to_num(nan=torch.inf)


def own_answers(module: Any, vocab_size: int) -> OwnAnswers:
    """Ask a probed model one sequence at a time, through transformers' eager attention.

    Raises:
        UnsupportedModelError: the model fails by itself, with its reason.
    """
    asked = questions(module, vocab_size)
    return OwnAnswers(asked=asked, logits=own_logits(module, asked))


def find_truth(module: nn.Module, vocab_size: int) -> Truth:
    """The truth for a module that computes in float32, and how far its own run in float32 is from
    it: not at all where that run is the truth."""
    own = own_answers(module, vocab_size)
    if not is_tiny(module):
        return Truth(asked=own.asked, logits=own.logits, noise=0.0)
    twin = copy.deepcopy(module)
    try:
        with widened(twin, torch.float64):
            wide = own_logits(twin, own.asked)
    except UnsupportedModelError:
        # Some operations, like the products of experts, have no float64 form.
        wide = own.logits
    return Truth(asked=own.asked, logits=wide, noise=0.0).beside(own)


def is_tiny(module: nn.Module) -> bool:
    """Whether a model is evaluated in float64."""
    return sum(parameter.numel() for parameter in module.parameters()) <= TINY_PARAMETERS


def check_packing(module: Any, form: PagedForm, truth: Truth) -> float:
    """The distance of packed logits from the truth.

    Raises:
        UnsupportedModelError: it is more than is allowed, with both, and where it begins.
    """
    distances = truth.distances(_packed_logits(module, form))
    rows = torch.cat(distances)
    distance = float(rows.max())
    if distance <= truth.allowed or _is_rounding(module, truth, rows):
        return distance
    worst = max(range(len(distances)), key=lambda index: float(distances[index].max()))
    asked = truth.asked[worst]
    raise UnsupportedModelError(
        f"{type(module).__name__} cannot be packed: in a packed batch its logits are off by "
        f"{distance:.2g} of their spread (its own run: {truth.noise:.2g}, allowed: "
        f"{truth.allowed:.2g}), the most in {asked.name!r}, {_where(module, form, truth, asked)}."
    )


def _is_rounding(module: Any, truth: Truth, rows: Tensor) -> bool:
    """Whether the same module without packing is as far off in its worst row.

    Routers of experts choose another one where two are nearly equal, so that rounding moves single
    rows by more than it moves all others, and not the same ones in every arithmetic.
    """
    if not truth.noise or not rows.median() <= truth.allowed:
        return False
    unpacked = truth.distance(own_logits(module, truth.asked))
    return bool(rows.max() <= FLOOR + FACTOR * unpacked)


def logit_error(module: Any, form: PagedForm, truth: Truth) -> float:
    """The distance of packed logits from the truth (`Truth.distance`)."""
    return truth.distance(_packed_logits(module, form))


def _packed_logits(module: Any, form: PagedForm, watch: LayerStates | None = None) -> list[Tensor]:
    device = next(module.parameters()).device
    cache = PagedCache(form.layers, LIMITS, dtype=form.cache, device=device)
    vocab_size = module.config.get_text_config().vocab_size
    return [s.logits for s in scenarios(module, cache, form.backend, vocab_size, watch=watch)]


def _where(module: Any, form: PagedForm, truth: Truth, asked: Scenario) -> str:
    """From which decoder layer on the hidden states differ by more than is allowed."""
    with LayerStates(module, len(form.layers)) as own:
        own_logits(module, [asked], watch=own)
    with LayerStates(module, len(form.layers)) as ours:
        _packed_logits(module, form, watch=ours)
    for layer, row in sorted(own.of(asked.name)):
        true, packed = (states.of(asked.name)[layer, row] for states in (own, ours))
        if not (packed - true).norm() <= truth.allowed * true.norm():
            return f"and its states part in decoder layer {layer} of {own.count}"
    return "and its states part behind the decoder layers"
