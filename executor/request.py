"""The values that go into the engine and come out of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from math import inf


class FinishReason(StrEnum):
    STOP = "stop"
    """An end-of-sequence token, a stop string, or the end of the grammar."""
    LENGTH = "length"
    """`max_tokens` were generated."""
    TIMEOUT = "timeout"
    """The request's time was up. No word of the public API: endpoints make an error of it."""


class GrammarKind(StrEnum):
    """In which language a grammar is written."""

    JSON_SCHEMA = "json_schema"
    """A JSON schema, as JSON text."""
    REGEX = "regex"
    """A regular expression of the whole answer, in the syntax of Rust's `regex`."""
    CHOICE = "choice"
    """A JSON array of strings, of which the answer is one."""
    LARK = "lark"
    """Lark as llguidance reads it, or llama.cpp's GBNF. `@name` stands for another of `parts`,
    `<[7]>` for the special token 7."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """What an answer must be. The text is checked when it is compiled, in the engine.

    JSON is written on one line, with one space behind `:` and `,`; `whitespace`, a regular
    expression, is what may stand between its tokens instead. `lenient` leaves out what the
    library does not know of a schema, where it would be refused otherwise.
    """

    kind: GrammarKind
    text: str
    parts: tuple[tuple[str, Grammar], ...] = ()
    whitespace: str | None = None
    lenient: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to turn logits into tokens; names and meanings are vLLM's.

    `temperature` 0 is greedy. `top_k` 0 and `top_p` 1 keep every token. `min_p` drops tokens less
    likely than that share of the likeliest. `seed` keys a counter-based generator of this
    request alone, so that equal seeds give equal answers in any company. `logprobs` None returns
    none, k returns each sampled token's log-probability and the k likeliest alternatives, taken
    from the raw logits; `prompt_logprobs` does the same for the prompt's tokens. `max_tokens`
    counts generated tokens, and may be 0 for the prompt's log-probabilities alone; no stop
    applies before `min_tokens` of them. `ignore_eos` lets end-of-sequence tokens pass as
    ordinary ones; those of `stop_token_ids` end an answer as well. Neither they nor a stop string
    are part of it, unless `include_stop_str_in_output`. With a `grammar` only what it allows is
    sampled, and the answer ends where it must: that is before `min_tokens`, if need be.

    `presence_penalty` and `frequency_penalty` are taken from the logits of generated tokens, once
    and for each time; `repetition_penalty` divides those of all tokens so far, the prompt's too
    (multiplies them where they are negative). `logit_bias` are pairs of a token id and what is
    added; `allowed_token_ids` are the only ones that may come.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_token_ids: tuple[int, ...] | None = None
    seed: int = 0
    max_tokens: int = 16
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    grammar: Grammar | None = None

    def __post_init__(self) -> None:
        _check(self.temperature >= 0, "temperature must be at least 0")
        _check(0 < self.top_p <= 1, "top_p must be in (0, 1]")
        _check(self.top_k >= 0, "top_k must be at least 0")
        _check(0 <= self.min_p <= 1, "min_p must be in [0, 1]")
        _check(abs(self.presence_penalty) <= 2, "presence_penalty must be in [-2, 2]")
        _check(abs(self.frequency_penalty) <= 2, "frequency_penalty must be in [-2, 2]")
        _check(0 < self.repetition_penalty < inf, "repetition_penalty must be above 0")
        _check(all(abs(b) <= 100 for _, b in self.logit_bias), "logit_bias is in [-100, 100]")
        _check(self.allowed_token_ids != (), "allowed_token_ids must not be empty")
        _check(self.max_tokens >= 0, "max_tokens must be at least 0")
        _check(0 <= self.min_tokens <= self.max_tokens, "min_tokens must be in [0, max_tokens]")
        _check(self.n >= 1, "n must be at least 1")
        _check((self.logprobs or 0) >= 0, "logprobs must be at least 0")
        _check((self.prompt_logprobs or 0) >= 0, "prompt_logprobs must be at least 0")
        _check(all(self.stop), "a stop string must not be empty")

    @property
    def penalizes(self) -> bool:
        """Whether a token's chance depends on which ones there are already."""
        penalties = (self.presence_penalty, self.frequency_penalty, self.repetition_penalty - 1)
        return any(penalties)

    @property
    def changes_logits(self) -> bool:
        """Whether tokens are chosen by other logits than the model's own."""
        return self.penalizes or bool(self.logit_bias) or self.allowed_token_ids is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingParams:
    """What to make of an embedding; names and meanings are vLLM's.

    `dimensions` keeps the first so many numbers (Matryoshka, Kusupati et al., NeurIPS'22).
    `use_activation` says whether its length becomes 1, None leaves that to the model.
    """

    dimensions: int | None = None
    use_activation: bool | None = None

    def __post_init__(self) -> None:
        _check(self.dimensions is None or self.dimensions >= 1, "dimensions must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One prompt. `id` is the caller's and comes back with the completion, nothing else is made
    of it; `prompt_token_ids` has at least one token. The lowest `priority` is first, where the
    policy asks for it. After `timeout_seconds` of running it ends with what it has. With
    `pooling` it asks an embedding model for a vector, and `sampling` says nothing."""

    id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    pooling: PoolingParams | None = None
    priority: int = 0
    timeout_seconds: float | None = None

    def __post_init__(self) -> None:
        positive = self.timeout_seconds is None or self.timeout_seconds > 0
        _check(positive, "timeout_seconds must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """Natural log-probability of a token at one position, and of the likeliest there.

    `rank` is 1 for the likeliest token. `top` holds (token id, log-probability) pairs, likeliest
    first.
    """

    token_id: int
    logprob: float
    rank: int = 1
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of a request's n answers. `token_ids` leave out the end-of-sequence token that ended
    it and whatever a stop string cut off; `text` is their decoded form without special tokens.
    `generated_tokens` counts everything sampled, which is what usage reports."""

    index: int
    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason
    generated_tokens: int
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What became of a request: `choices` in index order, `embedding` (little-endian float32),
    or `error`, a sentence, with an `error_code` if it is not the request that is wrong.

    `prompt_logprobs`, where asked for, are of all the prompt's tokens but the first.
    Where the grammar is to blame, `error` is the library's reason, and `grammar_part` the part
    in question, empty for all of it.

    `cached_tokens` of the prompt were not computed for it, but for another request: how many
    depends on the company it was in, so that they are no part of what makes answers equal.
    """

    request_id: str
    prompt_tokens: int
    choices: tuple[Choice, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None
    embedding: bytes | None = None
    cached_tokens: int = field(default=0, compare=False)
    error: str | None = None
    error_code: str | None = None
    grammar_part: str | None = None

    @property
    def completion_tokens(self) -> int:
        return sum(choice.generated_tokens for choice in self.choices)


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)
