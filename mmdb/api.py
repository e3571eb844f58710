"""`connect`, and what it returns: the same calls over either engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mmdb.data import dataset as datasets
from mmdb.data.dataset import DatasetSummary
from mmdb.data.names import check_name
from mmdb.db.connection import Row
from mmdb.db.duck import DuckConnection
from mmdb.db.install import ensure_duckdb, is_current, pending
from mmdb.db.queries import load
from mmdb.db.replicas import source_of
from mmdb.db.source import OneSession, Source
from mmdb.db.url import AnyConnection
from mmdb.db.url import connect as open_connection
from mmdb.errors import NotInstalled, RunNotFound
from mmdb.server.arguments import architecture_text, input_text, json_text, whole_number
from mmdb.server.duck_functions import DuckBackend, register
from mmdb.zoo import Zoo

if TYPE_CHECKING:
    from mmdb.train.driver import Summary
    from mmdb.train.schedule import Schedule

_Q = load("api")


def connect(url: str, *, reads: Sequence[str] = ()) -> Database:
    """Open a database that has mmdb; a DuckDB file is made, and given mmdb, as needed.

    Args:
        url: `postgresql://user@host:port/database`, `duckdb:///file.duckdb` (relative),
            `duckdb:////folder/file.duckdb` (absolute) or `duckdb://` (in memory).
        reads: URLs of streaming replicas, from which models are read: docs/replicas.md.
    Raises:
        WrongUrl, DatabaseLocked, NotInstalled, MigrationMismatch
    """
    connection = open_connection(url)
    backend = None
    try:
        if isinstance(connection, DuckConnection):
            ensure_duckdb(connection)
            backend = register(connection)
        elif pending(connection) or not is_current(connection):
            raise NotInstalled("mmdb in this database is of another version than this package.")
        source = source_of(connection, reads)
    except BaseException:
        connection.close()
        raise
    return Database(connection, backend, source)


class Database(Zoo):
    """An open database; use it in `with`, or call `close`. Not for two threads at once."""

    def __init__(
        self,
        connection: AnyConnection,
        backend: DuckBackend | None = None,
        reads: Source | None = None,
    ) -> None:
        self.connection = connection
        self.reads: Source = reads or OneSession(connection)
        self._is_second = False
        self._backend = backend

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the session and, on DuckDB, release the file."""
        if self._backend is not None:
            self._backend.close()
        if not self._is_second:
            self.reads.close()
        self.connection.close()

    def session(self) -> Database:
        """Return a second session on the same database, for another thread; close it too."""
        if isinstance(self.connection, DuckConnection):
            return Database(self.connection.cursor())
        second = open_connection(self.connection.url)
        other = Database(second, reads=None if isinstance(self.reads, OneSession) else self.reads)
        other._is_second = True
        return other

    def sql(self, statement: str, parameters: Mapping[str, object] | None = None) -> list[Row]:
        """Run SQL in the engine's own dialect and return its rows by column name.

        Placeholders are `%(name)s` on PostgreSQL and `$name` on DuckDB.
        """
        return self.connection.select(statement, parameters)

    def create_dataset(
        self,
        name: str,
        query: str,
        *,
        label: str = "y",
        partitions: int = 4,
        validation: float = 0.2,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
    ) -> DatasetSummary:
        """Read a SELECT once and keep its rows, shuffled into partitions, as a dataset.

        Raises:
            QueryError, DataError, AlreadyExists, InvalidName, InvalidOption
        """
        return datasets.create_dataset(
            self.connection,
            name,
            query,
            label=label,
            partitions=partitions,
            validation=validation,
            seed=seed,
            options=options,
        )

    def drop_dataset(self, name: str, *, force: bool = False) -> int:
        """Delete a dataset's blocks and return the bytes freed; its lineage stays.

        Raises:
            DatasetNotFound, DatasetInUse
        """
        return datasets.drop_dataset(self.connection, name, force=force)

    def register_factory(self, name: str, target: str) -> None:
        """Allow `package.module:callable` to build models. Owner only.

        Raises:
            FactoryFailed, AlreadyExists, RightsMissing
        """
        self.connection.rows(_Q.register_factory, name=name, target=target)

    def register_trainer(self, name: str, target: str) -> None:
        """Allow `package.module:callable` to train models as their recipes say. Owner only.

        Raises:
            FactoryFailed, AlreadyExists, RightsMissing
        """
        self.connection.rows(_Q.register_trainer, name=name, target=target)

    def create_run(
        self,
        name: str,
        *,
        dataset: str,
        architecture: str | Mapping[str, Any],
        search: Mapping[str, Any] | None = None,
        epochs: int = 1,
        strategy: str = "auto",
        warm_start: str = "off",
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
    ) -> Run:
        """Turn a search space into candidates to be trained on a dataset.

        Args:
            architecture: a factory with arguments, such as "mlp(hidden=[64])", or a layer graph.
            search: {"method": "grid", "space": {"lr": [0.1, 0.01]}}; docs/search.md.
        Raises:
            DatasetNotFound, ArchitectureError, SearchError, AlreadyExists
        """
        self.connection.rows(
            _Q.create_run,
            name=check_name(name),
            dataset=dataset,
            architecture=architecture_text(architecture),
            search=json_text(search, "search"),
            epochs=whole_number(epochs, "epochs", 1, 2**31 - 1),
            strategy=strategy,
            warm_start=warm_start,
            seed=whole_number(seed, "seed", -(2**63), 2**63 - 1),
            options=json_text(options, "options"),
        )
        return Run(self, name)

    def run(self, name: str) -> Run:
        """Return a run that exists.

        Raises:
            RunNotFound
        """
        if not self.connection.rows(load("runs").find_run, name=name):
            raise RunNotFound(f"There is no run named {name!r}.")
        return Run(self, name)

    def save_candidate(
        self,
        candidate_id: int,
        name: str,
        *,
        approach: str = "auto",
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """Save a candidate's best checkpoint; return `name@version`.

        Args:
            approach, options: see `save`; "provenance" keeps no weights, for the candidate's hops
                are a recipe.
        Raises:
            CandidateNotFound, StateNotFound, InvalidName, InvalidOption
        """
        from mmdb.train.save import save_candidate  # imports torch

        row = save_candidate(
            self.connection, candidate_id, name, approach=approach, options=options
        )
        return f"{row['name']}@{row['version']}"

    def predict(self, model: str, x: Sequence[float] | Mapping[str, Any]) -> list[float]:
        """Return class probabilities, or the value of a regression, for one row.

        Args:
            model: `name` or `name@version`.
            x: the features in order, or a row with the dataset's column names.
        Raises:
            ModelNotFound, InvalidInput
        """
        (row,) = self.connection.rows(_Q.predict, model=model, x=input_text(x))
        return list(row["output"])

    def predict_query(self, model: str, query: str, *, key: str = "id") -> list[Row]:
        """Return key, prediction and probability for every row of a SELECT.

        Raises:
            ModelNotFound, QueryError, UnknownColumn
        """
        return self.connection.rows(_Q.predict_query, model=model, query=query, key=key)

    def evaluate(self, model: str, dataset: str) -> dict[str, float]:
        """Return a model's metrics on a dataset's validation slice.

        Raises:
            ModelNotFound, DatasetNotFound
        """
        rows = self.connection.rows(_Q.evaluate, model=model, dataset=dataset)
        return {row["metric"]: row["value"] for row in rows}

    def lineage(self, model: str) -> list[Row]:
        """Return a model's run, candidate, dataset, tables and columns, newest version first."""
        return self.connection.rows(_Q.model_lineage, model=model.partition("@")[0])


@dataclass(frozen=True)
class Run:
    """A run of a database."""

    database: Database
    name: str

    def train(
        self,
        *,
        workers: int | None = None,
        on_change: Callable[[Schedule], None] = lambda schedule: None,
    ) -> Summary:
        """Train to the end, or go on where an interrupted call left off.

        Args:
            workers: sessions to train with; None for one per processor.
            on_change: called with the schedule after every event.
        Raises:
            RunBusy, RunFailed, DatasetDropped
        """
        from mmdb.train.driver import train  # imports torch: only where a run is trained

        return train(self.database.connection, self.name, workers=workers, on_change=on_change)

    def leaderboard(self) -> list[dict[str, Any]]:
        """Return the candidates, best first, with their configurations as dictionaries."""
        rows = self.database.connection.rows(_Q.leaderboard, run=self.name)
        return [dict(row) | {"config": json.loads(row["config"])} for row in rows]
