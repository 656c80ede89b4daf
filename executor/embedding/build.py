"""From a checkpoint to an embedding engine that is ready and known to compute it right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from transformers import AutoModel

from executor.device import DevicePlan, plan_device
from executor.embedding import attention
from executor.embedding.batch import TextBatch
from executor.embedding.encoder import (
    ByLengthEncoder,
    Encoder,
    OwnVectors,
    PackedEncoder,
    choose_encoder,
    own_vectors,
)
from executor.embedding.engine import EmbeddingEngine
from executor.embedding.head import EmbeddingHead, load_head
from executor.embedding.recipe import EmbeddingRecipe, read_json
from executor.embedding.tokens import TextTokens
from executor.errors import EngineError
from executor.identity import engine_parts
from executor.layer_profile import watch_layers
from executor.loading import (
    Checkpoint,
    load_config,
    load_module,
    load_tokenizer,
    max_positions,
)
from executor.merging import optimize_linears
from executor.profile import Profile
from executor.request import PoolingParams
from executor.roofline import ModelCost
from executor.settings import EngineSettings, Limits
from executor.text import HfTokenizer

CPU_BATCHED_TOKENS = 2048
CUDA_BATCHED_TOKENS = 16384
"""Positions of a step: enough for large products, few enough to hear a stop in time."""

MAX_TEXTS = 1024
"""Of a step."""

MOST_TRIED = 1024
"""Tokens: learned positions are few, and longer texts cost too much to try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyEmbedder:
    """An embedding engine, its tokenizer, and what was decided about model and machine."""

    engine: EmbeddingEngine
    tokenizer: HfTokenizer
    texts: TextTokens
    recipe: EmbeddingRecipe
    dimensions: int
    device: DevicePlan
    is_packed: bool
    parts: Mapping[str, str]
    """What it computes with, for fingerprints (`identity.engine_parts`)."""
    cost: ModelCost
    profile: Profile | None


class EmbeddingModel:
    """Encoder and head; vectors leave as bytes."""

    def __init__(self, encoder: Encoder, head: EmbeddingHead) -> None:
        self._encoder = encoder
        self._head = head

    @torch.inference_mode()
    def embed(self, batch: TextBatch, wanted: Sequence[PoolingParams]) -> list[bytes | None]:
        vectors = self._head.vectors(self._encoder.hidden(batch), batch, wanted).cpu()
        finite = vectors.isfinite().all(dim=1).tolist()
        rows = vectors.numpy().astype("<f4", copy=False)
        return [
            row[: params.dimensions].tobytes() if is_finite else None
            for row, params, is_finite in zip(rows, wanted, finite, strict=True)
        ]


def build_embedder(
    checkpoint: Checkpoint,
    recipe: EmbeddingRecipe,
    settings: EngineSettings,
    *,
    profiled: bool = False,
) -> ReadyEmbedder:
    """Load the model, make it fast, check that its vectors are still its own.

    Raises:
        EngineError: the model or the settings cannot be used, with the reason.
    """
    if settings.reproducible:
        raise EngineError(
            "reproducible results are not possible for embeddings: their attention depends on the"
            " texts of a step. Leave BATCHJOBS_REPRODUCIBLE off for this model."
        )
    inner = replace(checkpoint, subfolder=recipe.transformer_path)
    module, device = _load_module(inner, settings)
    config = module.config.get_text_config()
    tokenizer = load_tokenizer(inner, vocab_size=config.vocab_size)
    cost = _cost(module, device.types.activations)
    encoder, own = _fast_encoder(module, config)
    head = load_head(checkpoint, recipe, hidden_size=own.hidden.shape[1], device=device.device)
    engine = EmbeddingEngine(
        EmbeddingModel(encoder, head),
        _limits(settings, _longest(checkpoint, recipe, config, encoder), device),
        causal=_is_causal(module),
    )
    return ReadyEmbedder(
        engine=engine,
        tokenizer=tokenizer,
        texts=TextTokens(tokenizer, lowercases=recipe.lowercases),
        recipe=recipe,
        dimensions=head.dimensions,
        device=device,
        is_packed=isinstance(encoder, PackedEncoder),
        parts=engine_parts(
            device, "packed" if isinstance(encoder, PackedEncoder) else "the model's own"
        ),
        cost=cost,
        profile=_watched(engine, module, device) if profiled else None,
    )


