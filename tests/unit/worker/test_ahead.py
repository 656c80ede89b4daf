from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import closing
from threading import Event

import pytest

from batchjobs.worker.ahead import made_ahead


def test_items_come_in_order_from_another_thread() -> None:
    threads = set()

    def items() -> Generator[int]:
        for number in range(100):
            threads.add(threading.current_thread())
            yield number

    assert list(made_ahead(items(), 7)) == list(range(100))
    assert threading.current_thread() not in threads
    assert not any(thread.is_alive() for thread in threads)


def test_no_more_are_made_than_may_be_ahead() -> None:
    made = 0
    is_full = Event()

    def items() -> Generator[int]:
        nonlocal made
        for number in range(100):
            made += 1
            if made == 5:
                is_full.set()
            yield number

    with closing(made_ahead(items(), 4)) as lines:
        assert next(lines) == 0
        assert is_full.wait(10)
        assert made <= 5
        assert next(lines) == 1
    assert made <= 6


def test_error_comes_in_its_place() -> None:
    def items() -> Generator[int]:
        yield 1
        raise OSError("the store is gone")

    lines = made_ahead(items(), 10)
    assert next(lines) == 1
    with pytest.raises(OSError, match="the store is gone"):
        next(lines)


def test_closing_ends_the_thread_and_closes_what_it_read() -> None:
    is_closed = Event()
    thread: list[threading.Thread] = []

    def items() -> Generator[int]:
        thread.append(threading.current_thread())
        try:
            yield from range(1_000_000)
        finally:
            assert threading.current_thread() is thread[0]
            is_closed.set()

    lines = made_ahead(items(), 3)
    assert next(lines) == 0
    lines.close()
    assert is_closed.is_set()
    assert not thread[0].is_alive()
