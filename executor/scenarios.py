"""Small packed runs in which a model that packing changes would differ from its own answers.

Each covers what a short prompt from position 0 does not: late rope positions, the edge of a
window, a prefix that rows share (cascade), draft rows, a copied block, a sequence that is
computed again in other blocks. `own_logits` gives what the model says of the same tokens at the
same positions by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from collections.abc import Sequence as Many
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from executor import hook
from executor.attention.base import AttentionBackend, PackedBatch
from executor.attention.cascade import MIN_ROWS, MIN_TOKENS
from executor.attention.reference import reference_attention
from executor.errors import UnsupportedModelError, cannot_be_packed, one_line
from executor.layer_states import LayerStates
from executor.loading import max_positions
from executor.model import PagedCache, PagedContext, pack, run_packed
from executor.request import Request
from executor.sequence import Group, Sequence
from executor.settings import Limits
from executor.span import Span

LIMITS = Limits(
    max_num_seqs=8, max_num_batched_tokens=64, max_model_len=544, num_blocks=64, block_size=16
)
"""What the cache of the runs holds."""

_LARGEST_WINDOW = 512
"""Tokens; the edge of a wider window is too far to be crossed at every load."""
_TURN = 12
"""Tokens of a run that looks at rope positions."""
_CHUNK = 48
"""Tokens of a prompt that are computed in one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One sequence as it was computed in company, and its logits [R, V] at `rows` [R].

    Its token i is at the rope position `first` + i, and attends to all its tokens before.
    """

    name: str
    tokens: tuple[int, ...]
    first: int
    rows: tuple[int, ...]
    logits: Tensor

    @property
    def positions(self) -> range:
        return range(self.first, self.first + len(self.tokens))


@torch.inference_mode()
def scenarios(
    module: nn.Module,
    cache: PagedCache,
    backend: AttentionBackend,
    vocab_size: int,
    watch: LayerStates | None = None,
) -> list[Scenario]:
    """Run all of them; those that need more positions than the model has are left out.

    Args:
        module: a model that was probed, so that its windows are known (`probing.probe_layers`).
        cache: one of `LIMITS`; its content is lost.
        watch: keeps the states of the rows whose logits are kept.

    Raises:
        UnsupportedModelError: the model's code fails in a packed batch.
    """
    for tensor in cache.tensors:
        tensor.fill_(torch.nan)  # so that reading what nobody wrote shows
    try:
        return _texts(_Run(module, cache, backend, vocab_size, watch))
    except Exception as error:
        # What a model does at positions or in steps that no probe had may fail in any way.
        raise cannot_be_packed(module, error) from error


def questions(module: nn.Module, vocab_size: int) -> list[Scenario]:
    """The same without running them: their logits are empty [R, 0]."""
    return _texts(
        _DryRun(
            module,
            PagedCache({}, LIMITS, dtype=torch.float32, device="cpu"),
            reference_attention,
            vocab_size,
        )
    )


def _texts(run: _Run) -> list[Scenario]:
    texts = [*_turned(run), *_windowed(run), *_shared(run), *_copied(run), *_preempted(run)]
    return [text.scenario() for text in texts]


@torch.inference_mode()
def own_logits(
    module: nn.Module, runs: Many[Scenario], watch: LayerStates | None = None
) -> list[Tensor]:
    """The model's own logits [R, V] for each, through transformers' eager attention.

    Those of about one length are a batch, each filled up behind its end, where no token before it
    looks.

    Raises:
        UnsupportedModelError: the model cannot compute them, with the reason.
    """
    by_length: defaultdict[int, list[Scenario]] = defaultdict(list)
    for run in runs:
        by_length[len(run.tokens).bit_length()].append(run)
    found: dict[str, Tensor] = {}
    with own_attention(module):
        for batch in by_length.values():
            found |= _own_logits(module, batch)
            if watch is not None and len(batch) == 1:
                for row in batch[0].rows:
                    watch.keep(batch[0].name, row, row)
    return [found[run.name] for run in runs]


def _own_logits(module: Any, runs: Many[Scenario]) -> dict[str, Tensor]:
    device = next(module.parameters()).device
    longest = max(len(run.tokens) for run in runs)
    tokens = torch.zeros(len(runs), longest, dtype=torch.int64)
    positions = torch.zeros_like(tokens)
    for index, run in enumerate(runs):
        tokens[index, : len(run.tokens)] = torch.tensor(run.tokens)
        positions[index] = (run.first + torch.arange(longest)).clamp_max(run.positions[-1])
    output = module(input_ids=tokens.to(device), position_ids=positions.to(device), use_cache=False)
    return {run.name: output.logits[index, list(run.rows)] for index, run in enumerate(runs)}


@contextmanager
def own_attention(module: Any) -> Iterator[None]:
    """Let the model attend by transformers' eager attention inside.

    Raises:
        UnsupportedModelError: for whatever the model's own code raises.
    """
    try:
        module.set_attn_implementation("eager")
        yield
    except UnsupportedModelError:
        raise
    except Exception as error:
        # A model that transformers itself cannot run may fail in any way.
        raise UnsupportedModelError(
            f"{type(module).__name__} does not run by itself in this version of transformers: "
            f"{one_line(error)}"
        ) from error
    finally:
        module.set_attn_implementation(hook.NAME)


@dataclass(slots=True)
class _Text:
    """A sequence of a run; its blocks hold whole blocks of its tokens, in order."""

    name: str
    tokens: list[int]
    blocks: list[int]
    first: int = 0
    logits: dict[int, Tensor] = field(default_factory=dict)

    def span(self, start: int, end: int) -> Span:
        request = Request(id=self.name, prompt_token_ids=tuple(self.tokens))
        sequence = Sequence(Group(request), 0, self.tokens[:end], watcher=None)
        sequence.block_table = self.blocks
        return Span(sequence, start, end - start)

    def scenario(self) -> Scenario:
        rows = sorted(self.logits)
        return Scenario(
            name=self.name,
            tokens=tuple(self.tokens),
            first=self.first,
            rows=tuple(rows),
            logits=torch.stack([self.logits[row] for row in rows]),
        )


@dataclass(frozen=True, slots=True)
class _Part:
    """Tokens [start, end) of a text in one step; the logits of the last `rows` are kept."""

    text: _Text
    start: int
    end: int
    rows: int = 0


class _Run:
    """Steps of texts over one cache, whose blocks are given out in order."""

    def __init__(
        self,
        module: Any,
        cache: PagedCache,
        backend: AttentionBackend,
        vocab_size: int,
        watch: LayerStates | None = None,
    ) -> None:
        self.config = module.config.get_text_config()
        self.longest = max_positions(self.config)
        self.cache = cache
        self.windows = hook.windows(module)
        self._module, self._backend, self._vocab_size = module, backend, vocab_size
        self._watch = watch
        self._device = next(module.parameters()).device
        self._generator = torch.Generator().manual_seed(0)
        self._used = 0

    def random(self, count: int) -> list[int]:
        """Tokens."""
        numbers: list[int] = torch.randint(
            self._vocab_size, (count,), generator=self._generator
        ).tolist()
        return numbers

    def blocks(self, tokens: int) -> list[int]:
        """Unused blocks for so many tokens."""
        first, self._used = self._used, self._used - (-tokens // self.cache.block_size)
        return list(range(first, self._used))

    def free(self) -> None:
        """Let the next texts have all blocks."""
        self._used = 0

    def text(self, name: str, tokens: list[int], first: int = 0) -> _Text:
        return _Text(name, tokens, self.blocks(len(tokens)), first)

    def step(self, *parts: _Part) -> None:
        spans = [part.text.span(part.start, part.end) for part in parts]
        batch = pack(spans, self.cache.block_size, self._device)
        kept, places = [], []
        for start, part in zip(batch.query_starts, parts, strict=True):
            for row in range(part.end - part.rows, part.end):
                kept.append(start + row - part.start)
                places.append((part.text, row))
        positions = [p.text.first + i for p in parts for i in range(p.start, p.end)]
        logits = self.logits(spans, positions, batch, kept)
        for (text, row), answer, place in zip(places, logits, kept, strict=True):
            text.logits[row] = answer
            if self._watch is not None:
                self._watch.keep(text.name, row, place)

    def logits(
        self, spans: list[Span], positions: list[int], batch: PackedBatch, kept: list[int]
    ) -> Tensor:
        """Of the step's rows `kept` [R, V]."""
        rows = self._tensor(kept)
        return run_packed(
            self._module,
            self._tensor([token for span in spans for token in span.tokens])[None],
            self._tensor(positions)[None],
            rows,
            PagedContext(self.cache, batch, self._backend, rows),
        ).float()

    def prefill(self, text: _Text, end: int) -> None:
        """The first tokens, in chunks."""
        for start in range(0, end, _CHUNK):
            self.step(_Part(text, start, min(start + _CHUNK, end)))

    def _tensor(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)


