"""Replace a model's linear layers by fewer and faster ones, whatever its family calls them.

One pass with stand-ins finds out which layers may be replaced: those that are only ever called,
and not asked for their weight. Layers of one module that are given the same tensor (queries, keys
and values; gate and up) become one product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from executor.linear import LinearPart, SharedProduct, packed_linear, plain_linear
from executor.memory import let_go_of_file

Product = Callable[[Tensor, Tensor | None], nn.Module]
"""A weight [N, K] and a bias [N] to a module that multiplies by them."""


@dataclass(slots=True, eq=False)
class _Site:
    """A linear layer, the module that holds it and under which name, and what it was given."""

    parent: nn.Module
    name: str
    linear: nn.Linear
    calls: int = 0
    given: Tensor | None = None
    given_values: Tensor | None = None

    def replace(self, module: nn.Module) -> None:
        setattr(self.parent, self.name, module)


class _StandIn(nn.Module):
    """Computes as the layer does, notes the input, and has no weight to show."""

    def __init__(self, site: _Site) -> None:
        super().__init__()
        self._call = site.linear.forward
        self._site = site

    def forward(self, rows: Tensor) -> Tensor:
        self._site.calls += 1
        self._site.given, self._site.given_values = rows, rows.clone()
        return self._call(rows)


@torch.inference_mode()
def optimize_linears(
    module: nn.Module,
    run: Callable[[], object],
    *,
    prepack: bool = True,
    merge: bool = True,
    product: Product = packed_linear,
) -> None:
    """Replace what can be replaced in `module`.

    The original weights are let go one group at a time, so that memory does not double; one that
    something else holds as well (tied embeddings) stays. Leaves a model alone that cannot run
    without seeing its weights.

    Args:
        run: one short forward pass of `module`.
        product: makes what takes the place of a layer if `prepack`.
    """
    if not (prepack or merge):
        return
    groups = _groups(_callable_sites(module, run), merge=merge)
    while groups:
        _replace(groups.pop(), product if prepack else None)


def _sites(module: nn.Module) -> list[_Site]:
    return [
        _Site(parent, name, child)
        for parent in module.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear and not child._forward_hooks and not child._forward_pre_hooks
    ]


def _callable_sites(module: nn.Module, run: Callable[[], object]) -> list[_Site]:
    """The layers a pass calls, with what they were given; none if it needs more than calls."""
    sites = _sites(module)
    for site in sites:
        site.replace(_StandIn(site))
    try:
        run()
    except Exception:
        # A model that looks at its weights may trip over their absence in any way.
        return []
    finally:
        for site in sites:
            site.replace(site.linear)
    return [site for site in sites if site.calls]


def _groups(sites: list[_Site], *, merge: bool) -> list[list[_Site]]:
    groups: list[list[_Site]] = []
    for site in sites:
        fitting = (group for group in groups if merge and _mergeable(group[0], site))
        if group := next(fitting, None):
            group.append(site)
        else:
            groups.append([site])
    return groups


def _mergeable(first: _Site, other: _Site) -> bool:
    """Same module, same kind, and the same tensor given once, unchanged in between."""
    return (
        first.parent is other.parent
        and first.calls == other.calls == 1
        and first.given is other.given
        and torch.equal(_values(first), _values(other))
        and (_bias(first) is None) == (_bias(other) is None)
        and first.linear.weight.dtype == other.linear.weight.dtype
    )


def _values(site: _Site) -> Tensor:
    assert site.given_values is not None, "a layer that was not called has no input"
    return site.given_values


def _bias(site: _Site) -> Tensor | None:
    return site.linear.bias


def _replace(group: list[_Site], product: Product | None) -> None:
    weights = [site.linear.weight.detach() for site in group]
    biases = [bias.detach() for site in group if (bias := _bias(site)) is not None]
    if len(group) == 1:
        if product is not None:
            group[0].replace(product(weights[0], biases[0] if biases else None))
            let_go_of_file(*weights)
        return
    weight = torch.cat(weights)
    bias = torch.cat(biases) if biases else None
    whole = plain_linear(weight, bias) if product is None else product(weight, bias)
    let_go_of_file(*weights)
    shared = SharedProduct(whole, [len(part) for part in weights])
    for index, site in enumerate(group):
        site.replace(LinearPart(shared, index))
