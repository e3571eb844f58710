"""How much memory one call may take, and what holds it to that.

What can be computed is computed before it is taken: `require`. What cannot is met by a limit of the
process, `bounded`: the system then refuses an allocation, which is an error of that one call,
instead of killing a process of the server, for which PostgreSQL ends every session.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

from mmdb.errors import DeviceFull, OutOfMemory

try:
    import resource
except ImportError:  # of Unix alone
    resource = None  # type: ignore[assignment]

#: Of what is free, what one call may take where the owner says nothing.
SHARE = 0.75
#: What a call may map at least, whatever is free: torch alone maps 200 MB.
FLOOR_BYTES = 256 * 2**20
#: What a query of mmdb's own may take beyond that, whose rows are small.
QUERY_BYTES = 256 * 2**20
#: Of a row that a query of a user's returns.
ROW_BYTES = 64 * 2**20
#: Seconds for which what is free, and what the owner allows, is not asked for again.
KNOWN_S = 1.0

_NONE = 2**63 - 1
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
#: Files of a control group, of its second version and its first: limits, and what is used.
_LIMITS = ("memory.max", "memory.high", "memory.limit_in_bytes")
_USED = ("memory.current", "memory.usage_in_bytes")
#: What a group uses and gives back: files that the system keeps in memory.
_FILES = ("total_inactive_file", "total_active_file"), ("inactive_file", "active_file")
_SAID = (
    "can't allocate memory", "not enough memory", "Cannot allocate memory", "bad_alloc",
    "can't start new thread", "failed to map segment",
    "could not convert Python Unicode object to bytes",
)  # fmt: skip
#: Of accelerators: torch's allocators, drivers, and libraries such as cuBLAS.
_SAID_OF_DEVICES = ("out of memory", "ALLOC_FAILED", "ALLOCATION_FAILED")


def free_bytes(root: Path = Path("/")) -> int | None:
    """Return what the machine, or the control groups of this process, have left to give.

    Args:
        root: where `proc` and `sys` are.
    Returns:
        None where the system does not say it.
    """
    found = [*_of_machine(root), *(one for group in _groups(root) for one in _of_group(group))]
    return max(0, min(found)) if found else None


def allowed_bytes(free: int | None, limit: int | None) -> int | None:
    """Return what a call may take; None if nothing bounds it.

    Args:
        limit: that the owner has set.

    >>> allowed_bytes(4000, None), allowed_bytes(4000, 1000), allowed_bytes(4000, 9000)
    (3000, 1000, 3000)
    """
    bounds = [
        one for one in (None if free is None else int(SHARE * free), limit) if one is not None
    ]
    return min(bounds, default=None)


def require(count: float, what: str) -> None:
    """Check that the call under way may take so many bytes.

    Args:
        what: takes them, as the subject of a sentence.
    Raises:
        OutOfMemory
    """
    most = call_bytes()
    if count > most:
        raise OutOfMemory(
            f"{what} takes {count:,.0f} bytes of memory; this call may take {most:,}."
        )


def call_bytes() -> int:
    """Return what the call under way may take; where nothing bounds it, more than there is."""
    most = _process.call_may_take
    if most is None:
        most = _process.allowed(lambda: None)
    return _NONE if most is None else most


def shortage(error: BaseException) -> OutOfMemory | None:
    """Return what an error comes to that says that there is no memory; None for any other."""
    if _is_of_device(error):
        return DeviceFull(f"{DeviceFull.__doc__} {str(error).splitlines()[0][:300]}")
    return OutOfMemory() if ran_out(error) else None


def _is_of_device(error: BaseException) -> bool:
    """Return whether an accelerator has no memory left: torch has a class for some kinds alone."""
    texts = _SAID_OF_DEVICES if isinstance(error, RuntimeError) else ()
    return any(text in str(error) for text in texts)


def ran_out(error: BaseException) -> bool:
    """Return whether an error says that there is no memory, whoever says it."""
    if _is_of_device(error):
        return True
    if isinstance(error, MemoryError) or getattr(error, "sqlstate", None) == "53200":
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    is_said = isinstance(error, RuntimeError | ImportError | OSError)
    is_said = is_said or getattr(error, "sqlstate", None) == "38000"  # of PL/Python
    return is_said and any(text in str(error) for text in _SAID)


def bounded(find_limit: Callable[[], int | None] = lambda: None) -> _Bounded:
    """Let this process map no more memory than a call may take until the block ends.

    Args:
        find_limit: returns the bytes that the owner allows; asked at most each KNOWN_S.
    """
    return _Bounded(find_limit)


class _Bounded:
    """Limits the memory of one call; a call within another may take no more than that one."""

    __slots__ = ("_before", "_find_limit")

    def __init__(self, find_limit: Callable[[], int | None]) -> None:
        self._find_limit = find_limit

    def __enter__(self) -> None:
        process = _process
        self._before = process.call_may_take, process.limit
        allowed = process.allowed(self._find_limit)
        if allowed is not None:
            process.call_may_take = allowed
            process.set(min(process.most, process.limit))

    def __exit__(self, *_: object) -> None:
        _process.call_may_take, limit = self._before
        if limit != _process.limit:
            _process.set(limit)


class _Process:
    """The limit of this process on memory of its own that it may write to (RLIMIT_DATA).

    Files and what PostgreSQL's processes share are not counted, nor is what is only reserved.

    Attributes:
        limit, first: the one in force, and that the process began with, in bytes.
        call_may_take: what the call under way may; None between calls.
        most: the limit of a call that begins now.
    """

    def __init__(self) -> None:
        limits = resource.getrlimit(resource.RLIMIT_DATA) if resource else (-1, -1)
        self.limit, self._hard = (_NONE if one < 0 else one for one in limits)
        self.first = self.limit
        self.call_may_take: int | None = None
        self.most = _NONE
        self._allowed: int | None = None
        self._known_until = 0.0

    def allowed(self, find_limit: Callable[[], int | None]) -> int | None:
        """Return what a call that begins now may take."""
        now = monotonic()
        if now > self._known_until:
            self._allowed = allowed_bytes(free_bytes(), find_limit())
            self.most = _NONE if self._allowed is None else _limit_for(self._allowed)
            self._known_until = now + KNOWN_S
        return self._allowed

    def set(self, limit: int) -> None:
        """Have another limit."""
        if resource:
            soft, hard = (-1 if one == _NONE else one for one in (limit, self._hard))
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
            self.limit = limit


def _limit_for(allowed: int) -> int:
    """Return the limit of this process that leaves it so many bytes more than it holds."""
    sizes = _text(Path("/proc/self/statm")).split()
    if not sizes:
        return _NONE
    _, resident, shared, _, _, mapped, _ = (int(pages) * _PAGE_BYTES for pages in sizes)
    return max(resident - shared + allowed, mapped + FLOOR_BYTES)


_process = _Process()


def is_bounded() -> bool:
    """Return whether a call is bounded now."""
    return _process.call_may_take is not None


def lifted(by: int | None = QUERY_BYTES) -> _Lifted:
    """Let this process map more until the block ends, in which PL/Python makes Python's objects.

    It asks of no object whether there was memory for it: without any, the session would crash.

    Args:
        by: bytes; None for the limit that the process began with, where what is made is bounded.
    """
    return _Lifted(by)


class _Lifted:
    """A limit that is put off."""

    __slots__ = ("_by", "_limit")

    def __init__(self, by: int | None) -> None:
        self._by = by

    def __enter__(self) -> None:
        self._limit = _process.limit
        if _process.call_may_take is not None:
            raised = _NONE if self._by is None else self._limit + self._by
            _process.set(min(raised, _process.first))

    def __exit__(self, *_: object) -> None:
        if _process.limit != self._limit:
            _process.set(self._limit)


# -- what the system says -----------------------------------------------------------


def _of_machine(root: Path) -> Iterator[int]:
    for line in _text(root / "proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            yield int(rest.split()[0]) * 1024


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folders of the control groups that hold this process, and of those around them."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, controllers, path = line.split(":", 2)
        if number != "0" and "memory" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / ("" if number == "0" else "memory")
        inside = mount / path.lstrip("/")
        yield from (one for one in (inside, *inside.parents) if one.is_relative_to(mount))


def _of_group(group: Path) -> Iterator[int]:
    limits = [int(text) for name in _LIMITS if (text := _text(group / name).strip()).isdigit()]
    used = [int(text) for name in _USED if (text := _text(group / name))]
    if limits and used:
        lines = (line.split() for line in _text(group / "memory.stat").splitlines())
        sizes = {name: int(size) for name, size in lines}
        names = next((names for names in _FILES if names[0] in sizes), ())
        yield min(limits) - used[0] + sum(sizes[name] for name in names)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
