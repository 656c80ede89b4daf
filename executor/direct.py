"""A decoder layer's forward without the modules in between, for layers of the usual shape:

    hidden += attention(norm(hidden)); hidden += gated MLP(norm(hidden))

With few rows a layer's kernels take less time than calling them from Python, module by module.
Here a layer is two series of kernels with attention between them, over buffers that all layers
share. A layer is known by the source of its forward and of its attention's (`known_forwards`),
and then proven: it and its direct form are given what the model gives it, at positions all over
its context and in two magnitudes, and only a layer that is answered the same goes the direct
way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from executor.attention.base import AttentionOptions
from executor.attention.reference import attend
from executor.compiled.series import Call, Series, can_run_series
from executor.fusing import GatedMlp
from executor.hook import AttentionContext, layer_index
from executor.known_forwards import ATTENTIONS, LAYERS, is_known
from executor.linear import LinearPart, PanelLinear
from executor.norm import FusedRmsNorm
from executor.passing import current_context, current_profile
from executor.product import PackedWeight
from executor.profile import NO_PROFILE, Part, StepProfile
from executor.rotary import HeadRotation

_TOLERANCE = 1e-5
"""Of the largest number that it adds to the states, that a direct layer may be off."""
_ROUNDING = 1e-6
"""Of the largest state, that a sum with it may be off: a few units in the last place."""
_LARGE = 100.0
"""Times the states that the model gives a layer, it is proven once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What a layer of the usual shape is made of."""

    before: FusedRmsNorm
    attention: nn.Module
    projection: PackedWeight  # to queries, keys and values side by side
    norms: tuple[FusedRmsNorm, FusedRmsNorm] | None  # of query and key heads
    output: PackedWeight
    between: FusedRmsNorm
    gated: PackedWeight
    down: PackedWeight


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heads:
    """How a layer attends, as it was seen to."""

    queries: int
    keys: int
    key_size: int
    value_size: int
    options: AttentionOptions

    @property
    def columns(self) -> int:
        """Of queries, keys and values side by side."""
        return (self.queries + self.keys) * self.key_size + self.keys * self.value_size


class _Watcher:
    """Attends over the whole row as one sequence and notes how each layer does it (`hook`)."""

    kept = None

    def __init__(self) -> None:
        self.seen: dict[int, _Heads] = {}

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: AttentionOptions
    ) -> Tensor:
        self.seen[layer] = _Heads(
            queries=query.shape[1],
            keys=key.shape[1],
            key_size=key.shape[2],
            value_size=value.shape[2],
            options=options,
        )
        positions = torch.arange(len(query), device=query.device)
        return attend(query, key.transpose(0, 1), value.transpose(0, 1), positions, options)


class _Buffers:
    """What the kernels of a layer hand on to each other, for `rows` positions."""

    def __init__(self, rows: int, parts: _Parts, heads: _Heads) -> None:
        size = parts.output.answers
        values = heads.keys * heads.value_size
        self.normal, self.sums = torch.empty(rows, size), torch.empty(rows, size)
        self.merged = torch.empty(rows, parts.projection.answers)
        self.query = torch.empty(rows, heads.queries, heads.key_size)
        self.key = torch.empty(rows, heads.keys, heads.key_size)
        self.value = self.merged[:, -values:].view(rows, heads.keys, heads.value_size)
        self.gated = torch.empty(rows, parts.gated.answers)
        self.normal_at, self.sums_at = self.normal.data_ptr(), self.sums.data_ptr()
        self.merged_at, self.gated_at = self.merged.data_ptr(), self.gated.data_ptr()
        self.turned_at = self.query.data_ptr(), self.key.data_ptr()


class _Space:
    """The buffers of the step at work: of each kind one for all layers, one after the other."""

    def __init__(self) -> None:
        self._rows = 0
        self._buffers: dict[tuple[int, ...], _Buffers] = {}

    def buffers(self, rows: int, parts: _Parts, heads: _Heads) -> _Buffers:
        if rows != self._rows:
            self._buffers.clear()
            self._rows = rows
        sizes = heads.queries, heads.keys, heads.key_size, heads.value_size, parts.gated.answers
        if sizes not in self._buffers:
            self._buffers[sizes] = _Buffers(rows, parts, heads)
        return self._buffers[sizes]


class _Charged:
    """Calls in a series, or one by one if it is to be known how long each part of them takes."""

    def __init__(self, *calls: tuple[Part, Call]) -> None:
        self._calls = calls
        self._series = Series([call for _, call in calls])

    def run(self, profile: StepProfile) -> None:
        if profile is NO_PROFILE:
            self._series.call.run()
            return
        for part, call in self._calls:
            with profile.measure(part):
                call.run()


class DirectLayer:
    """Computes what `own`, the forward of a layer, does in a packed step.

    The last layer of all does so only for rows whose states are looked at behind it; the others'
    are 0. (Their keys and values are there: of a prompt's rows that is all that is needed.)
    """

    is_last = False

    def __init__(
        self, own: Callable[..., Any], parts: _Parts, heads: _Heads, space: _Space
    ) -> None:
        self._own, self._parts, self._heads, self._space = own, parts, heads, space
        self._layer = layer_index(parts.attention)
        self._rotation = HeadRotation(heads.queries, heads.keys, heads.key_size, parts.norms)
        self._before = _Charged(
            (Part.MODEL, parts.before.call),
            *_linear(parts.projection),
            (Part.MODEL, self._rotation.call),
        )
        self._behind = _Charged(
            *_linear(parts.output),
            (Part.MODEL, parts.between.call),
            *_linear(parts.gated),
            *_linear(parts.down),
        )

    def forward(
        self,
        hidden_states: Tensor,  # [1, T, H]
        *,
        attention_mask: Tensor | None = None,
        position_embeddings: tuple[Tensor, Tensor] | None = None,  # cosines and sines [1, T, Dk]
        **more: Any,
    ) -> Any:
        context: AttentionContext | None = current_context()
        if context is None or attention_mask is not None or position_embeddings is None:
            more |= {"attention_mask": attention_mask, "position_embeddings": position_embeddings}
            return self._own(hidden_states, **more)
        profile = current_profile()
        buffers = self._space.buffers(hidden_states.shape[1], self._parts, self._heads)
        hidden = hidden_states.contiguous()
        self._prepare_before(hidden, position_embeddings, buffers)
        self._before.run(profile)
        with profile.measure(Part.ATTENTION):
            mixed = context.attend(
                self._layer, buffers.query, buffers.key, buffers.value, self._heads.options
            ).contiguous()
        if self.is_last and (kept := context.kept) is not None:
            whole = torch.zeros_like(hidden)
            if len(kept):
                hidden, mixed = hidden[:, kept], mixed[kept]
                whole[:, kept] = self._finish(hidden, mixed, buffers, profile)
            return whole
        return self._finish(hidden, mixed, buffers, profile)

    def _finish(
        self, hidden: Tensor, mixed: Tensor, buffers: _Buffers, profile: StepProfile
    ) -> Tensor:
        """Behind attention; of as many rows as are given."""
        answer = torch.empty_like(hidden)
        self._prepare_behind(hidden, mixed, answer, buffers)
        self._behind.run(profile)
        return answer.add_(buffers.sums[: hidden.shape[1]])

    def _prepare_before(
        self, hidden: Tensor, angles: tuple[Tensor, Tensor], buffers: _Buffers
    ) -> None:
        parts, rows = self._parts, hidden.shape[1]
        cosines, sines = angles
        parts.before.prepare(hidden.data_ptr(), buffers.normal_at, rows)
        parts.projection.prepare(buffers.normal_at, buffers.merged_at, rows)
        self._rotation.prepare(
            source=buffers.merged_at,
            width=parts.projection.answers,
            targets=buffers.turned_at,
            angles=(cosines.data_ptr(), sines.data_ptr()),
            rows=rows,
        )

    def _prepare_behind(
        self, hidden: Tensor, mixed: Tensor, answer: Tensor, buffers: _Buffers
    ) -> None:
        parts, rows = self._parts, hidden.shape[1]
        parts.output.prepare(mixed.data_ptr(), buffers.sums_at, rows)
        parts.between.prepare(buffers.sums_at, buffers.normal_at, rows, hidden.data_ptr())
        parts.gated.prepare(buffers.normal_at, buffers.gated_at, rows)
        parts.down.prepare(buffers.gated_at, answer.data_ptr(), rows)


def _linear(panels: PackedWeight) -> list[tuple[Part, Call]]:
    return [(Part.LINEARS, call) for call in panels.calls]


class _Trial:
    """A layer that runs both ways, and whether they gave the same."""

    def __init__(self, layer: nn.Module, parts: _Parts, watcher: _Watcher, space: _Space) -> None:
        self.layer = layer
        self.direct: DirectLayer | None = None
        self.index = layer_index(parts.attention)
        self._own = layer.forward
        self._parts, self._watcher, self._space = parts, watcher, space

    def forward(self, *given: Any, **by_name: Any) -> Any:
        answer = self._own(*given, **by_name)
        heads = self._watcher.seen[self.index]
        if _fit(self._parts, heads) and _angles_fit(heads, **by_name):
            direct = DirectLayer(self._own, self._parts, heads, self._space)
            if self._agrees(direct, answer, *given, **by_name):
                self.direct = direct
        return answer

    def _agrees(
        self, direct: DirectLayer, answer: Any, states: Tensor, *given: Any, **by_name: Any
    ) -> bool:
        large = _LARGE * states
        return _same(states, answer, direct.forward(states, *given, **by_name)) and _same(
            large,
            self._own(large, *given, **by_name),
            direct.forward(large, *given, **by_name),
        )


@torch.inference_mode()
def direct_layers(module: nn.Module, run: Callable[[AttentionContext], object]) -> int:
    """Let layers that were seen to give the same compute the direct way; how many do.

    Args:
        run: one short forward pass of `module` with this context.
    """
    if not can_run_series():
        return 0
    watcher, space = _Watcher(), _Space()
    found = [(layer, parts) for layer in module.modules() if (parts := _parts(layer)) is not None]
    trials = [_Trial(layer, parts, watcher, space) for layer, parts in found]
    for trial in trials:
        trial.layer.forward = trial.forward
    try:
        run(watcher)
    except Exception:
        # What a layer is given may be of another kind than is known here, in any way.
        for trial in trials:
            trial.direct = None
    for trial in trials:
        del trial.layer.forward
        if trial.direct is not None:
            trial.direct.is_last = trial.index == next(reversed(watcher.seen))
            trial.layer.forward = trial.direct.forward
    return sum(trial.direct is not None for trial in trials)


def _same(states: Tensor, expected: Any, answer: Tensor) -> bool:
    """Whether both add the same to the states, up to the rounding of what is added to them."""
    if not isinstance(expected, Tensor) or expected.shape != answer.shape:
        return False
    added, rounding = (expected - states).abs().max(), _ROUNDING * states.abs().max()
    return bool((expected - answer).abs().max() <= _TOLERANCE * added + rounding)


def _fit(parts: _Parts, heads: _Heads) -> bool:
    """Whether the kernels' sizes are those of the heads, so that none writes beside its buffer."""
    sizes = [norm.weight.numel() for norm in parts.norms or ()]
    return (
        parts.projection.answers == heads.columns
        and heads.key_size % 2 == 0
        and all(size == heads.key_size for size in sizes)
    )


def _angles_fit(heads: _Heads, position_embeddings: Any = None, **_: Any) -> bool:
    """Whether cosines and sines turn whole heads."""
    return all(
        x.dtype == torch.float32 and x.is_contiguous() and x.shape[2] == heads.key_size
        for x in position_embeddings
    )


def _parts(layer: nn.Module) -> _Parts | None:
    """What the layer is made of; None if its forward is not known, or not all of it is fused."""
    attention = getattr(layer, "self_attn", None)
    if attention is None or not is_known(layer, LAYERS) or not is_known(attention, ATTENTIONS):
        return None
    before, between = (
        getattr(layer, name) for name in ("input_layernorm", "post_attention_layernorm")
    )
    mlp: Any = layer.mlp
    if not (type(before) is type(between) is FusedRmsNorm and type(mlp) is GatedMlp):
        return None
    projection, output = _projection(attention), _panels(attention.o_proj)
    is_plain = getattr(attention, "use_rope", True) and _norms_are_fused(attention)
    if not is_plain or projection is None or output is None or type(mlp.down) is not PanelLinear:
        return None
    return _Parts(
        before=before,
        attention=attention,
        projection=projection,
        norms=_head_norms(attention),
        output=output,
        between=between,
        gated=mlp.gated.panels,
        down=mlp.down.panels,
    )


def _projection(attention: Any) -> PackedWeight | None:
    """To queries, keys and values side by side, merged by us or in the checkpoint."""
    if hasattr(attention, "qkv_proj"):
        return _panels(attention.qkv_proj)
    parts = attention.q_proj, attention.k_proj, attention.v_proj
    if not all(type(part) is LinearPart for part in parts):
        return None
    in_order = [part.index for part in parts] == [0, 1, 2]
    shared = {id(part.shared): part.shared for part in parts}
    return _panels(parts[0].shared.linear) if in_order and len(shared) == 1 else None


def _panels(linear: Any) -> PackedWeight | None:
    return linear.panels if type(linear) is PanelLinear else None


def _norms_are_fused(attention: nn.Module) -> bool:
    norms = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
    return all(norm is None or type(norm) is FusedRmsNorm for norm in norms)


def _head_norms(attention: nn.Module) -> tuple[FusedRmsNorm, FusedRmsNorm] | None:
    queries, keys = (getattr(attention, name, None) for name in ("q_norm", "k_norm"))
    if type(queries) is FusedRmsNorm and type(keys) is FusedRmsNorm:
        return queries, keys
    return None
