"""What the engine may use, as asked for and as decided for this machine and model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Names and meanings are vLLM's; None lets the machine or the model decide.

    `device` is "cpu", "cuda" or "cuda:N"; `dtype` "float32", "bfloat16" or "float16".
    `kv_cache_memory` is in bytes, `block_size` in tokens, the `max_*` in what they name.
    """

    device: str | None = None
    dtype: str | None = None
    num_threads: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    kv_cache_memory: int | None = None
    max_model_len: int | None = None
    block_size: int | None = None
    attention_backend: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a step and the cache can hold. A sequence of `max_model_len` tokens always fits."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    num_blocks: int
    block_size: int

    def __post_init__(self) -> None:
        if self.num_blocks * self.block_size < self.max_model_len:
            raise ValueError(
                f"{self.num_blocks} blocks of {self.block_size} tokens cannot hold one sequence "
                f"of max_model_len={self.max_model_len} tokens"
            )
        if min(self.max_num_seqs, self.max_num_batched_tokens) < 1:
            raise ValueError("max_num_seqs and max_num_batched_tokens must be at least 1")
