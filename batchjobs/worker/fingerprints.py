"""`system_fingerprint`: whether two answers come of the same model in the same shape."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from batchjobs import __version__
from batchjobs.model_defaults import ModelDefaults
from batchjobs.models import Model
from batchjobs.settings import Settings


def fingerprint(
    model: Model,
    settings: Settings,
    engine: Mapping[str, str],
    *,
    quantization: str | None = None,
) -> str:
    """Changes with whatever may change an answer: weights, each of the `engine`'s parts
    (`executor.identity`), version, and what lines are given that they leave out (the model's own
    being part of its revision). One of quantized weights says so."""
    parts = {
        "model": f"{model.source}@{model.revision}",
        "batchjobs": __version__,
        "sampling": [settings.generation_config, settings.override_generation_config],
        "defaults": str(ModelDefaults.of(model)),
        "engine": dict(engine),
    }
    words = json.dumps(parts, sort_keys=True)
    digest = hashlib.blake2b(words.encode(), digest_size=5).hexdigest()
    return f"fp_{digest}" if quantization is None else f"fp_{digest}_{quantization}"
