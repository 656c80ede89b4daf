"""Grammars by llguidance: an Earley parser over regular-expression derivatives, and a walk of the
vocabulary as a trie (github.com/guidance-ai/llguidance)."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from collections.abc import Sequence as Many
from typing import Any, Protocol

from llguidance import LLExecutor, LLMatcher, LLTokenizer, regex_to_lark
from llguidance.gbnf_to_lark import any_to_lark
from llguidance.numpy import fill_next_token_bitmask_par

from executor.grammar import GrammarError, Mask, Matcher
from executor.json_schema import read_schema
from executor.request import Grammar, GrammarKind

_COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_SILENT = 0


class GrammarTokenizer(Protocol):
    """The part of a tokenizer that grammars need."""

    @property
    def eos_token_ids(self) -> frozenset[int]: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def special_token_ids(self) -> frozenset[int]:
        """Tokens that stand for no text."""

    @property
    def serialized(self) -> str | None:
        """As `tokenizers` writes it; None for one that is not of that library."""

    def token_bytes(self, token_id: int) -> bytes: ...


class LLGuidance:
    """Takes the vocabulary apart at the first grammar, which takes about a second for a large one.

    Byte-level and byte-fallback tokenizers are read as `tokenizers` writes them, others by the
    bytes of their tokens.
    """

    def __init__(self, tokenizer: GrammarTokenizer) -> None:
        self.vocab_size = tokenizer.vocab_size
        self._source = tokenizer
        self._tokenizer: LLTokenizer | None = None
        self._lock = threading.Lock()
        self._executor = LLExecutor()

    def compile(self, grammar: Grammar) -> LLGrammar:
        vocabulary = self._vocabulary()
        matcher = LLMatcher(vocabulary, _written(grammar), log_level=_SILENT)
        if matcher.is_error():
            part = _blame(vocabulary, grammar)
            raise GrammarError(_reason(matcher.get_error()), part=part)
        return LLGrammar(matcher)

    def fill(self, matchers: Many[Matcher], mask: Mask) -> None:
        rows = []
        for row, matcher in enumerate(matchers):
            assert isinstance(matcher, LLGrammarMatcher)
            rows.append((matcher.inner, row))
        fill_next_token_bitmask_par(self._executor, rows, mask)

    def _vocabulary(self) -> LLTokenizer:
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = _vocabulary_of(self._source)
            return self._tokenizer


class LLGrammar:
    """A matcher that has seen nothing, to be copied."""

    def __init__(self, fresh: LLMatcher) -> None:
        self._fresh = fresh

    def matcher(self) -> LLGrammarMatcher:
        return LLGrammarMatcher(self._fresh.deep_copy())


class LLGrammarMatcher:
    """One answer; `inner` is the library's own."""

    def __init__(self, inner: LLMatcher) -> None:
        self.inner = inner

    @property
    def is_stopped(self) -> bool:
        return self.inner.is_stopped()

    @property
    def error(self) -> str | None:
        return _reason(self.inner.get_error()) if self.inner.is_error() else None

    def accept(self, token: int) -> bool:
        return self.inner.consume_token(token)

    def forced(self) -> list[int]:
        return self.inner.compute_ff_tokens()


