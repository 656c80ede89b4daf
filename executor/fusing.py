"""Replace what a model computes element by element with fused modules, whatever its family.

A module is known by what it holds, and then proven: it and its replacement are given the same
random rows, and only what answers the same is replaced. What a model does between its modules
(rotary positions, residual sums) stays torch's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from executor import team
from executor.linear import GatedLinear, packed_linear
from executor.norm import FusedRmsNorm
from executor.product import fits
from executor.vectors import vector_width

_TOLERANCE = 1e-5
"""Of the largest answer, that a replacement may be off."""


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
def fuse_modules(module: nn.Module, run: Callable[[], object]) -> None:
    """Replace normalizations and gated MLPs of `module` that our kernels compute the same.

    Leaves a model alone that wants more of them than their answers, and everything where there
    is no team of threads to run on.

    Args:
        run: one short forward pass of `module`.
    """
    if team.openmp() is None:
        return
    sites = _sites(module)
    if not _only_called(sites, run):
        return
    while sites:
        site = sites.pop()
        fused = _fused(site.module)
        if fused is not None:
            site.replace(fused)


def _sites(module: nn.Module) -> list[_Site]:
    return [
        _Site(parent, name, child)
        for parent in module.modules()
        for name, child in parent.named_children()
        if _is_norm(child) or _is_gated_mlp(child)
    ]


def _is_norm(module: nn.Module) -> bool:
    return type(module).__name__.endswith("RMSNorm") and _holds(module, {"weight"}, set())


def _is_gated_mlp(module: nn.Module) -> bool:
    linears = {"gate_proj", "up_proj", "down_proj"}
    kinds = {type(getattr(module, name, None)) for name in linears}
    return kinds == {nn.Linear} and _holds(module, set(), {*linears, "act_fn"})


def _holds(module: nn.Module, parameters: set[str], children: set[str]) -> bool:
    """Whether these are all its parts, and nobody listens in."""
    return (
        {name for name, _ in module.named_parameters(recurse=False)} == parameters
        and {name for name, _ in module.named_children()} <= children
        and not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())
    )


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


def _fused(module: nn.Module) -> nn.Module | None:
    """A module that was seen to answer as this one does."""
    if _is_gated_mlp(module):
        made = _gated_mlp(module)
        return (
            made if made is not None and _same(module, made, module.gate_proj.in_features) else None
        )
    weight = module.weight
    epsilon = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if not isinstance(epsilon, float) or weight.dim() != 1 or weight.dtype != torch.float32:
        return None
    candidates = (FusedRmsNorm(w, epsilon) for w in (weight, 1 + weight))
    return next((made for made in candidates if _same(module, made, len(weight))), None)


def _gated_mlp(module: Any) -> GatedMlp | None:
    gate, up, down = module.gate_proj, module.up_proj, module.down_proj
    paired = gate.weight.shape == up.weight.shape and (gate.bias is None) == (up.bias is None)
    if not paired or gate.out_features % vector_width() or not fits(gate.weight):
        return None
    if down.weight.dtype != torch.float32:
        return None
    return GatedMlp(GatedLinear(gate, up), packed_linear(down.weight, down.bias))


def _same(module: nn.Module, other: nn.Module, size: int) -> bool:
    rows = torch.randn(3, 5, size, generator=torch.Generator().manual_seed(0))
    expected, answer = module(rows), other(rows)
    if not isinstance(expected, Tensor) or expected.shape != answer.shape:
        return False
    difference = (expected - answer).abs().max() / expected.abs().max().clamp_min(1e-20)
    return bool(difference < _TOLERANCE)
