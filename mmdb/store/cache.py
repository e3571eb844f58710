"""What was read and never changes, kept within a limit of bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Cache(Generic[_Key, _Value]):
    """Values by key, the least recently used going first; for any number of threads.

    >>> cache = Cache[str, int](limit_bytes=10)
    >>> for key, size in [("a", 4), ("b", 4), ("a", 4), ("c", 4)]:
    ...     _ = cache.get(key) or cache.put(key, size, size)
    >>> [cache.get(key) for key in "abc"]
    [4, None, 4]
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size_bytes = 0
        self._kept: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: _Key) -> _Value | None:
        """Return a value that is kept."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: _Key, value: _Value, size: int) -> None:
        """Keep a value of so many bytes; one above the limit is kept alone."""
        with self._lock:
            self._drop(key)
            self._kept[key] = (value, size)
            self.size_bytes += size
            while self.size_bytes > self.limit_bytes and len(self._kept) > 1:
                self._drop(next(iter(self._kept)))

    def forget(self, key: _Key) -> None:
        """Keep a value no longer."""
        with self._lock:
            self._drop(key)

    def _drop(self, key: _Key) -> None:
        _, size = self._kept.pop(key, (None, 0))
        self.size_bytes -= size
