"""Stored bytes are changed, cut short, lengthened, swapped and deleted; then all is read again.

What is read must be an error that names the thing or, where everything is verified, the bits that
were stored. Each read is done twice with memory that was filled with different bytes before: what
differs was never written. Each corruption is rolled back.
"""

from __future__ import annotations

import os
import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
import psycopg
import torch

import mmdb
from mmdb.api import Database
from mmdb.bench.figures import Figure
from mmdb.db.install import install
from mmdb.errors import DatabaseFailed, MmdbError
from mmdb.store.models.model_rows import find_model
from mmdb.store.models.recover import ModelReader, Verify
from mmdb.store.models.save import save_model
from mmdb.store.tensors import planes, reading, writing
from tests.bench.search.campaigns import none_of
from tests.bench.search.corrupted_store import MODELS, Read, fill, models, reads, small_chunks
from tests.cluster import Cluster
from tests.tensors import same_bits

VERIFY: tuple[Verify, ...] = get_args(Verify)
#: Of what a table's rows are known by, and the columns that are changed; "" deletes rows.
TABLES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "tensor_chunk": (("tensor_id", "ordinal"), ("data", "data", "data", "codec", "ordinal", "")),
    "encoding": (("tensor_id",), ("base_id", "word", "chunk_bytes", "chunks", "")),
    "tensor": (("tensor_id",), ("tensor_hash", "dtype", "shape", "byte_count")),
    "manifest_tensor": (
        ("manifest_id", "ordinal"),
        ("path", "tensor_id", "kind", "tied_to", "layout", ""),
    ),
    "model": (("model_id",), ("manifest_id", "pack_id", "weights_hash")),
    "model_change": (("model_id", "ordinal"), ("tensor_id", "")),
    "recipe": (("model_id",), ("arguments", "tensor_hashes", "seed", "trainer", "")),
    "recipe_tensor": (("model_id", "path"), ("tensor_id", "")),
    "checkpoint_chunk": (("part_id", "candidate_id", "state_hash", "ordinal"), ("data", "")),
    "block": (("part_id", "ordinal"), ("data", "digest", "row_count", "")),
}
#: Half of the corruptions are of chunks.
_OFTEN = ["tensor_chunk"] * len(TABLES) + list(TABLES)
#: What memory holds before it is written to.
_POISONS = (0xA5, 0x5A)
#: Kinds of change to a value of bytes.
_CHANGES: list[Callable[[random.Random, bytes], bytes]] = [
    lambda source, data: _flip(source, data),
    lambda source, data: data[: source.randrange(len(data))] if data else b"\0",
    lambda source, data: data + source.randbytes(source.randint(1, 9)),
    lambda source, data: b"" if data else b"\0",
]


