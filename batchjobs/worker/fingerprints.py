"""`system_fingerprint`: whether two answers come of the same model in the same shape."""

from __future__ import annotations

import hashlib

from batchjobs import __version__
from batchjobs.model_defaults import ModelDefaults
from batchjobs.models import Model
from batchjobs.settings import Settings


def fingerprint(
    model: Model, dtype: str, settings: Settings, *, quantization: str | None = None
) -> str:
    """Changes with whatever may change an answer: weights, number type, engine version, and what
    lines are given that they leave out (the model's own being part of its revision). One of
    quantized weights says so."""
    words = f"{model.source}@{model.revision} {dtype} batchjobs {__version__}"
    if settings.generation_config != "auto" or settings.override_generation_config:
        override = sorted(settings.override_generation_config.items())
        words += f" {settings.generation_config} {override}"
    defaults = ModelDefaults.of(model)
    if defaults != ModelDefaults():
        words += f" {defaults}"
    digest = hashlib.blake2b(words.encode(), digest_size=5).hexdigest()
    return f"fp_{digest}" if quantization is None else f"fp_{digest}_{quantization}"
