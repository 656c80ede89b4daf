"""Replace what a model computes element by element with fused modules, whatever its family.

A module is known by the source of its forward (`known_forwards`), and then proven: it and its
replacement are given the same random rows, in several magnitudes, and only what answers the same
is replaced. Rotary positions are a function that a family's attention looks up by name: a module
gets the same code with another function under it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import SiLUActivation

from executor.compiled import team
from executor.compiled.emit import vector_width
from executor.known_forwards import CENTRED_NORMS, GATED_MLPS, NORMS, ROTARIES, is_known
from executor.linear import FLOAT32, GatedLinear, Packing, Weights, packed_linear
from executor.memory import let_go_of_file
from executor.norm import FusedRmsNorm, can_normalize
from executor.rotary import can_rotate, rotate
from executor.source_digest import function_digest

_TOLERANCE = 1e-5
"""Of the largest answer, that a replacement may be off."""
_FACTORS = (1.0, 100.0, 0.01)
"""Magnitudes of the rows that a replacement is proven with."""

_TOLERANCES = {torch.float32: _TOLERANCE, torch.bfloat16: 3e-2}
"""The same by the type of its products: a bfloat16 has 8 bits, so that a number is off by up to
0.4 %, and three products in a row by a few times that."""


@dataclass(frozen=True, slots=True)
class _Site:
    """A module, and the one that holds it under a name."""

    parent: nn.Module
    name: str
    module: nn.Module

    def replace(self, module: nn.Module) -> None:
        setattr(self.parent, self.name, module)


class GatedMlp(nn.Module):
    """down(silu(gate(x)) * up(x)), in two products."""

    def __init__(self, gated: GatedLinear, down: nn.Module) -> None:
        super().__init__()
        self.gated = gated
        self.down = down

    def forward(self, rows: Tensor) -> Tensor:
        answer: Tensor = self.down(self.gated(rows))
        return answer


@torch.inference_mode()
def fuse_modules(module: nn.Module, run: Callable[[], object], packing: Packing = FLOAT32) -> None:
    """Replace normalizations, gated MLPs and rotary positions that our kernels compute the same.

    Leaves a model alone that wants more of them than their answers, and everything where there
    is no team of threads to run on.

    Args:
        run: one short forward pass of `module`.
        packing: of the weights of gated MLPs.
    """
    if team.openmp() is None:
        return
    _fuse_rotary(module, run)
    sites = _sites(module)
    if not _only_called(sites, run):
        return
    while sites:
        site = sites.pop()
        fused = _fused(site.module, packing)
        if fused is not None:
            site.replace(fused)
            let_go_of_file(*site.module.parameters())


def _sites(module: nn.Module) -> list[_Site]:
    return [
        _Site(parent, name, child)
        for parent in module.modules()
        for name, child in parent.named_children()
        if is_norm(child) or is_gated_mlp(child)
    ]


def is_norm(module: nn.Module) -> bool:
    """Whether it is an RMSNorm of a known source with one weight."""
    known = is_known(module, NORMS) or is_known(module, CENTRED_NORMS)
    return known and _holds(module, {"weight"}, set())


def is_gated_mlp(module: nn.Module) -> bool:
    """Whether it is a gated MLP of a known source, gated by SiLU."""
    linears = {name for name, child in module.named_children() if type(child) is nn.Linear}
    return (
        linears in _GATED
        and _holds(module, set(), {*linears, *_ACTIVATIONS})
        and any(type(getattr(module, name, None)) in _SILU for name in _ACTIVATIONS)
        and is_known(module, GATED_MLPS)
    )


_GATED = ({"gate_proj", "up_proj", "down_proj"}, {"gate_up_proj", "down_proj"})
"""Of gates and ups in two matrices, or in one of the checkpoint's (Phi-3, GLM)."""

_ACTIVATIONS = "act_fn", "activation_fn"
_SILU = nn.SiLU, SiLUActivation


def _holds(module: nn.Module, parameters: set[str], children: set[str]) -> bool:
    """Whether these are all its parts."""
    return {name for name, _ in module.named_parameters(recurse=False)} == parameters and {
        name for name, _ in module.named_children()
    } <= children


