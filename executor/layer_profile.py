"""A model's layers, charged to their parts of a profile. Only a profiled model pays for it."""

from __future__ import annotations

from typing import Any

from torch import nn

from executor.linear import LinearPart
from executor.profile import Part, Profile

_KEYWORD = "executor_profile"
"""How the profile reaches the attention layers (`hook`)."""


def watch_layers(module: nn.Module, profile: Profile) -> None:
    """Charge linear and attention layers of `module` to `profile` from now on."""

    def introduce(
        module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return arguments, {**keywords, _KEYWORD: profile}

    module.register_forward_pre_hook(introduce, with_kwargs=True)
    for layer in module.modules():
        if is_linear(layer):
            layer.register_forward_pre_hook(lambda *_: profile.enter(Part.LINEARS))
            layer.register_forward_hook(lambda *_: profile.leave(Part.LINEARS))


def is_linear(layer: nn.Module) -> bool:
    """Whether it multiplies by a weight matrix and does nothing else: also GPT-2's `Conv1D`, a
    part of a merged product, and whatever takes a linear layer's place and says so in its name."""
    name = type(layer).__name__
    return isinstance(layer, nn.Linear | LinearPart) or name.endswith("Linear") or name == "Conv1D"
