"""The engine's answers with a grammar: compiled before they run, masked while they do."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Many

from executor.compiling import Compiler, Compiling
from executor.grammar import CompiledGrammar, GrammarError, GrammarLibrary, Matcher
from executor.masks import Masks, MaskThread
from executor.sequence import Group, Sequence

_GLANCE_SECONDS = 0.1
"""At grammars being compiled, where there is nothing else to do."""


class Constraints:
    """Holds groups back while their grammars are compiled, and keeps sequences to theirs."""

    def __init__(self, library: GrammarLibrary | None, eos_token_ids: Many[int]) -> None:
        self._compiler = None if library is None else Compiler(library)
        self._masks = None if library is None else MaskThread(library, eos_token_ids)
        self._held: dict[Group, Compiling] = {}

    def __len__(self) -> int:
        """How many groups are held back."""
        return len(self._held)

    @property
    def knows_grammars(self) -> bool:
        return self._compiler is not None

    def hold(self, group: Group) -> None:
        """Keep the group until its grammar is compiled."""
        grammar = group.request.sampling.grammar
        assert grammar is not None
        assert self._compiler is not None
        self._held[group] = self._compiler.submit(grammar)

    def drop(self, group: Group) -> None:
        """It is no longer wanted; one that is not held is not looked for."""
        self._held.pop(group, None)

    def released(self) -> Iterator[tuple[Group, CompiledGrammar | GrammarError]]:
        """The held groups whose grammar is compiled, or never will be."""
        for group, compiling in list(self._held.items()):
            result = self._result(compiling)
            if result is not None:
                del self._held[group]
                yield group, result

    def wait(self) -> bool:
        """For a held group's grammar, but not for long; False if none is held."""
        if self._compiler is not None:
            self._compiler.wait(self._held.values(), _GLANCE_SECONDS)
        return bool(self._held)

    def begin_masks(self, ready: Many[Sequence]) -> Masks | None:
        """Find out, beside the forward pass, with what the sequences may go on."""
        if self._masks is None or all(sequence.matcher is None for sequence in ready):
            return None
        return self._masks.begin(ready, _goes_on)

    def _result(self, compiling: Compiling) -> CompiledGrammar | GrammarError | None:
        assert self._compiler is not None
        try:
            return self._compiler.result(compiling)
        except GrammarError as error:
            return error


def advance(sequence: Sequence, sampled: int) -> Iterator[int]:
    """The sampled token and those that its grammar forces behind it, as the caller takes them:
    none behind the answer's last. With log-probabilities every token is computed by itself.

    Raises:
        GrammarError: the library does not go on, or the token is none that it allows.
    """
    matcher = sequence.matcher
    if matcher is None:
        yield sampled
        return
    yield _accepted(matcher, sampled)
    if sequence.request.sampling.logprobs is None:
        for token in matcher.forced():
            yield _accepted(matcher, token)


def _accepted(matcher: Matcher, token: int) -> int:
    if matcher.error is not None:
        raise GrammarError(matcher.error)
    if not matcher.accept(token):
        # Nothing else is sampled unless the mask and other parameters leave nothing at all.
        raise GrammarError("other parameters of the request leave nothing that it allows")
    return token


def _goes_on(sequence: Sequence) -> bool:
    params = sequence.request.sampling
    return params.ignore_eos or sequence.num_generated < params.min_tokens
