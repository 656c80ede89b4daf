"""Prove on the loaded weights that packing leaves a model's answers right.

| compared | how |
|---|---|
| truth | the model's own eager run over the same weights in float32, in float64 if it is tiny |
| own | the model's own eager run in the type that it would compute in by itself |
| ours | packed, chunked, cached rows through the attention backend and the packed weights |

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

from executor import hook
from executor.attention.base import AttentionBackend
from executor.errors import UnsupportedModelError
from executor.model import LayerShape, PackedModel, PagedCache
from executor.request import Request
from executor.scheduler import Scheduler
from executor.sequence import Group, Sequence
from executor.settings import Limits
from executor.widening import widened

FACTOR = 2.0
"""How much farther from the truth than the model's own run packing may be."""

FLOOR = 2e-3
"""Of the spread, that packing may be off however exact the model's own run is."""

TINY_PARAMETERS = 20_000_000
"""Models of so many parameters at most are evaluated in float64."""

_LENGTHS = (3, 41, 18)
"""Prompts of the check; the step budget below cuts the second in three."""
_BUDGET = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedForm:
    """How packed rows attend: shapes and number type of the cache, and the backend over it."""

    layers: dict[int, LayerShape]
    backend: AttentionBackend
    cache: torch.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnAnswers:
    """What a model says by itself after each prompt, in its own type: logits [P, V]."""

    prompts: list[list[int]]
    logits: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The right logits [P, V] after each prompt, and how far the model's own run is from them."""

    prompts: list[list[int]]
    logits: Tensor
    noise: float

    @property
    def allowed(self) -> float:
        return FLOOR + FACTOR * self.noise

    def beside(self, own: OwnAnswers) -> Truth:
        """The same truth, with the noise of these answers."""
        return replace(self, noise=self.distance(own.logits))

    def distance(self, logits: Tensor) -> float:
        """Of the row that is farthest off: root mean square, as a share of the spread."""
        return float(self.distances(logits).max())

    def distances(self, logits: Tensor) -> Tensor:
        """The same of each row [P]."""
        true = self.logits.double()
        errors = (logits.double() - true).square().mean(dim=1).sqrt()
        return errors / true.std(dim=1).clamp_min(1e-6)


def own_answers(module: nn.Module, vocab_size: int) -> OwnAnswers:
    """Ask the model one prompt at a time, through transformers' eager attention.

    Raises:
        UnsupportedModelError: the model fails by itself, with its reason.
    """
    generator = torch.Generator().manual_seed(0)
    prompts = [
        torch.randint(vocab_size, (length,), generator=generator).tolist() for length in _LENGTHS
    ]
    return OwnAnswers(prompts=prompts, logits=_eager_logits(module, prompts))


def find_truth(module: nn.Module, vocab_size: int) -> Truth:
    """The truth for a module that computes in float32, and how far its own run in float32 is from
    it: not at all where that run is the truth."""
    own = own_answers(module, vocab_size)
    if not _is_tiny(module):
        return Truth(prompts=own.prompts, logits=own.logits, noise=0.0)
    twin = copy.deepcopy(module)
    try:
        with widened(twin, torch.float64):
            wide = _eager_logits(twin, own.prompts)
    except UnsupportedModelError:
        # Some operations, like the products of experts, have no float64 form.
        wide = own.logits
    return Truth(prompts=own.prompts, logits=wide, noise=0.0).beside(own)


def _is_tiny(module: nn.Module) -> bool:
    return sum(parameter.numel() for parameter in module.parameters()) <= TINY_PARAMETERS


def check_packing(module: Any, form: PagedForm, truth: Truth) -> float:
    """The distance of packed, chunked and cached logits from the truth.

    Raises:
        UnsupportedModelError: it is more than is allowed, with both and where it begins.
    """
    distances = truth.distances(_packed_logits(module, form, truth.prompts))
    distance = float(distances.max())
    if distance <= truth.allowed or _is_rounding(module, truth, distances):
        return distance
    raise UnsupportedModelError(
        f"{type(module).__name__} cannot be packed: in a packed batch its logits are off by "
        f"{distance:.2g} of their spread (its own run: {truth.noise:.2g}, allowed: "
        f"{truth.allowed:.2g}), {_where(module, form, truth)}."
    )


def _is_rounding(module: Any, truth: Truth, distances: Tensor) -> bool:
    """Whether the same module without packing is as far off in its worst row.

    Routers of experts choose another one where two are nearly equal, so that rounding moves single
    rows by more than it moves all others, and not the same ones in every arithmetic.
    """
    if not truth.noise or not distances.median() <= truth.allowed:
        return False
    unpacked = truth.distance(_eager_logits(module, truth.prompts))
    return bool(distances.max() <= FLOOR + FACTOR * unpacked)


