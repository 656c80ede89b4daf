"""Whether a token is the last of an answer, and what the answer then is."""

from __future__ import annotations

from executor.request import Choice, FinishReason
from executor.sequence import Sequence
from executor.text import Detokenizer


def ending(sequence: Sequence, token: int, tokenizer: Detokenizer) -> Choice | None:
    """The finished answer if `token`, which the sequence has already, is its last."""
    params = sequence.request.sampling
    generated = sequence.num_generated
    is_whole = sequence.matcher is not None and sequence.matcher.is_stopped
    if token in tokenizer.eos_token_ids and (is_whole or not params.ignore_eos):
        return finish(sequence, FinishReason.STOP, tokenizer, keep=generated - 1)
    if token in params.stop_token_ids:
        keep = generated if params.include_stop_str_in_output else generated - 1
        return finish(sequence, FinishReason.STOP, tokenizer, keep=keep)
    if sequence.watcher is not None:
        watching = generated >= params.min_tokens
        cut = sequence.watcher.step(token, watching=watching)
        if cut is not None:
            keep = sequence.watcher.tokens_before(cut)
            text = sequence.watcher.text[:cut]
            return finish(sequence, FinishReason.STOP, tokenizer, keep=keep, text=text)
    if is_whole:
        return finish(sequence, FinishReason.STOP, tokenizer, keep=generated)
    if generated >= params.max_tokens:
        return finish(sequence, FinishReason.LENGTH, tokenizer, keep=generated)
    return None


def finish(
    sequence: Sequence,
    reason: FinishReason,
    tokenizer: Detokenizer,
    *,
    keep: int,
    text: str | None = None,
) -> Choice:
    """The answer as it is, of which the first `keep` tokens remain."""
    token_ids = tuple(sequence.generated[:keep])
    has_logprobs = sequence.request.sampling.logprobs is not None
    return Choice(
        index=sequence.index,
        token_ids=token_ids,
        text=tokenizer.decode(token_ids) if text is None else text,
        finish_reason=reason,
        generated_tokens=sequence.num_generated,
        logprobs=tuple(sequence.logprobs[:keep]) if has_logprobs else None,
    )
