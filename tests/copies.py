"""Databases that a file of tests fills once, and of which each test has a copy of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import mmdb

#: Makes tables, trains runs, ...
Fill = Callable[[mmdb.Database], None]
_numbers = count(1)


class Copies:
    """Databases by engine and by what fills them, and their copies.

    Args:
        folder: where those of DuckDB are kept.
        fixture: returns a fixture of tests/conftest.py by its name.
    """

    def __init__(self, folder: Path, fixture: Callable[[str], Any]) -> None:
        self._folder, self._fixture = folder, fixture
        self._filled: dict[tuple[str, Fill], str] = {}

    @contextmanager
    def open(self, engine: str, fill: Fill) -> Iterator[mmdb.Database]:
        """Open a copy of the database that `fill` has filled, which the first call has it do."""
        if (engine, fill) not in self._filled:
            own = self._filled[engine, fill] = self._copy(engine, None)
            with mmdb.connect(self._url(engine, own)) as database:
                fill(database)
        name = self._copy(engine, self._filled[engine, fill])
        with mmdb.connect(self._url(engine, name)) as database:
            yield database
        self._drop(engine, name)

    def close(self) -> None:
        """Drop what was copied."""
        for (engine, _), name in self._filled.items():
            self._drop(engine, name)

    def _copy(self, engine: str, name: str | None) -> str:
        """Return the name of a copy of a database; None: of one with mmdb installed alone."""
        copy = f"mmdb_copy_{next(_numbers)}"
        if engine == "postgres":
            self._fixture("cluster").create_database(copy, name or self._fixture("template"))
        else:
            shutil.copy(
                self._file(name) if name else self._fixture("installed_file"), self._file(copy)
            )
        return copy

    def _url(self, engine: str, name: str) -> str:
        if engine == "postgres":
            return str(self._fixture("cluster").url(name))
        return f"duckdb:///{self._file(name)}"

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.duckdb"

    def _drop(self, engine: str, name: str) -> None:
        if engine == "postgres":
            self._fixture("cluster").drop_database(name)
        else:
            self._file(name).unlink()