class _Bytes:
    """What llguidance asks of a tokenizer that it cannot read itself."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokenizer: GrammarTokenizer) -> None:
        self.eos_token_id = min(tokenizer.eos_token_ids)
        self.special_token_ids = sorted(tokenizer.special_token_ids)
        self.tokens = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]
        special = tokenizer.special_token_ids
        self._ids = {data: token for token, data in enumerate(self.tokens) if token not in special}
        self._longest = max(map(len, self._ids))

    def __call__(self, text: str) -> list[int]:
        """The longest token at every place: the tokenizer itself may put a space before a text
        that goes on within an answer. Ends where there is no token."""
        data = text.encode()
        found: list[int] = []
        while data:
            lengths = range(min(self._longest, len(data)), 0, -1)
            length = next((n for n in lengths if data[:n] in self._ids), None)
            if length is None:
                break
            found.append(self._ids[data[:length]])
            data = data[length:]
        return found


def _vocabulary_of(tokenizer: GrammarTokenizer) -> LLTokenizer:
    if not tokenizer.eos_token_ids:
        raise GrammarError("the model names no token that ends an answer")
    options: dict[str, Any] = {
        "n_vocab": tokenizer.vocab_size,
        "eos_token": sorted(tokenizer.eos_token_ids),
    }
    reason = ""
    for form in _forms(tokenizer):
        try:
            return LLTokenizer(form, **options)
        except Exception as error:
            reason = _reason(str(error))
    raise GrammarError(f"the model's tokenizer cannot be constrained: {reason}")


def _forms(tokenizer: GrammarTokenizer) -> Iterator[Any]:
    if tokenizer.serialized is not None:
        yield tokenizer.serialized
    yield _Bytes(tokenizer)


def _written(grammar: Grammar) -> str:
    """The grammar and its parts as llguidance reads them."""
    parts = [{"name": name} | _part(name, part) for name, part in _parts(grammar)]
    return json.dumps({"grammars": [_alone(grammar), *parts]})


def _parts(grammar: Grammar) -> Iterator[tuple[str, Grammar]]:
    for name, part in grammar.parts:
        yield name, part
        yield from _parts(part)


def _part(name: str, part: Grammar) -> dict[str, Any]:
    try:
        return _alone(part)
    except GrammarError as error:
        raise GrammarError(str(error), part=name) from error


def _blame(vocabulary: LLTokenizer, grammar: Grammar) -> str:
    """The part that is wrong in itself, if one is; of parts within parts the innermost."""
    for name, part in reversed(list(_parts(grammar))):
        if LLMatcher(vocabulary, _written(part), log_level=_SILENT).is_error():
            return name
    return ""


def _alone(grammar: Grammar) -> dict[str, Any]:
    match grammar.kind:
        case GrammarKind.JSON_SCHEMA:
            return {"json_schema": _schema(grammar)}
        case GrammarKind.REGEX:
            return {"lark_grammar": _regex(grammar.text)}
        case GrammarKind.CHOICE:
            return {"lark_grammar": _choice(json.loads(grammar.text))}
        case GrammarKind.LARK:
            return {"lark_grammar": _lark(grammar.text)}


def _schema(grammar: Grammar) -> Any:
    schema = read_schema(grammar.text, lenient=grammar.lenient)
    if schema is True:
        schema = {}
    if schema is False:
        raise GrammarError("no answer satisfies the schema 'false'")
    options: dict[str, Any] = _COMPACT | {"lenient": grammar.lenient}
    if grammar.lenient:
        options["coerce_one_of"] = True
    if grammar.whitespace is not None:
        options = {"lenient": grammar.lenient, "whitespace_pattern": grammar.whitespace}
    return schema | {"x-guidance": options}


def _regex(text: str) -> str:
    """The whole answer is matched, as if between `^` and `$`, which the library does not know;
    `\\d` and `\\w` are ASCII's, as in JSON schemas."""
    text = text.removeprefix("^")
    if text.endswith("$") and (len(text) - len(text[:-1].rstrip("\\"))) % 2:
        text = text[:-1]
    return f"start: /{regex_to_lark(text, 'dw')}/"


def _choice(choices: list[str]) -> str:
    if not choices:
        raise GrammarError("there is nothing to choose from")
    return "start: " + " | ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)


def _lark(text: str) -> str:
    try:
        return any_to_lark(text)
    except Exception as error:
        raise GrammarError(_reason(str(error))) from error


_SOURCE_LINE = re.compile(r"^\s*(\d+ \||\^+)")


def _reason(message: str) -> str:
    """The library's message on one line, without the source that it shows."""
    first, _, cause = message.rpartition("\nerror: ")
    if first:
        where = first.splitlines()[0].partition("regex parse error")[0].rstrip(": ")
        return f"{where or 'invalid regex'}: {cause.splitlines()[0]}"
    lines = [line for line in message.splitlines() if not _SOURCE_LINE.match(line)]
    return " ".join(" ".join(lines).split()).rstrip(".")