class _DryRun(_Run):
    """Computes nothing."""

    def logits(
        self, spans: list[Span], positions: list[int], batch: PackedBatch, kept: list[int]
    ) -> Tensor:
        return torch.empty(len(kept), 0)


def _turned(run: _Run) -> list[_Text]:
    """At the first rope positions, around the length that the rope was trained for, and at the
    last; four of the rows are those of a draft."""
    last = max(run.longest - _TURN, 0)
    originals = [length - _TURN // 2 for length in _original_lengths(run.config)]
    starts = sorted({0, last, *(start for start in originals if 0 < start < last)})
    count = min(_TURN, run.longest)
    texts = [
        run.text(f"positions from {start}", run.random(count), first=start) for start in starts
    ]
    draft = min(4, count)
    if draft < count:
        run.step(*(_Part(text, 0, count - draft, 1) for text in texts))
    run.step(*(_Part(text, count - draft, count, draft) for text in texts))
    run.free()
    return texts


def _windowed(run: _Run) -> list[_Text]:
    """Across the edge of each window."""
    texts = []
    for window in sorted(w for w in run.windows if w is not None):
        if window > _LARGEST_WINDOW or window + 9 > run.longest:
            continue
        text = run.text(f"edge of the window of {window}", run.random(window + 9))
        run.prefill(text, window - 1)
        run.step(_Part(text, window - 1, window + 5, 6))
        for place in range(window + 5, window + 9):
            run.step(_Part(text, place, place + 1, 1))
        run.free()
        texts.append(text)
    return texts


def _shared(run: _Run) -> list[_Text]:
    """Several rows that share whole blocks of a prefix, as cascade attends them."""
    if run.longest < MIN_TOKENS + 4:
        return []
    prefix = run.random(MIN_TOKENS)
    first = run.text("shared prefix, row 0", prefix + run.random(4))
    texts = [first]
    for index in range(1, MIN_ROWS):
        text = run.text(f"shared prefix, row {index}", prefix + run.random(4))
        whole = MIN_TOKENS // run.cache.block_size
        text.blocks = first.blocks[:whole] + text.blocks[whole:]
        texts.append(text)
    run.prefill(first, MIN_TOKENS)
    run.step(*(_Part(text, MIN_TOKENS, MIN_TOKENS + 3, 3) for text in texts))
    run.step(*(_Part(text, MIN_TOKENS + 3, MIN_TOKENS + 4, 1) for text in texts))
    run.free()
    return texts


def _copied(run: _Run) -> list[_Text]:
    """Two texts that part in the middle of a block, which the second gets a copy of."""
    shared, size = 20, run.cache.block_size
    if run.longest < shared + 3:
        return []
    prefix = run.random(shared)
    source, target = (
        run.text(f"copied block, {name}", prefix + run.random(3)) for name in ("source", "copy")
    )
    run.prefill(source, shared)
    run.step(_Part(source, shared, shared + 1, 1))
    whole = shared // size
    run.cache.copy_blocks([(source.blocks[whole], target.blocks[whole])])
    target.blocks = source.blocks[:whole] + target.blocks[whole:]
    run.step(_Part(target, shared, shared + 3, 3), _Part(source, shared + 1, shared + 3, 2))
    run.free()
    return [source, target]


def _preempted(run: _Run) -> list[_Text]:
    """A text that loses its blocks to another, and is computed again in other blocks."""
    count = 22
    if run.longest < count:
        return []
    lost, other = run.text("preempted", run.random(count)), run.random(count)
    run.prefill(lost, count - 2)
    thief = _Text("preempting", other, lost.blocks)
    lost.blocks = list(reversed(run.blocks(count)))
    run.step(_Part(thief, 0, count, 1), _Part(lost, 0, 9))
    run.step(_Part(lost, 9, count - 1, 1))
    run.step(_Part(lost, count - 1, count, 1))
    run.free()
    return [lost, thief]


def _original_lengths(config: Any) -> list[int]:
    """Positions that the model's ropes were trained for before they were stretched."""
    parameters = getattr(config, "rope_parameters", None) or {}
    layered = [value for value in parameters.values() if isinstance(value, dict)]
    found = [rope.get("original_max_position_embeddings") for rope in layered or [parameters]]
    found.append(getattr(config, "original_max_position_embeddings", None))
    return [length for length in found if length]
