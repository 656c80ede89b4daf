"""What lines are given of sampling parameters that they leave out."""

from __future__ import annotations

from collections.abc import Mapping

from batchjobs.endpoints.samplers import check_model_sampling
from batchjobs.errors import InvalidRequestError, ModelError
from batchjobs.settings import Settings


def model_sampling(
    settings: Settings, own: Mapping[str, float], catalogue: Mapping[str, float]
) -> dict[str, float]:
    """By name; `own` is what the model's generation config says. What the catalogue says of the
    model goes before what the settings say of all, and that before the model's own.

    Raises ModelError where a value is none that a line could have.
    """
    model = own if settings.generation_config == "auto" else {}
    named = {
        "The model's generation config": model,
        "BATCHJOBS_OVERRIDE_GENERATION_CONFIG": settings.override_generation_config,
        "What the catalogue says of the model": catalogue,
    }
    for where, values in named.items():
        try:
            check_model_sampling(values)
        except InvalidRequestError as wrong:
            raise ModelError(f"{where} cannot be used: {wrong.message}") from wrong
    return {**model, **settings.override_generation_config, **catalogue}


def in_words(sampling: Mapping[str, float]) -> str:
    if not sampling:
        return "the public API's defaults"
    return ", ".join(f"{name} {value:g}" for name, value in sorted(sampling.items()))