def _load_module(checkpoint: Checkpoint, settings: EngineSettings) -> tuple[Any, DevicePlan]:
    attention.register()
    config = load_config(checkpoint)
    device = plan_device(settings, None)
    torch.set_num_threads(device.num_threads)
    # Only what makes one vector of all tokens may be missing: the recipe's pooling does that.
    module = load_module(
        AutoModel,
        checkpoint,
        config,
        device.device,
        device.types.activations,
        may_miss="pooler.",
    )
    return module, device


def _fast_encoder(module: Any, config: Any) -> tuple[Encoder, OwnVectors]:
    own = own_vectors(module, config.vocab_size)
    # RoBERTa's family counts positions from behind the padding token's id on.
    offsets = [0, _pad_token_id(config) + 1]
    encoder = choose_encoder(module, own, offsets)
    if isinstance(encoder, PackedEncoder) and module.device.type == "cpu":
        probe = TextBatch.of(own.texts[:1])
        optimize_linears(module, lambda: encoder.hidden(probe))
        encoder = choose_encoder(module, own, [encoder.position_offset])
    return encoder, own


def _pad_token_id(config: Any) -> int:
    return getattr(config, "pad_token_id", None) or 0


def _longest(checkpoint: Checkpoint, recipe: EmbeddingRecipe, config: Any, encoder: Encoder) -> int:
    """Tokens of the longest text: what recipe, tokenizer and positions all allow.

    Where a model that is not packed begins to count is found out by trying.
    """
    said = read_json(checkpoint, recipe.transformer_path, "tokenizer_config.json") or {}
    bounds = [max_positions(config) - encoder.position_offset]
    bounds += [bound for bound in (recipe.max_tokens, said.get("model_max_length")) if bound]
    longest = int(min(bounds))
    if isinstance(encoder, ByLengthEncoder) and longest <= MOST_TRIED:
        pad = _pad_token_id(config)
        if not encoder.takes((pad + 1,) * longest):
            return longest - pad - 1
    return longest


def _limits(settings: EngineSettings, longest: int, device: DevicePlan) -> Limits:
    cuda = device.device.type == "cuda"
    budget = CUDA_BATCHED_TOKENS if cuda else CPU_BATCHED_TOKENS
    return Limits(
        max_num_seqs=settings.max_num_seqs or MAX_TEXTS,
        max_num_batched_tokens=settings.max_num_batched_tokens or budget,
        max_model_len=min(settings.max_model_len or longest, longest),
        num_blocks=0,
        block_size=1,
    )


def _is_causal(module: nn.Module) -> bool:
    return any(getattr(layer, "is_causal", False) for layer in module.modules())


def _cost(module: Any, dtype: torch.dtype) -> ModelCost:
    """Of a step's work (`roofline`): tables are looked up, not multiplied with."""
    config = module.config.get_text_config()
    tables = {id(m.weight) for m in module.modules() if isinstance(m, nn.Embedding)}
    body = sum(p.numel() for p in module.parameters() if p.dim() > 1 and id(p) not in tables)
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    attended = 4 * config.num_attention_heads * width * config.num_hidden_layers
    return ModelCost(
        body=body,
        head=0,
        attention=attended,
        weight_bytes=body * dtype.itemsize,
        kv_bytes=0,
    )


def _watched(engine: EmbeddingEngine, module: nn.Module, device: DevicePlan) -> Profile:
    cuda = device.device.type == "cuda"
    profile = Profile(settle=torch.cuda.synchronize if cuda else None)
    watch_layers(module, profile)
    engine.profile = profile
    return profile