class _StandIn(nn.Module):
    """Answers as the module does, and has nothing else to show."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._call = module.forward

    def forward(self, rows: Tensor) -> Any:
        return self._call(rows)


def _only_called(sites: list[_Site], run: Callable[[], object]) -> bool:
    for site in sites:
        site.replace(_StandIn(site.module))
    try:
        run()
    except Exception:
        # A model that looks into its modules may trip over their absence in any way.
        return False
    finally:
        for site in sites:
            site.replace(site.module)
    return True


def _fused(module: Any, packing: Packing) -> nn.Module | None:
    """A module that was seen to answer as this one does."""
    if is_gated_mlp(module):
        return _fused_mlp(module, packing)
    weight = module.weight
    epsilon = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if not isinstance(epsilon, float) or weight.dim() != 1 or weight.dtype != torch.float32:
        return None
    if not can_normalize():
        return None
    made_norm = FusedRmsNorm(1 + weight if is_known(module, CENTRED_NORMS) else weight, epsilon)
    return made_norm if _same(module, made_norm, len(weight)) else None


def _fused_mlp(module: Any, packing: Packing) -> GatedMlp | None:
    made, size = _gated_mlp(module, packing), module.down_proj.out_features
    if made is None or not _same(module, made, size, _TOLERANCES[packing.products]):
        return None
    return made


def _gated_mlp(module: Any, packing: Packing) -> GatedMlp | None:
    gate, up, down = *_gate_and_up(module), module.down_proj
    paired = gate.weight.shape == up.weight.shape and (gate.bias is None) == (up.bias is None)
    if not paired or len(gate.weight) % vector_width() or not packing.fits(gate.weight):
        return None
    return GatedMlp(GatedLinear(gate, up, packing), packed_linear(down.weight, down.bias, packing))


def _gate_and_up(module: Any) -> tuple[Any, Any]:
    merged = getattr(module, "gate_up_proj", None)
    if merged is None:
        return module.gate_proj, module.up_proj
    biases = (None, None) if merged.bias is None else merged.bias.chunk(2)
    gate, up = (Weights(*half) for half in zip(merged.weight.chunk(2), biases, strict=True))
    return gate, up


def _same(module: nn.Module, other: nn.Module, size: int, tolerance: float = _TOLERANCE) -> bool:
    """Whether they answer the same for rows of every magnitude, within a share of the largest
    answer of that magnitude."""
    rows = torch.randn(3, 5, size, generator=torch.Generator().manual_seed(0))
    given = torch.stack([factor * rows for factor in _FACTORS])
    expected, answer = module(given), other(given)
    if not isinstance(expected, Tensor) or expected.shape != answer.shape:
        return False
    apart, largest = ((x.abs().flatten(1).amax(1)) for x in (expected - answer, expected))
    return bool((apart < tolerance * largest.clamp_min(1e-20)).all())


_ROTARY = "apply_rotary_pos_emb"
"""What all families of transformers call the function; some mean something else by it."""


def _fuse_rotary(module: nn.Module, run: Callable[[], object]) -> None:
    changed, kinds = [], {type(child) for child in module.modules()}
    forwards = {kind: _with_fused_rotary(kind) for kind in kinds}
    for child in module.modules():
        forward = forwards[type(child)]
        if forward is not None and "forward" not in vars(child):
            child.forward = MethodType(forward, child)
            changed.append(child)
    try:
        run()
    except Exception:
        # A forward may need what was wrapped around it.
        for child in changed:
            del child.forward


def _with_fused_rotary(kind: Any) -> FunctionType | None:
    """The forward of a class with our rotary positions; None if it has none, or others."""
    forward = inspect.unwrap(kind.forward)
    original = getattr(forward, "__globals__", {}).get(_ROTARY)
    if original is None or _ROTARY not in forward.__code__.co_names or not _rotates(original):
        return None
    fused = FunctionType(
        forward.__code__,
        {**forward.__globals__, _ROTARY: _rotary_or(original)},
        forward.__name__,
        forward.__defaults__,
        forward.__closure__,
    )
    fused.__kwdefaults__ = forward.__kwdefaults__
    return fused


def _rotary_or(original: Callable[..., Any]) -> Callable[..., Any]:
    def rotary(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, *more: Any, **by: Any) -> Any:
        if more or by or not can_rotate(query, key, cos, sin):
            return original(query, key, cos, sin, *more, **by)
        return rotate(query, key, cos, sin)

    return rotary


def _rotates(original: Callable[..., Any]) -> bool:
    """Whether its source is known, and it was seen to answer as ours does."""
    if function_digest(original) not in ROTARIES:
        return False
    numbers = torch.randn(4, 3, 5, 8, generator=torch.Generator().manual_seed(0))
    given = numbers[:1], numbers[1:2, :2], numbers[2:3, 0], numbers[3:, 0]
    if not can_rotate(*given):
        return False
    try:
        theirs = original(*given)
    except Exception:
        return False  # a function of another shape under the same name
    return all(
        isinstance(x, Tensor) and torch.allclose(x, y, atol=1e-5, rtol=1e-5)
        for x, y in zip(theirs, rotate(*given), strict=True)
    )
