"""What the engine may use, as asked for and as decided for this machine and model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Quantization = Literal["int8"]
SchedulingPolicy = Literal["auto", "fcfs", "priority", "shortest_first", "longest_first", "prefix"]
Batching = Literal["continuous", "static"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Names and meanings are vLLM's; None lets the machine or the model decide, and has no
    `quantization`.

    `device` is "cpu", "cuda" or "cuda:N"; `dtype` "float32", "bfloat16" or "float16".
    `kv_cache_memory` is in bytes, `block_size` in tokens, the `max_*` in what they name.
    `reproducible` makes the bits of a result depend on its request alone, which is slower.
    """

    device: str | None = None
    dtype: str | None = None
    quantization: Quantization | None = None
    num_threads: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    kv_cache_memory: int | None = None
    max_model_len: int | None = None
    block_size: int | None = None
    attention_backend: str | None = None
    enable_prefix_caching: bool = True
    scheduling_policy: SchedulingPolicy = "auto"
    batching: Batching = "continuous"
    request_timeout_seconds: float | None = None
    num_speculative_tokens: int = 8
    prompt_lookup_min: int = 2
    prompt_lookup_max: int = 8
    reproducible: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Names are vLLM's: at most `num_speculative_tokens` guesses at a time, after matches of at
    least `prompt_lookup_min` and at most `prompt_lookup_max` tokens."""

    num_speculative_tokens: int = 8
    prompt_lookup_min: int = 2
    prompt_lookup_max: int = 8

    def __post_init__(self) -> None:
        if self.num_speculative_tokens < 1:
            raise ValueError("num_speculative_tokens must be at least 1")
        if not 1 <= self.prompt_lookup_min <= self.prompt_lookup_max:
            raise ValueError("prompt_lookup_min must be at least 1, prompt_lookup_max not below it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """How the engine orders and shares work; none of it changes an answer.

    | `policy` | who is next among those that wait |
    |---|---|
    | `auto` | groups with a common prefix together, long answers first; at the end longest first |
    | `fcfs` | who came first |
    | `priority` | the lowest `Request.priority`, then who came first |
    | `shortest_first`, `longest_first` | by the expected length of the answer |
    | `prefix` | groups with a common prefix together, in order of arrival |

    `batching` "static" keeps a batch until its longest answer ends, and shares nothing.
    `max_num_waiting` requests, or `max_waiting_tokens` of their prompts, are looked at ahead;
    None is 4 for each that can run. `deduplicate` computes equal requests once.
    Answers are taken for `expected_tokens` long until some have ended.
    `request_timeout_seconds` limits those that name no time of their own. Where `step_seconds`
    are given, steps grow beyond `max_num_batched_tokens` while they last no longer, if the time
    of those before says that it pays. `speculation` guesses
    tokens from what stands in prompt and answer already, where that pays; None does not.
    """

    policy: SchedulingPolicy = "auto"
    batching: Batching = "continuous"
    enable_prefix_caching: bool = True
    deduplicate: bool = True
    max_num_waiting: int | None = None
    max_waiting_tokens: int = 1 << 20
    expected_tokens: int = 256
    request_timeout_seconds: float | None = None
    step_seconds: float | None = None
    speculation: Speculation | None = None

    def __post_init__(self) -> None:
        for value, kind in ((self.policy, SchedulingPolicy), (self.batching, Batching)):
            if value not in get_args(kind):
                raise ValueError(f"{value!r} is not one of {', '.join(get_args(kind))}")

    @property
    def shares_prefixes(self) -> bool:
        return self.enable_prefix_caching and self.batching == "continuous"

    @property
    def shares_answers(self) -> bool:
        return self.deduplicate and self.batching == "continuous"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a step and the cache can hold. A sequence of `max_model_len` tokens always fits.

    No blocks are no cache: embedding models compute every text whole, in one step.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    num_blocks: int
    block_size: int

    def __post_init__(self) -> None:
        if self.num_blocks and self.num_blocks * self.block_size < self.max_model_len:
            raise ValueError(
                f"{self.num_blocks} blocks of {self.block_size} tokens cannot hold one sequence "
                f"of max_model_len={self.max_model_len} tokens"
            )
        if min(self.max_num_seqs, self.max_num_batched_tokens) < 1:
            raise ValueError("max_num_seqs and max_num_batched_tokens must be at least 1")
