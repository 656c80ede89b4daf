"""Slow reads begun before they are needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def read_ahead(load: Callable[[T], R], items: Iterable[T], *, most: int) -> Iterator[R]:
    """`load` of each item, in order; at most so many are under way or wait to be taken. Raises
    what `load` raises, at its turn."""
    loading: deque[Future[R]] = deque()
    with ThreadPoolExecutor(most, thread_name_prefix="read-ahead") as pool:
        try:
            for item in items:
                loading.append(pool.submit(load, item))
                if len(loading) == most:
                    yield loading.popleft().result()
            while loading:
                yield loading.popleft().result()
        finally:
            for future in loading:
                future.cancel()
