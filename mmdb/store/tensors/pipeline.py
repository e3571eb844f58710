"""Work on many chunks by a few threads, in order, with a bounded number of them under way."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from typing import Generic, TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

#: Pieces of work under way at once for each thread: bounds the memory that they hold.
_AHEAD = 8


def batches(
    items: Iterable[_Item], size: Callable[[_Item], int], limit: int
) -> Iterator[list[_Item]]:
    """Yield items together until they reach a size: a thread should not be sent for each.

    >>> list(batches([1, 2, 9, 1], int, limit=3))
    [[1, 2], [9], [1]]
    """
    batch: list[_Item] = []
    total = 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total >= limit:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


#: Marks the pool's own threads: work that has work of its own done would wait for itself.
_inside = threading.local()


@cache
def shared_pool() -> ThreadPoolExecutor:
    """Return this process's threads for work on tensors: starting some takes a millisecond."""
    return ThreadPoolExecutor(
        max(2, len(os.sched_getaffinity(0))),
        "mmdb-tensors",
        initializer=lambda: setattr(_inside, "pool", True),
    )


def drop(pending: Iterable[Future[_Result]]) -> None:
    """Cancel what has not begun, and wait for what has."""
    begun = [future for future in pending if not future.cancel()]
    wait(begun)


class Pipeline(Generic[_Item, _Result]):
    """Applies one function to items by threads, or at once where there are none.

    numpy, zstandard, blake3 and torch leave Python's lock while they work on a chunk.
    """

    def __init__(self, work: Callable[[_Item], _Result], threads: int) -> None:
        self._work = work
        self._pool = shared_pool() if threads and not hasattr(_inside, "pool") else None
        self._window = threads * _AHEAD
        self._pending: deque[Future[_Result]] = deque()

    def feed(self, item: _Item) -> None:
        """Begin work on an item; waits, and raises what it raised, where too many are under way."""
        if self._pool is None:
            self._work(item)
            return
        self._pending.append(self._pool.submit(self._work, item))
        if len(self._pending) > self._window:
            self._pending.popleft().result()

    def finish(self) -> None:
        """Wait for what is under way; raises the first error."""
        while self._pending:
            self._pending.popleft().result()

    def map(self, items: Iterable[_Item]) -> Iterator[_Result]:
        """Yield the results in the order of the items."""
        for item in items:
            if self._pool is None:
                yield self._work(item)
                continue
            self._pending.append(self._pool.submit(self._work, item))
            if len(self._pending) > self._window:
                yield self._pending.popleft().result()
        while self._pending:
            yield self._pending.popleft().result()

    def close(self) -> None:
        """Drop what has not begun, and wait for what has: it writes into the caller's memory."""
        drop(self._pending)


@contextmanager
def pipeline(work: Callable[[_Item], _Result], threads: int) -> Iterator[Pipeline[_Item, _Result]]:
    """Return a pipeline whose work ends with the block."""
    made = Pipeline(work, threads)
    try:
        yield made
    finally:
        made.close()
