"""A model's layers, charged to their parts of a profile. Only a profiled model pays for it."""

from __future__ import annotations

from torch import nn

from executor.linear import LinearPart
from executor.passing import charge_passes
from executor.profile import Part, Profile


def watch_layers(module: nn.Module, profile: Profile) -> None:
    """Charge linear and attention layers of `module` to `profile` from now on."""
    charge_passes(module, profile)
    for layer in module.modules():
        if is_linear(layer):
            layer.register_forward_pre_hook(lambda *_: profile.enter(Part.LINEARS))
            layer.register_forward_hook(lambda *_: profile.leave(Part.LINEARS))


def is_linear(layer: nn.Module) -> bool:
    """Whether it multiplies by a weight matrix and does nothing else: also GPT-2's `Conv1D`, a
    part of a merged product, and whatever takes a linear layer's place and says so in its name."""
    name = type(layer).__name__
    return isinstance(layer, nn.Linear | LinearPart) or name.endswith("Linear") or name == "Conv1D"
