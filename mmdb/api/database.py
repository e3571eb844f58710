"""`connect`, and what it returns: the same calls over either engine."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

from mmdb.api.judging import JudgingCalls
from mmdb.api.model_exchange import ExchangeCalls
from mmdb.api.model_registry import RegistryCalls
from mmdb.api.parents import ParentCalls
from mmdb.api.results import ResultCalls
from mmdb.api.retraining import RetrainingCalls
from mmdb.api.run import Run
from mmdb.api.saved_models import ModelCalls
from mmdb.api.schedules import ScheduleCalls
from mmdb.argument_types import methods_name_wrong_types, names_wrong_types
from mmdb.arguments import check_whole
from mmdb.data import refresh, registration
from mmdb.data.functions import register_function
from mmdb.data.names import check_name, found_run
from mmdb.data.refresh import RefreshedDataset
from mmdb.data.registration import DatasetSummary
from mmdb.db.connection import OneSession, Row, Source
from mmdb.db.duck import DuckConnection
from mmdb.db.install import ensure_duckdb, installed_mode, is_up_to_date
from mmdb.db.queries import load
from mmdb.db.replicas import source_of
from mmdb.db.url import AnyConnection
from mmdb.db.url import connect as open_connection
from mmdb.errors import MmdbWarning, NotInstalled
from mmdb.server.arguments import architecture_text, check_candidate_id, json_text, json_value
from mmdb.server.calls import call
from mmdb.server.outside_server import ChildBackend, register
from mmdb.store.stored_features import drop_features
from mmdb.train.drive import run_requests


@names_wrong_types
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
    backend: ChildBackend | None = None
    try:
        if isinstance(connection, DuckConnection):
            ensure_duckdb(connection)
            backend = register(connection)
        elif not is_up_to_date(connection):
            raise NotInstalled("mmdb in this database is of another version than this package.")
        elif installed_mode(connection) == "client":
            backend = ChildBackend(connection)
        source = source_of(connection, [reads] if isinstance(reads, str) else reads)
    except BaseException:
        connection.close()
        raise
    return Database(connection, backend, source)


@methods_name_wrong_types
class Database(
    ModelCalls,
    RegistryCalls,
    ExchangeCalls,
    ParentCalls,
    ResultCalls,
    JudgingCalls,
    RetrainingCalls,
    ScheduleCalls,
):
    """An open database; use it in `with`, or call `close`. Not for two threads at once."""

    def __init__(
        self,
        connection: AnyConnection,
        backend: ChildBackend | None = None,
        reads: Source | None = None,
    ) -> None:
        self.connection = connection
        self.reads: Source = reads or OneSession(connection)
        self._is_second = False
        self._backend = backend

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
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
        backend = None if self._backend is None else ChildBackend(second)
        reads = None if isinstance(self.reads, OneSession) else self.reads
        other = Database(second, backend, reads)
        other._is_second = True
        return other

    def _call(self, function: str, **arguments: Any) -> Any:
        """Call one of mmdb's functions: in the server, or in this thread, which hears a Ctrl-C."""
        return call(self.connection, self._backend, function, arguments)

    def sql(self, statement: str, parameters: Mapping[str, object] | None = None) -> list[Row]:
        """Run SQL in the engine's own dialect and return its rows by column name.

        Placeholders are `%(name)s` on PostgreSQL and `$name` on DuckDB.

        Raises:
            InvalidOption: the statement is no text. DatabaseFailed, and others as the engine says
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
        return registration.create_dataset(
            self.connection,
            name,
            query,
            label=label,
            partitions=partitions,
            validation=validation,
            seed=seed,
            options=options,
            say=_warn,
        )

    def refresh_dataset(
        self, name: str, *, grows: str | None = None, fit: bool = False, dry_run: bool = False
    ) -> RefreshedDataset:
        """Add what a dataset's query has come to return, and mask what is gone: its next version.

        Transforms stay as they were fitted; where nothing has changed, no version is added.

        Args:
            grows: an output column whose values only grow: rows are read from the last one seen by
                it on, and rows that are gone are not looked for. The dataset must have a key.
            fit: read all rows anew and fit transforms and classes to them.
            dry_run: only say what would be done.
        Raises:
            DatasetNotFound, DatasetDropped, RightsMissing, InvalidOption, DataError, QueryError
        """
        return refresh.refresh_dataset(
            self.connection, name, grows=grows, fit=fit, dry_run=dry_run, say=_warn
        )

    def transformed(self, dataset: str, row_count: int = 5) -> list[Row]:
        """Return train rows with what models read of them: `features` and `label`, mappings.

        Raises:
            DatasetNotFound, DatasetDropped
        """
        found = self._call("transformed", dataset=dataset, row_count=row_count)
        return [{name: json_value(value) for name, value in row.items()} for row in found]

    def drop_dataset(self, name: str, *, force: bool = False) -> int:
        """Delete a dataset's blocks and return the bytes freed; its lineage stays.

        Raises:
            DatasetNotFound, DatasetInUse
        """
        return registration.drop_dataset(self.connection, name, force=force)

    def drop_features(self, dataset: str, layer: str | None = None) -> int:
        """Delete what is stored of the features of a dataset and return the bytes freed.

        Hops that need them compute them again; docs/features.md.

        Args:
            layer: the path that they were frozen up to; None: all.
        Raises:
            DatasetNotFound
        """
        return drop_features(self.connection, dataset, layer)

    def register_factory(self, name: str, target: str) -> None:
        """Allow `package.module:callable` to build models. Owner only.

        Raises:
            FactoryFailed, AlreadyExists, RightsMissing
        """
        self._call("register_factory", name=name, target=target)

    def register_trainer(self, name: str, target: str) -> None:
        """Allow `package.module:callable` to train models as their recipes say. Owner only.

        Raises:
            FactoryFailed, AlreadyExists, RightsMissing
        """
        self._call("register_trainer", name=name, target=target)

    def register_function(self, name: str, target: str, kind: str) -> None:
        """Allow `package.module:callable` to be named by datasets or runs. Owner only.

        Args:
            target: of a tokenizer it may be the text of a tokenizer.json, too, which is data:
                whoever trains may register it.
            kind: "tokenizer", "augmentation", "loss" or "metric".
        Raises:
            FunctionFailed, AlreadyExists, InvalidOption, RightsMissing
        """
        if kind == "tokenizer" and target.lstrip().startswith("{"):
            register_function(self.connection, name, target, kind)
        else:
            self._call("register_function", name=name, target=target, kind=kind)

    def create_run(
        self,
        name: str,
        *,
        dataset: str,
        architecture: str | Mapping[str, Any] | None = None,
        search: Mapping[str, Any] | None = None,
        epochs: int | None = None,
        strategy: str = "auto",
        warm_start: str = "off",
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
        budget: str | None = None,
        per: str | None = None,
    ) -> Run:
        """Turn a search space into candidates to be trained on a dataset.

        Args:
            architecture: a factory with arguments, such as "mlp(hidden=[64])", or a layer graph;
                None: the one that fits the dataset, with a small search of its own.
            epochs: None: one, or as many as that architecture needs.
            search: {"method": "grid", "space": {"lr": [0.1, 0.01]}}; docs/search.md.
            warm_start: "auto" to begin with the tensors of the best parents that the zoo has, or
                a model to begin with; docs/warm.md.
            budget: a time such as "5 min", after which training stops, once a candidate has done an
                epoch; that one without an architecture.
            per: a column of the dataset, of kind "index": a network of its own for each of its
                values; docs/groups.md.
        Raises:
            DatasetNotFound, ArchitectureError, SearchError, AlreadyExists
            ModelNotFound: of `warm_start`.
        """
        self._call(
            "create_run",
            name=check_name(name),
            dataset=dataset,
            architecture=None if architecture is None else architecture_text(architecture),
            search=json_text(search, "search"),
            epochs=None if epochs is None else check_whole(epochs, "epochs", 1, 2**31 - 1),
            strategy=strategy,
            warm_start=warm_start,
            seed=check_whole(seed, "seed", -(2**63), 2**63 - 1),
            options=json_text(options, "options"),
            budget=budget,
            per=per,
        )
        return Run(self, name)

    def drop_run(self, run: str) -> int:
        """Delete a run's checkpoints, free its name and return the bytes freed.

        Its models stay, and so does its lineage, as `run:name#run_id`.

        Raises:
            RunNotFound
            RunBusy: it is being trained.
            RightsMissing: it is another role's.
        """
        return run_requests.drop_run(self.connection, run)

    def run(self, name: str) -> Run:
        """Return a run that exists.

        Raises:
            RunNotFound
        """
        found_run(self.connection.rows(load("runs").find_run, name=name), name)
        return Run(self, name)

    def calibrate(self, budget_s: float = 60) -> list[Row]:
        """Measure what this machine and this database cost, for plans; return the rows kept.

        Nothing else should be busy meanwhile. A row with a `note` is no measurement.

        Raises:
            InvalidOption: the budget is no number of seconds from 1 to 3600.
            WorkerLost, GroupBroken
        """
        from mmdb.plan.profile.measurements import check_budget

        return list(self._call("calibrate", budget_s=check_budget(budget_s)))

    def stop_candidate(self, candidate_id: int) -> None:
        """Let a candidate do no more hops; its run goes on, and it can be resumed.

        Who trains the run heeds it within a second; where nobody does, whoever is next.

        Raises:
            CandidateNotFound
            CandidateStopped: it has failed.
        """
        self._call("stop_candidate", candidate_id=check_candidate_id(candidate_id))

    def resume_candidate(self, candidate_id: int) -> None:
        """Let a candidate that was stopped, or rests, train for all epochs of its run.

        Raises:
            CandidateNotFound, CandidateStopped
        """
        self._call("resume_candidate", candidate_id=check_candidate_id(candidate_id))

    def clone_candidate(self, candidate_id: int, config: Mapping[str, Any] | None = None) -> int:
        """Add a candidate to a run that goes on from another one's last checkpoint; return its id.

        Args:
            config: hyper-parameters that differ from the parent's.
        Raises:
            CandidateNotFound, StateNotFound, InvalidHyperparameter, DatasetDropped
        """
        given = json_text(config, "config")
        parent = check_candidate_id(candidate_id)
        return int(self._call("clone_candidate", candidate_id=parent, config=given))

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
        from mmdb.train.replay.saving import save_on_either_side  # imports torch

        asked = check_candidate_id(candidate_id)
        how: dict[str, Any] = {"approach": approach, "options": options}
        row = save_on_either_side(self.connection, asked, name, **how)
        return f"{row['name']}@{row['version']}"


def _warn(text: str) -> None:
    warnings.warn(text, MmdbWarning, stacklevel=6)
