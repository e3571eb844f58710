"""What processes of a database hold: memory of their own, open files, temporary files, tables."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mmdb.api import Database
from mmdb.bench.figures import Figure, at_most
from mmdb.db.connection import Row

_SHARE, _MOST = 0.1, 1.0
#: A unit, and what to ask for a measure in it.
Measure = tuple[str, Callable[[], float]]


def private_megabytes(pid: int) -> float:
    """Return the memory that a process has to itself, with what is swapped out.

    Left out are a server's shared buffers and what lies in files as it is in memory, code above
    all: the kernel calls those of their pages private that no other process has at the moment.
    """
    found, is_shared = 0, False
    for line in _text(f"/proc/{pid}/smaps").splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):  # a range of addresses, and what may be done with it
            is_shared = rest[0].endswith("s")
        elif not is_shared and name in ("Private_Dirty:", "SwapPss:"):
            found += int(rest[0])
    return found * 1024 / 1e6


def open_files(pid: int) -> int:
    """Return how many files, sockets and pipes a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def children(pid: int) -> Iterator[int]:
    """Yield the processes that a process has started, and that still run."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            yield from map(int, (task / "children").read_text().split())


def command_of(pid: int) -> str:
    """Return the command by which a process was started; empty where it has ended."""
    with suppress(OSError):
        return _text(f"/proc/{pid}/cmdline").replace("\0", " ")
    return ""


def _text(path: str) -> str:
    """Return what a file says, without a Path: Python keeps a table of the names in those."""
    with open(path) as file:
        return file.read()


def temporary_files() -> int:
    """Return how many files and folders of mmdb's lie where temporary files do."""
    return sum(1 for _ in Path(tempfile.gettempdir()).glob("mmdb*"))


def buffer_megabytes(db: Database) -> float:
    """Return what DuckDB keeps of its tables and indexes in memory, up to its memory limit."""
    (row,) = db.sql("SELECT sum(memory_usage_bytes) AS n FROM duckdb_memory()")
    return float(row["n"]) / 1e6


def table_megabytes(db: Database, tables: Sequence[str]) -> float:
    """Return what tables and their indexes take on disk; of DuckDB all of them."""
    if db.connection.engine == "duckdb":
        db.sql("CHECKPOINT")
        (row,) = db.sql("SELECT used_blocks * block_size AS n FROM pragma_database_size()")
        return float(row["n"]) / 1e6
    names = ", ".join(f"'mmdb.{name}'::regclass" for name in tables)
    rows: list[Row] = db.sql(
        f"SELECT sum(pg_total_relation_size(t)) AS n FROM unnest(ARRAY[{names}]) AS t"
    )
    return float(rows[0]["n"]) / 1e6


@dataclass
class Growth:
    """Measures taken while something goes on, and how far each has grown after its first tenth."""

    about: str
    measures: dict[str, Measure]
    stays: frozenset[str] = frozenset()  # what is meant to grow with the work: data, caches of it
    taken: list[tuple[float, dict[str, float]]] = field(default_factory=list)

    def look(self, done: float) -> None:
        """Measure; `done` is the share of the work that is behind."""
        self.taken.append((done, {name: ask() for name, (_, ask) in self.measures.items()}))

    def figures(self) -> Iterator[Figure]:
        """Yield how far each measure has grown, in percent, over the most of the first tenth."""
        early = 1 + sum(done < _SHARE for done, _ in self.taken)
        for name, (unit, _) in self.measures.items():
            taken = [found[name] for _, found in self.taken]
            first, last = max(taken[:early]), taken[-1]
            yield Figure(f"{self.about}: {name} at the end", last, unit)
            grown = 100 * (last - first) / first if first else 100 * last
            said = f"{self.about}: growth of {name}"
            if name in self.stays:
                yield Figure(said, grown, "%")
            else:
                yield at_most(said, [grown], "%", _MOST)