def search(*, seed: int, cases: int) -> list[Figure]:
    """Return how often a corruption gave wrong bits, memory of nobody, or an unnamed error."""
    tally = Tally()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mmdb-search-")))
        stack.enter_context(_cache_in(folder))
        stack.enter_context(small_chunks())
        urls = {
            "duckdb": f"duckdb:///{folder / 'zoo.duckdb'}",
            "postgres": _server_url(stack.enter_context(Cluster())),
        }
        for k, (engine, url) in enumerate(urls.items()):
            with mmdb.connect(url) as db:
                right = fill(db)
                subject = Subject(db, random.Random(f"{seed} {engine}"), tally, right)
                for _ in range(cases // 2 + (cases % 2 and not k)):
                    subject.one_case()
                subject.check_untouched()
    return tally.figures(cases)


@dataclass(slots=True)
class Tally:
    """What the corruptions came to, over all engines."""

    outcomes: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add(self, outcome: str, what: str) -> None:
        """Count an outcome of one read; what is wrong is printed."""
        self.outcomes[outcome] += 1
        if outcome not in ("named", "right", "unverified"):
            self.examples.append(f"{outcome}: {what}")
            print(self.examples[-1], flush=True)

    def figures(self, cases: int) -> list[Figure]:
        """Return the figures of the campaign."""
        counts = self.outcomes
        named = counts["named"]
        return [
            none_of("corruptions: memory that was not written", counts["unwritten"], "reads"),
            none_of("corruptions: wrong bits, all verified", counts["wrong"], "reads"),
            none_of("corruptions: errors that name nothing", counts["unnamed"], "reads"),
            none_of("corruptions: saves that cannot be recovered", counts["lost"], "saves"),
            none_of("corruptions: undone, yet not as before", counts["left"], "reads"),
            Figure(
                name="corruptions: noticed and named",
                value=named,
                unit="reads",
                bar=f">= {cases}",
                holds=named >= cases,
            ),
            Figure(name="corruptions: right bits", value=counts["right"], unit="reads"),
            Figure(
                name="corruptions: other bits, unverified", value=counts["unverified"], unit="reads"
            ),
        ]


class _Undo(Exception):
    """Ends a transaction without keeping what it did."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A filled database, what it holds, and the source of the corruptions."""

    db: Database
    source: random.Random
    tally: Tally
    right: Mapping[str, Any]  # what each read gives, by its name

    def one_case(self) -> None:
        """Do one corruption, read all that may show it, and undo it."""
        while True:
            try:
                with self.db.connection.transaction():
                    table, what = self._corrupt()
                    for read in reads(table):
                        self._look(read, what)
                    if table in ("tensor_chunk", "encoding"):
                        self._save_again(what)
                    raise _Undo
            except _Undo:
                return
            except DatabaseFailed:  # the engine refuses such a row: a key, or a check
                continue

    def check_untouched(self) -> None:
        """Count what is not as it was before the corruptions."""
        for table in TABLES:
            for read in reads(table):
                outcome = self._compare(read, read.function(self.db, "full"), "full")
                self.tally.add("right" if outcome == "right" else "left", read.name)

    # -- corrupting -----------------------------------------------------------

    def _corrupt(self) -> tuple[str, str]:
        table = self.source.choice(_OFTEN)
        keys, columns = TABLES[table]
        column = self.source.choice(columns)
        rows = self.db.sql(f"SELECT * FROM mmdb.{table} ORDER BY {', '.join(keys)}")
        row, other = self.source.choice(rows), self.source.choice(rows)
        if self.db.connection.engine == "postgres":  # as a disk, which knows no keys
            self.db.sql("SET LOCAL session_replication_role = replica")
        where = {key: row[key] for key in keys}
        what = f"{self.db.connection.engine}, {table} {_short(where)}"
        if not column:
            self._change(f"DELETE FROM mmdb.{table}", where)
            return table, f"{what} deleted"
        value = self._other_value(row[column], other[column])
        self._change(f"UPDATE mmdb.{table} SET {column} = {self._mark('v')}", where, v=value)
        if self.source.random() < 0.1:  # two rows, swapped
            there = {key: other[key] for key in keys}
            self._change(
                f"UPDATE mmdb.{table} SET {column} = {self._mark('v')}", there, v=row[column]
            )
        return table, f"{what}, {column}: {_short(row[column])} -> {_short(value)}"

    def _other_value(self, value: Any, other: Any) -> Any:
        if other != value and self.source.random() < 0.3:
            return other
        match value:
            case None:
                return other
            case bytes() | memoryview() | bytearray():
                return self.source.choice(_CHANGES)(self.source, bytes(value))
            case int():
                return self.source.choice([value ^ (1 << self.source.randrange(24)), -value, 0])
            case str():
                return _flip(self.source, value.encode()).decode(errors="replace")
            case list():
                return self.source.choice(
                    [value[::-1], [*value, 2], value[1:], [-n for n in value]]
                )
            case dict():
                return None
        return other

    def _mark(self, name: str) -> str:
        return f"${name}" if self.db.connection.engine == "duckdb" else f"%({name})s"

    def _change(self, statement: str, where: Mapping[str, Any], **values: Any) -> None:
        which = " AND ".join(f"{key} = {self._mark(key)}" for key in where)
        given = {key: _plain(value) for key, value in (dict(where) | values).items()}
        self.db.sql(f"{statement} WHERE {which}", given)

    # -- reading --------------------------------------------------------------

    def _look(self, read: Read, what: str) -> None:
        for verify in VERIFY if read.verifies else VERIFY[:1]:
            found = [self._attempt(read, verify, poison) for poison in _POISONS]
            whole = f"{what}; {read.name}, verify {verify}"
            if all(isinstance(one, Exception) for one in found):
                is_named = all(isinstance(e, MmdbError) and read.names(str(e)) for e in found)
                self.tally.add("named" if is_named else "unnamed", f"{whole}: {found[0]!r}")
            elif isinstance(found[0], Exception) or not _same(found[0], found[1]):
                self.tally.add("unwritten", whole)
            else:
                self.tally.add(self._compare(read, found[0], verify), whole)

    def _attempt(self, read: Read, verify: Verify, poison: int) -> Any:
        with poisoned(poison), streamed(self.source.random() < 0.5):
            try:
                return read.function(self.db, verify)
            except Exception as error:
                return error

    def _compare(self, read: Read, found: Any, verify: Verify) -> str:
        if _same(found, self.right[read.name]):
            return "right"
        return "wrong" if verify == "full" else "unverified"

    def _save_again(self, what: str) -> None:
        """Save a model that has the damaged tensor, or not; it must be there afterwards."""
        name = self.source.choice(list(MODELS))
        writing.forget(self.db.connection)
        try:
            save_model(self.db.connection, "again", models()[name])
        except MmdbError as error:
            named = re.search(r"ensor|arent", str(error))
            self.tally.add("named" if named else "unnamed", f"{what}; save: {error!r}")
            return
        finally:
            writing.forget(self.db.connection)
        try:
            again = find_model(self.db.connection, "again")
            found = ModelReader(self.db.connection).tensors(again)
            self.tally.add("right" if _same(found, models()[name]) else "wrong", f"{what}; save")
        except MmdbError as error:
            self.tally.add("lost", f"{what}; save of {name}: {error!r}")


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and same_bits(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, np.ndarray):
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
    return bool(a == b)


def _flip(source: random.Random, data: bytes) -> bytes:
    if not data:
        return b"\0"
    changed = bytearray(data)
    changed[source.randrange(len(changed))] ^= 1 << source.randrange(8)
    return bytes(changed)


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, (memoryview, bytearray)) else value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:40]}... ({len(text)})"