def logit_error(module: Any, form: PagedForm, truth: Truth) -> float:
    """The distance of packed logits from the truth (`Truth.distance`)."""
    return truth.distance(_packed_logits(module, form, truth.prompts))


def _packed_logits(
    module: Any, form: PagedForm, prompts: list[list[int]], watch: _LayerStates | None = None
) -> Tensor:
    """Logits after each prompt [P, V]: chunks of all but its last token, then a decode step."""
    limits = Limits(
        max_num_seqs=len(prompts),
        max_num_batched_tokens=_BUDGET,
        max_model_len=max(_LENGTHS),
        num_blocks=8,
        block_size=16,
    )
    cache = PagedCache(form.layers, limits, dtype=form.cache, device=module.device)
    model = PackedModel(module, cache, form.backend)
    scheduler = Scheduler(limits)
    for index, prompt in enumerate(prompts):
        request = Request(id="check", prompt_token_ids=tuple(prompt[:-1]))
        scheduler.add(Sequence(Group(request), index, prompt[:-1], watcher=None))
    logits: dict[int, Tensor] = {}
    while scheduler.has_work:
        spans = scheduler.schedule()
        ready = [span.sequence for span in spans if span.catches_up]
        rows = model.forward(spans)
        ends = torch.tensor([span.positions for span in spans]).cumsum(0) - 1
        for sequence, row in zip(ready, rows, strict=True):
            if sequence.num_generated:
                logits[sequence.index] = row.float()
                place = [span.sequence for span in spans].index(sequence)
                if watch is not None:
                    watch.keep(sequence.index, int(ends[place]))
                scheduler.remove(sequence)
            else:
                sequence.tokens.append(prompts[sequence.index][-1])
    return torch.stack([logits[index] for index in range(len(prompts))])


@torch.inference_mode()
def _eager_logits(
    module: Any, prompts: list[list[int]], watch: _LayerStates | None = None
) -> Tensor:
    module.set_attn_implementation("eager")
    rows = []
    try:
        for index, prompt in enumerate(prompts):
            tokens = torch.tensor([prompt], device=module.device)
            logits = module(input_ids=tokens, use_cache=False).logits[0, -1]
            rows.append(logits.double() if logits.dtype == torch.float64 else logits.float())
            if watch is not None:
                watch.keep(index, len(prompt) - 1)
    except Exception as error:
        # A family's own code may fail in any way, and the reason is its own.
        raise UnsupportedModelError(
            f"{type(module).__name__} cannot be run: its own forward pass fails with "
            f"{type(error).__name__}: {' '.join(str(error).split())[:300]}."
        ) from error
    finally:
        module.set_attn_implementation(hook.NAME)
    return torch.stack(rows)


class _LayerStates:
    """What each decoder layer gave out for the last token of each prompt."""

    def __init__(self, layers: Many[nn.Module]) -> None:
        self.kept: dict[tuple[int, int], Tensor] = {}
        self._last: dict[int, Tensor] = {}
        self._handles = [
            layer.register_forward_hook(
                lambda _module, _given, output, index=index: self._note(index, output)
            )
            for index, layer in enumerate(layers)
        ]

    def _note(self, index: int, output: Any) -> None:
        states = output if isinstance(output, Tensor) else output[0]
        self._last[index] = states[0]

    def keep(self, prompt: int, row: int) -> None:
        for layer, states in self._last.items():
            self.kept[layer, prompt] = states[row].double()

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()


def _where(module: Any, form: PagedForm, truth: Truth) -> str:
    """From which decoder layer on the hidden states differ by more than is allowed."""
    decoders = _decoder_layers(module, len(form.layers))
    own, ours = _LayerStates(decoders), None
    try:
        _eager_logits(module, truth.prompts, own)
        own.remove()
        ours = _LayerStates(decoders)
        _packed_logits(module, form, truth.prompts, ours)
    finally:
        for states in (own, ours):
            if states is not None:
                states.remove()
    for key in sorted(own.kept.keys() & ours.kept.keys()):
        true, packed = own.kept[key], ours.kept[key]
        if (packed - true).norm() > truth.allowed * true.norm():
            return f"and its states part in decoder layer {key[0]} of {len(decoders)}"
    return "and its states part behind the decoder layers"


def _decoder_layers(module: nn.Module, count: int) -> list[nn.Module]:
    lists = [part for part in module.modules() if isinstance(part, nn.ModuleList)]
    fitting = (list(part) for part in lists if len(part) == count)
    return next(fitting, [])
