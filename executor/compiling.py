"""Grammars compiled beside the steps: equal ones once, and none for longer than it may take."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent import futures
from dataclasses import dataclass, field

from executor.grammar import CompiledGrammar, GrammarError, GrammarLibrary
from executor.request import Grammar

COMPILE_SECONDS = 10.0
"""Of computing that a grammar may take, once its turn has come."""
_PASSING_SECONDS = 12
"""That weigh as much as one of computing: something that waits for ever is not waited for."""
_KEPT = 512
_THREADS = 2
"""One grammar that takes its time does not keep the others waiting."""


@dataclass(slots=True, eq=False)
class Compiling:
    """A grammar on its way. `spent` says how many seconds were computed on it; it is None while
    that waits for a thread."""

    spent: Callable[[], float] | None = None
    late: GrammarError | None = None
    future: futures.Future[CompiledGrammar] = field(default_factory=futures.Future)


class Compiler:
    """Compiles in threads, and keeps what it has compiled lately by the grammar's content.

    What counts is what the thread computed: a machine that is busy with other work refuses no
    line for it. A thread that takes too long is not stopped, as threads cannot be; its grammar
    has failed all the same, at once for whoever asks for it again.
    """

    def __init__(
        self,
        library: GrammarLibrary,
        *,
        seconds: float = COMPILE_SECONDS,
        watch: Callable[[], Callable[[], float]] | None = None,
    ) -> None:
        self._library = library
        self._seconds = seconds
        self._watch = watch or own_seconds
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
        if compiling.spent is not None and compiling.spent() > self._seconds:
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
        compiling.spent = self._watch()
        return self._library.compile(grammar)


def own_seconds() -> Callable[[], float]:
    """A watch of what the calling thread computes from now on, for other threads to read while it
    lives. Time that merely passes counts a twelfth; where the system keeps no clock of a thread
    (macOS), as much."""
    began = time.monotonic()
    if not hasattr(time, "pthread_getcpuclockid"):
        return lambda: time.monotonic() - began
    clock = time.pthread_getcpuclockid(threading.get_ident())
    used = time.clock_gettime(clock)
    return lambda: max(
        time.clock_gettime(clock) - used, (time.monotonic() - began) / _PASSING_SECONDS
    )