# -- surroundings ---------------------------------------------------------------


@contextmanager
def poisoned(value: int) -> Iterator[None]:
    """Fill new memory with a byte before it is used, and let no scratch memory be used again."""
    make, make_array, scratch = torch.empty, np.empty, planes._Thread.buffer

    def empty(*sizes: Any, **options: Any) -> torch.Tensor:
        made = make(*sizes, **options)
        if made.numel() and not made.is_meta:
            made.reshape(-1).view(torch.uint8).fill_(value)
        return made

    def empty_array(*shape: Any, **options: Any) -> np.ndarray:
        made = make_array(*shape, **options)
        if made.dtype != object:
            made.reshape(-1).view(np.uint8).fill(value)
        return made

    torch.empty, np.empty = empty, empty_array  # type: ignore[assignment,misc]
    planes._Thread.buffer = lambda self, name, count, dtype: np.empty(count, dtype)  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.empty, np.empty = make, make_array  # type: ignore[misc]
        planes._Thread.buffer = scratch  # type: ignore[method-assign]


@contextmanager
def streamed(always: bool) -> Iterator[None]:
    """Let small tensors be read as large ones are: streamed, and decoded by threads."""
    before = reading._AT_ONCE
    reading._AT_ONCE = 0 if always else before
    try:
        yield
    finally:
        reading._AT_ONCE = before


@contextmanager
def _cache_in(folder: Path) -> Iterator[None]:
    before = os.environ.get("MMDB_CACHE_DIR")
    os.environ["MMDB_CACHE_DIR"] = str(folder / "cache")
    try:
        yield
    finally:
        os.environ.pop("MMDB_CACHE_DIR")
        if before is not None:
            os.environ["MMDB_CACHE_DIR"] = before


def _server_url(cluster: Cluster) -> str:
    url = cluster.create_database("corruptions")
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("CREATE EXTENSION IF NOT EXISTS plpython3u")
    install(url)
    return url
