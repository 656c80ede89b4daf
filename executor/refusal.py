"""Why a request can never run, whatever else does."""

from __future__ import annotations

from executor.request import Request
from executor.settings import Limits


def refusal(request: Request, limits: Limits, knows_grammars: bool) -> str | None:
    """The reason as a sentence, or None for one that can."""
    prompt, asked = len(request.prompt_token_ids), request.sampling.max_tokens
    if prompt == 0:
        return "the prompt is empty"
    if request.sampling.grammar is not None and not knows_grammars:
        return "this engine knows no grammars"
    if prompt + asked > limits.max_model_len:
        return (
            f"{prompt} prompt tokens and max_tokens={asked} exceed "
            f"max_model_len={limits.max_model_len}"
        )
    return None
