"""Items of an iterator, made by a thread before they are asked for."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Made(Generic[T]):
    item: T


@dataclass(frozen=True, slots=True)
class _End:
    error: BaseException | None = None


def made_ahead(items: Generator[T], most: int) -> Generator[T]:
    """`items` in order, at most `most` of them ahead.

    What making one raises is raised here in its place. Closing it waits for the item that is
    being made; then `items` is closed, in the thread that ran it.
    """
    made: SimpleQueue[_Made[T] | _End] = SimpleQueue()
    room, is_closed = Semaphore(most), Event()

    def make() -> None:
        try:
            with closing(items):
                # Room first, so that no item is made which nobody may ask for.
                while room.acquire() and not is_closed.is_set():
                    made.put(_Made(next(items)))
        except StopIteration:
            made.put(_End())
        except BaseException as error:
            made.put(_End(error))

    thread = Thread(target=copy_context().run, args=(make,), name="lines-ahead", daemon=True)
    thread.start()
    try:
        while isinstance(next_ := made.get(), _Made):
            room.release()
            yield next_.item
        if next_.error is not None:
            raise next_.error
    finally:
        is_closed.set()
        room.release()
        thread.join()
