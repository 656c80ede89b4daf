from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from executor.compiling import _PASSING_SECONDS, Compiler, Compiling, own_seconds
from executor.finite_grammar import FiniteGrammars
from executor.grammar import CompiledGrammar, GrammarError
from executor.request import Grammar, GrammarKind

TEA = Grammar(kind=GrammarKind.CHOICE, text='["tea"]')
COFFEE = Grammar(kind=GrammarKind.CHOICE, text='["coffee"]')


class Library(FiniteGrammars):
    """Counts what it compiles; `TEA` takes until it is let."""

    def __init__(self) -> None:
        super().__init__([bytes([byte]) for byte in range(256)], [])
        self.compiled: list[Grammar] = []
        self.began, self.let = threading.Event(), threading.Event()

    def compile(self, grammar: Grammar) -> Any:
        self.compiled.append(grammar)
        self.began.set()
        if grammar == TEA:
            assert self.let.wait(60)
        return super().compile(grammar)


class Clock:
    now = 0.0

    def watch(self) -> Callable[[], float]:
        began = self.now
        return lambda: self.now - began


def settled(compiler: Compiler, compiling: Compiling) -> CompiledGrammar:
    compiler.wait([compiling], 60)
    result = compiler.result(compiling)
    assert result is not None
    return result


def test_equal_grammars_are_compiled_once() -> None:
    library = Library()
    compiler = Compiler(library)
    first = settled(compiler, compiler.submit(COFFEE))
    again = Grammar(kind=GrammarKind.CHOICE, text='["coffee"]')
    assert settled(compiler, compiler.submit(again)) is first
    assert library.compiled == [COFFEE]


def test_a_grammar_that_takes_too_long_has_failed_for_everybody() -> None:
    library, clock = Library(), Clock()
    compiler = Compiler(library, seconds=2, watch=clock.watch)
    compiling = compiler.submit(TEA)
    assert library.began.wait(60)
    assert compiler.result(compiling) is None
    clock.now = 2.5
    with pytest.raises(GrammarError, match="took more than 2 seconds"):
        compiler.result(compiling)
    with pytest.raises(GrammarError, match="took more than 2 seconds"):
        compiler.result(compiler.submit(TEA))
    assert settled(compiler, compiler.submit(COFFEE))  # nobody waits for it
    library.let.set()


def test_the_time_of_a_grammar_begins_with_its_turn() -> None:
    library, clock = Library(), Clock()
    compiler = Compiler(library, seconds=2, watch=clock.watch)
    others = [Grammar(kind=GrammarKind.CHOICE, text=f'["{i}"]') for i in range(3)]
    waiting = [compiler.submit(grammar) for grammar in [TEA, *others]]
    clock.now = 100.0
    library.let.set()
    assert all(settled(compiler, compiling) for compiling in waiting[1:])


def test_a_failure_is_remembered_too() -> None:
    compiler = Compiler(Library())
    bad = Grammar(kind=GrammarKind.REGEX, text="a")
    for _ in range(2):
        with pytest.raises(GrammarError, match="regex is not a choice"):
            settled(compiler, compiler.submit(bad))


def test_what_the_machine_does_beside_is_no_time_of_the_grammars() -> None:
    started, let = threading.Event(), threading.Event()
    watches: list[Callable[[], float]] = []

    def waits() -> None:
        watches.append(own_seconds())
        started.set()
        let.wait(60)

    began = time.monotonic()
    thread = threading.Thread(target=waits)
    thread.start()
    assert started.wait(60)
    _compute(seconds=0.2)
    watched = watches[0]()
    # A busy machine may take seconds for this, and what passes counts for a little.
    assert watched < (time.monotonic() - began) / _PASSING_SECONDS + 0.05
    let.set()
    thread.join()


def test_what_a_thread_computes_is_seen_from_another() -> None:
    stop = threading.Event()
    watches: list[Callable[[], float]] = []

    def computes() -> None:
        watches.append(own_seconds())
        while not stop.is_set():
            pass

    thread = threading.Thread(target=computes)
    thread.start()
    while not watches or watches[0]() < 0.05:
        pass  # its own deadline is the test run's
    stop.set()
    thread.join()


def _compute(*, seconds: float) -> None:
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass
