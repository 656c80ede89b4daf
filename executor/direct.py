"""A decoder layer's forward without the modules in between, for layers of the usual shape:

    hidden += attention(norm(hidden)); hidden += gated MLP(norm(hidden))

With few rows a layer's kernels take less time than calling them from Python, module by module.
Here a layer is two series of kernels with attention between them, over buffers that all layers
share. A layer is known by what it holds, and then proven: it and its direct form are given what
the model gives it, and only a layer that is answered the same goes the direct way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from executor.attention.base import AttentionOptions
from executor.attention.reference import attend
from executor.compiled import team
from executor.compiled.series import Call, Series
from executor.fusing import GatedMlp
from executor.hook import AttentionContext, layer_index
from executor.linear import LinearPart, PanelLinear
from executor.norm import FusedRmsNorm
from executor.passing import current_context, current_profile
from executor.product import Panels
from executor.profile import NO_PROFILE, Part, StepProfile
from executor.rotary import HeadRotation

_TOLERANCE = 1e-5
"""Of the largest number of the answer, that a direct layer may be off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What a layer of the usual shape is made of."""

    before: FusedRmsNorm
    attention: nn.Module
    projection: Panels  # to queries, keys and values side by side
    norms: tuple[FusedRmsNorm, FusedRmsNorm] | None  # of query and key heads
    output: Panels
    between: FusedRmsNorm
    gated: Panels
    down: Panels


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
            (Part.LINEARS, parts.projection.call),
            (Part.MODEL, self._rotation.call),
        )
        self._behind = _Charged(
            (Part.LINEARS, parts.output.call),
            (Part.MODEL, parts.between.call),
            (Part.LINEARS, parts.gated.call),
            (Part.LINEARS, parts.down.call),
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
            if _same(answer, direct.forward(*given, **by_name)):
                self.direct = direct
        return answer


@torch.inference_mode()
def direct_layers(module: nn.Module, run: Callable[[AttentionContext], object]) -> int:
    """Let layers that were seen to give the same compute the direct way; how many do.

    Args:
        run: one short forward pass of `module` with this context.
    """
    if team.openmp() is None:
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


def _same(expected: Any, answer: Tensor) -> bool:
    if not isinstance(expected, Tensor) or expected.shape != answer.shape:
        return False
    difference = (expected - answer).abs().max() / expected.abs().max().clamp_min(1e-20)
    return bool(difference < _TOLERANCE)


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


_INERT = (nn.Dropout, nn.Identity)


def _parts(layer: nn.Module) -> _Parts | None:
    """What the layer is made of; None if it holds other things, or more of them."""
    children = [child for child in layer.children() if not isinstance(child, _INERT)]
    norms = [child for child in children if type(child) is FusedRmsNorm]
    mlps = [child for child in children if type(child) is GatedMlp]
    others = [child for child in children if type(child) not in (FusedRmsNorm, GatedMlp)]
    if (len(norms), len(mlps), len(others)) != (2, 1, 1):
        return None
    projection, output = _projections(others[0])
    down = mlps[0].down
    if projection is None or output is None or not isinstance(down, PanelLinear):
        return None
    return _Parts(
        before=norms[0],
        attention=others[0],
        projection=projection,
        norms=_head_norms(others[0]),
        output=output,
        between=norms[1],
        gated=mlps[0].gated.panels,
        down=down.panels,
    )


def _projections(attention: nn.Module) -> tuple[Panels | None, Panels | None]:
    """To queries, keys and values, merged by us or in the checkpoint, and back."""
    children = dict(attention.named_children())
    output = children.pop("o_proj", None)
    parts = [child for child in children.values() if type(child) is LinearPart]
    wholes: list[Any] = [child for child in children.values() if type(child) is PanelLinear]
    if [part.index for part in parts] == [0, 1, 2] and not wholes:
        wholes = list({part.shared.linear for part in parts})
    return _panels(wholes[0] if len(wholes) == 1 else None), _panels(output)


def _panels(linear: Any) -> Panels | None:
    return linear.panels if type(linear) is PanelLinear else None


def _head_norms(attention: nn.Module) -> tuple[FusedRmsNorm, FusedRmsNorm] | None:
    norms = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
    queries, keys = norms
    if type(queries) is FusedRmsNorm and type(keys) is FusedRmsNorm:
        return queries, keys
    return None
