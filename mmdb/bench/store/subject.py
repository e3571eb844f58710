"""A database under the store's bench: models saved under a prefix, and the bytes they take."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from mmdb.api import Database
from mmdb.bench.networks import FACTORIES, SMALL
from mmdb.bench.share import FULL, Share
from mmdb.bench.workload import bench_names

MB = 1e6

#: Tables whose rows a saved model adds to, beside its chunks.
ROW_TABLES = (
    "tensor",
    "encoding",
    "environment",
    "architecture",
    "architecture_node",
    "architecture_edge",
    "definition",
    "manifest",
    "manifest_tensor",
    "model",
    "model_change",
    "recipe",
    "recipe_tensor",
    "model_metric",
)

#: Bytes of a row `t`. PostgreSQL says them, header included; of DuckDB's columns, which are packed
#: together, the row as JSON is more than they take.
ROW_BYTES = {
    "postgres": "pg_column_size(t.*)",
    "duckdb": "octet_length(encode(to_json(t)::varchar))",
}


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes in the store."""

    chunks: int  # of tensors, as they are encoded
    rows: int  # of the rows that describe them
    space: int  # that the relations, or the file, take up

    @property
    def total(self) -> int:
        """The cost of a save: encoded bytes and rows."""
        return self.chunks + self.rows

    def __sub__(self, other: Stored) -> Stored:
        return Stored(self.chunks - other.chunks, self.rows - other.rows, self.space - other.space)


@dataclass(frozen=True, slots=True)
class Subject:
    """A database, a prefix for the names of what the bench makes there, and a scratch folder."""

    db: Database
    prefix: str
    folder: Path
    share: Share = FULL

    @property
    def engine(self) -> str:
        """The engine's name, with which the figures start."""
        return self.db.connection.engine

    def networks(self, *names: str) -> tuple[str, ...]:
        """Return the networks to measure: these, or the smallest one for a share."""
        return names if self.share.is_full else (SMALL,)

    def name(self, label: str) -> str:
        """Return the name of a model of this bench."""
        return f"{self.prefix}-{label}"

    def register_factories(self) -> None:
        """Let the database build the bench's networks."""
        targets = {name: f"mmdb.bench.networks:{name}" for name in FACTORIES}
        for name, target in (targets | {"stack": "mmdb.bench.store.zoo:stack"}).items():
            self.db.register_factory(f"{self.prefix}_{name}", target)

    def save(self, label: str, network: str, module: nn.Module, parent: Any = None) -> Any:
        """Save a network in the default configuration, as a version of the model `label`."""
        return self.db.save(
            self.name(label),
            module,
            parent=None if parent is None else reference(parent),
        )

    def stored(self) -> Stored:
        """Return the bytes in the store now."""
        return Stored(
            chunks=self._number(
                "SELECT sum(octet_length(c.data)) AS n FROM mmdb.tensor_chunk AS c"
            ),
            rows=sum(self._row_bytes(table) for table in ROW_TABLES),
            space=self._space(),
        )

    def _row_bytes(self, table: str) -> int:
        return self._number(f"SELECT sum({ROW_BYTES[self.engine]}) AS n FROM mmdb.{table} AS t")

    def _space(self) -> int:
        if self.engine == "postgres":
            return self._number(
                "SELECT sum(pg_total_relation_size(c.oid)) AS n FROM pg_class AS c "
                "WHERE c.relnamespace = 'mmdb'::regnamespace AND c.relkind = 'r'"
            )
        self.db.sql("CHECKPOINT")
        return self._number("SELECT sum(used_blocks * block_size) AS n FROM pragma_database_size()")

    def _number(self, statement: str) -> int:
        return int(self.db.sql(statement)[0]["n"] or 0)


def reference(saved: Any) -> str:
    """Return `name@version` of a saved model."""
    return f"{saved.name}@{saved.version}"


def settle(subject: Subject, tables: Sequence[str] = ROW_TABLES) -> None:
    """Bring the planner's statistics up to date after many rows were added at once."""
    if subject.engine == "postgres":
        for table in tables:
            subject.db.sql(f"ANALYZE mmdb.{table}")


@contextmanager
def subject_in(db: Database, share: Share = FULL) -> Iterator[Subject]:
    """Yield a database with the networks' factories, and delete afterwards all that it made."""
    with (
        tempfile.TemporaryDirectory(prefix="mmdb-bench-") as folder,
        bench_names(db) as prefix,
    ):
        subject = Subject(db, prefix, Path(folder), share)
        subject.register_factories()
        yield subject
