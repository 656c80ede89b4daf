"""The context and the profile of the running forward pass, for whoever computes inside it.

They reach attention functions and direct layers through context variables, not through keyword
arguments: some families do not hand keyword arguments on to their attention layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import nn

from executor.profile import NO_PROFILE, StepProfile

_context: ContextVar[Any] = ContextVar("executor_context", default=None)
_profile: ContextVar[StepProfile] = ContextVar("executor_profile", default=NO_PROFILE)

current_context = _context.get
"""The context of the forward pass at work; None outside of one."""
current_profile = _profile.get
"""The profile that the forward pass at work is charged to; `NO_PROFILE` without one."""


@contextmanager
def attending(context: object) -> Iterator[None]:
    """Give `context` to the attention layers that run inside."""
    token = _context.set(context)
    try:
        yield
    finally:
        _context.reset(token)


def charge_passes(module: nn.Module, profile: StepProfile) -> None:
    """Make `profile` the current one during every forward pass of `module` from now on."""
    tokens: list[Any] = []
    module.register_forward_pre_hook(lambda *_: tokens.append(_profile.set(profile)))
    # Also after a pass that failed, so that no other model's pass is charged to this profile.
    module.register_forward_hook(lambda *_: _profile.reset(tokens.pop()), always_call=True)
