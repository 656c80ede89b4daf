"""Embedding models of the catalogue as engines that are ready to run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from batchjobs.endpoints.base import EmbeddingFacts
from batchjobs.errors import ModelError
from batchjobs.model_defaults import ModelDefaults
from batchjobs.models import Model
from batchjobs.settings import Settings
from batchjobs.worker.engines import LoadedModel, engine_settings
from batchjobs.worker.fingerprints import fingerprint

if TYPE_CHECKING:
    from executor.embedding.build import ReadyEmbedder


def is_embedder(model: Model) -> bool:
    """Whether the model gives vectors. Raises ModelError when its files cannot be read."""
    from executor.embedding.recipe import find_recipe
    from executor.errors import EngineError
    from executor.loading import Checkpoint

    try:
        checkpoint = Checkpoint(source=model.source, revision=model.revision)
        return find_recipe(checkpoint) is not None
    except EngineError as error:
        raise ModelError(str(error)) from error


def load_embedder(model: Model, settings: Settings, *, profiled: bool) -> LoadedModel | None:
    """The model with its engine, None if it is no embedding model.

    Raises ModelError with the reason when it cannot run here.
    """
    from executor.embedding.build import build_embedder
    from executor.embedding.recipe import find_recipe
    from executor.errors import EngineError
    from executor.loading import Checkpoint

    checkpoint = Checkpoint(source=model.source, revision=model.revision)
    asked = engine_settings(settings)
    longest = ModelDefaults.of(model).max_model_len or asked.max_model_len
    try:
        recipe = find_recipe(checkpoint)
        if recipe is None:
            return None
        ready = build_embedder(
            checkpoint, recipe, replace(asked, max_model_len=longest), profiled=profiled
        )
    except EngineError as error:
        raise ModelError(str(error)) from error
    return _loaded(model, settings, ready)


def _loaded(model: Model, settings: Settings, ready: ReadyEmbedder) -> LoadedModel:
    from executor.number_types import name

    device = ready.device
    dtype = name(device.types.activations)
    limits = ready.engine.limits
    return LoadedModel(
        engine=ready.engine,
        tokenizer=ready.tokenizer,
        fingerprint=fingerprint(model, settings, ready.parts),
        cost=ready.cost,
        device=device,
        profile=ready.profile,
        embedding=EmbeddingFacts(
            encode_batch=ready.texts.encode_batch,
            dimensions=ready.dimensions,
            matryoshka=ready.recipe.matryoshka,
            prompts=ready.recipe.prompts,
            pools_prompt=ready.recipe.pools_prompt,
        ),
        decisions=(
            ("device", f"{device.device} ({device.device_reason})"),
            ("dtype", f"{dtype} ({device.types.reason})"),
            *_not_quantized(settings),
            ("threads", f"{device.num_threads} ({device.threads_reason})"),
            ("vectors", _describe(ready)),
            ("attention", "packed" if ready.is_packed else "the model's own, by length"),
            ("max_model_len", f"{limits.max_model_len:,} tokens"),
            ("max_num_seqs", f"{limits.max_num_seqs:,}"),
            ("max_num_batched_tokens", f"{limits.max_num_batched_tokens:,}"),
        ),
    )


def _not_quantized(settings: Settings) -> Iterator[tuple[str, str]]:
    if settings.quantization is not None:
        yield "quantization", f"none ({settings.quantization} is for models that generate text)"


def _describe(ready: ReadyEmbedder) -> str:
    """For example `384 numbers, pooled by mean, normalised`."""
    recipe = ready.recipe
    words = [f"{ready.dimensions:,} numbers", f"pooled by {' and '.join(recipe.modes)}"]
    if recipe.dense:
        words.append(f"{len(recipe.dense)} linear layers behind it")
    if recipe.normalizes:
        words.append("normalised")
    return ", ".join(words)
