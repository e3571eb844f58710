"""Records in files, so that a measurement of hours can stop and go on."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Record = TypeVar("Record", bound=DataclassInstance)
else:
    Record = TypeVar("Record")


class Journal(Generic[Record]):
    """Dataclass instances in files of JSON lines; a later one replaces that of the same key.

    Args:
        file: this journal appends to it.
        pattern: names the files in its folder that are read: several processes may write, each
            to a file of its own.
        load: makes a record of a line.
        key: tells a record from all others.
    """

    def __init__(
        self,
        file: Path,
        pattern: str,
        load: Callable[[dict[str, Any]], Record],
        key: Callable[[Record], Hashable],
    ) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file, self._key = file, key
        self._records: dict[Hashable, Record] = {}
        for one in sorted(file.parent.glob(pattern)):
            whole, _, rest = one.read_text().rpartition("\n")
            if rest and one == file:  # a killed process leaves half a line
                one.write_text(f"{whole}\n" if whole else "")
            for line in whole.splitlines():
                self._keep(load(json.loads(line)))

    def records(self) -> list[Record]:
        """Return all records, in the order in which they were written."""
        return list(self._records.values())

    def find(self, key: Hashable) -> Record | None:
        """Return the record of a key."""
        return self._records.get(key)

    def add(self, record: Record) -> None:
        """Keep a record, on the disk when this returns."""
        with self._file.open("a") as file:
            file.write(json.dumps(asdict(record)) + "\n")
        self._keep(record)

    def _keep(self, record: Record) -> None:
        self._records[self._key(record)] = record
