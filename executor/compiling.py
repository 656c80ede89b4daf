"""Grammars compiled beside the steps: equal ones once, and none for longer than it may take."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent import futures
from dataclasses import dataclass, field

from executor.grammar import CompiledGrammar, GrammarError, GrammarLibrary
from executor.request import Grammar

COMPILE_SECONDS = 10.0
"""That a grammar may take, once its turn has come."""
_KEPT = 512
_THREADS = 2
"""One grammar that takes its time does not keep the others waiting."""


@dataclass(slots=True, eq=False)
class Compiling:
    """A grammar on its way. `began_at` is None while it waits for a thread."""

    began_at: float | None = None
    late: GrammarError | None = None
    future: futures.Future[CompiledGrammar] = field(default_factory=futures.Future)


class Compiler:
    """Compiles in threads, and keeps what it has compiled lately by the grammar's content.

    A thread that takes too long is not stopped, as threads cannot be; its grammar has failed all
    the same, at once for whoever asks for it again.
    """

    def __init__(
        self,
        library: GrammarLibrary,
        *,
        seconds: float = COMPILE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._library = library
        self._seconds = seconds
        self._clock = clock
        self._threads = futures.ThreadPoolExecutor(_THREADS, thread_name_prefix="grammar")
        self._known: OrderedDict[Grammar, Compiling] = OrderedDict()

    def submit(self, grammar: Grammar) -> Compiling:
        """Compile it, unless an equal one is known."""
        known = self._known.get(grammar)
        if known is None:
            known = self._known[grammar] = Compiling()
            known.future = self._threads.submit(self._compile, grammar, known)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(grammar)
        return known

    def result(self, compiling: Compiling) -> CompiledGrammar | None:
        """What came of it; None while that is open. Raises GrammarError."""
        if compiling.late is not None:
            raise compiling.late
        if compiling.future.done():
            return compiling.future.result()
        began = compiling.began_at
        if began is not None and self._clock() - began > self._seconds:
            compiling.late = GrammarError(f"compiling it took more than {self._seconds:g} seconds")
            raise compiling.late
        return None

    def wait(self, compiling: Iterable[Compiling], seconds: float) -> None:
        """Until one of them is done, and no longer than `seconds`."""
        futures.wait(
            [one.future for one in compiling],
            timeout=seconds,
            return_when=futures.FIRST_COMPLETED,
        )

    def _compile(self, grammar: Grammar, compiling: Compiling) -> CompiledGrammar:
        compiling.began_at = self._clock()
        return self._library.compile(grammar)
