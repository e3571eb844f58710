"""Reads what reports of runs and models show, through the views alone, as of one moment."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from mmdb.data.names import found_run, reference_of
from mmdb.db.connection import Connection, Row
from mmdb.db.duck import DuckConnection
from mmdb.db.install import ensure_duckdb, is_installed
from mmdb.db.queries import Query, load
from mmdb.db.url import AnyConnection, connect
from mmdb.errors import ModelNotFound, NotInstalled, WrongUrl
from mmdb.lineage.finding import find, lineage
from mmdb.lineage.graph import Direction
from mmdb.messages import show
from mmdb.report.lineage_graph import LineageEdge, LineageGraph, graph_of
from mmdb.report.parts import LEADERS, Lineage, Rows, Section, short, value_text


@contextmanager
def connected_to_read(url: str) -> Iterator[AnyConnection]:
    """Open a database for reports.

    Raises:
        WrongUrl, DatabaseLocked, NotInstalled, MigrationMismatch
    """
    connection = connect_to_read(url)
    try:
        if isinstance(connection, DuckConnection):
            ensure_duckdb(connection)
        elif not is_installed(connection):
            raise NotInstalled("mmdb is not installed in this database.")
        yield connection
    finally:
        connection.close()


def connect_to_read(url: str) -> AnyConnection:
    """Open a database that is there: a DuckDB file is not made, and reads no other file.

    Raises:
        WrongUrl, DatabaseLocked
    """
    file = unquote(url.removeprefix("duckdb://")).removeprefix("/")
    if url.startswith("duckdb:///") and file not in ("", ":memory:") and not Path(file).exists():
        raise WrongUrl(f"There is no file {file}.", hint="`mmdb install URL` makes one.")
    connection = connect(url)
    if isinstance(connection, DuckConnection):
        connection.shut_in()
    return connection


NOTE = (
    "What came first is at the top. Choose one to see what it came from and what came of it; "
    "Escape shows all of it again."
)


class LineagePart(NamedTuple):
    """A walk whose edges a graph has."""

    entity: str
    direction: Direction
    max_depth: int | None = None


def lineage_of(connection: Connection, entity: str) -> LineageGraph | None:
    """Return the graph of both directions, or None where there are no edges.

    Raises:
        EntityNotFound, AmbiguousEntity
    """
    subject = find(connection, entity).node
    return lineage_graph(
        connection, subject, [LineagePart(subject, "up"), LineagePart(subject, "down")]
    )


def lineage_graph(
    connection: Connection, subject: str, parts: Iterable[LineagePart]
) -> LineageGraph | None:
    """Return the graph of several walks, or None where they have no edges.

    Raises:
        EntityNotFound, AmbiguousEntity
    """
    found: dict[LineageEdge, None] = {}
    for entity, direction, max_depth in parts:
        for step in lineage(connection, entity, direction, max_depth=max_depth):
            found[(step.parent, step.child, step.via or "")] = None
    return graph_of(found, subject) if found else None


def lineage_section(graph: LineageGraph | None) -> Section | None:
    """Return the section, or None where nothing is known."""
    if graph is None:
        return None
    left = f" {graph.left_out:,} more are too far away to be drawn." if graph.left_out else ""
    return Section(key="lineage", title="Lineage", lineage=Lineage(graph=graph, note=NOTE + left))


_RUN_QUERIES, _MODEL_QUERIES = load("report"), load("report_models")
#: Models of a run whose lineage is drawn, the last of them.
DRAWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Rows of the views, those of the run alone."""

    run: Row
    board: Rows  # the best candidate first; configurations as dictionaries
    models: Rows = ()
    epochs: Rows = ()
    hops: Rows = ()  # by worker, in order
    plan: Rows = ()  # what was said before the run began, or last; the best way first
    outcome: Row | None = None
    lineage: LineageGraph | None = None
    features: Rows = ()  # of frozen layers
    groups: Rows = ()  # of its last model, one per group: those that do worst

    @property
    def varied(self) -> list[str]:
        """Hyper-parameters that differ between candidates."""
        keys = dict.fromkeys(key for row in self.board for key in row["config"])
        return [k for k in keys if len({_frozen(row["config"].get(k)) for row in self.board}) > 1]

    @property
    def leaders(self) -> dict[int, str]:
        """Names of the best candidates, which have a colour each, in all charts the same."""
        varied = self.varied
        found = {}
        for row in self.board[:LEADERS]:
            values = {k.removeprefix("architecture."): row["config"].get(k) for k in varied}
            given = value_text({k: v for k, v in values.items() if v is not None})
            found[row["candidate_id"]] = short(f"{row['candidate_id']}  {given}".strip())
        return found


def read_run(connection: Connection, name: str) -> RunFacts:
    """Return what the views say of a run.

    Raises:
        RunNotFound
    """
    with connection.snapshot():
        found = connection.rows(_RUN_QUERIES.find_run, run=name)
        found_run(found, name)
        plans = connection.rows(_RUN_QUERIES.find_plans, run=name)
        plan_id = _told_most(plans, found[0]["started"])
        board = read_board(connection, name)
        models = connection.rows(_RUN_QUERIES.find_models, run=name)
        return RunFacts(
            run=found[0],
            models=models,
            board=board,
            epochs=connection.rows(_RUN_QUERIES.find_epochs, run=name),
            hops=connection.rows(_RUN_QUERIES.find_hops, run=name, candidate_id=None),
            plan=connection.rows(_RUN_QUERIES.find_plan, run=name, plan_id=plan_id),
            outcome=next(iter(connection.rows(_RUN_QUERIES.find_outcome, run=name)), None),
            lineage=_lineage(connection, found[0], models, board),
            features=connection.rows(_RUN_QUERIES.find_features, run=name),
            groups=find_groups(connection, **models[0]) if models else (),
        )


def find_groups(connection: Connection, *, model: str, version: int, **_: object) -> Rows:
    """Return the groups of a model that do worst; none of one that has no groups."""
    return connection.rows(_MODEL_QUERIES.find_groups, model=model, version=version)


def read_board(connection: Connection, run: str) -> list[Row]:
    """Return a run's candidates, the best first; configurations as dictionaries."""
    rows = connection.rows(_RUN_QUERIES.find_board, run=run)
    return [{**row, "config": json.loads(row["config"])} for row in rows]


def _lineage(connection: Connection, run: Row, models: Rows, board: Rows) -> LineageGraph | None:
    """Return where the run's models came from and what came of them; of its best state where no
    model was saved.
    """
    subject = f"run:{run['run']}"
    parts = [LineagePart(subject, "up"), LineagePart(subject, "down", 1)]
    for row in models[:DRAWN]:
        model = f"model:{row['model']}@{row['version']}"
        parts += [LineagePart(model, "up"), LineagePart(model, "down")]
    best = next((row for row in board if row["best_epoch"] is not None), None)
    if not models and best is not None:
        parts.append(LineagePart(f"checkpoint:{best['candidate_id']}/{best['best_epoch']}", "up"))
    return lineage_graph(connection, subject, parts)


def _told_most(plans: Rows, started: float | None) -> int | None:
    """Return the plan to be shown: before training the last one; then, of those made before it
    began and for this machine, one with the most ways. What train itself asks for is narrow.
    """
    before = [p for p in plans if started is not None and p["planned"] <= started]
    shown = [p for p in before if not p["simulated"]] or plans[:1]
    return max(shown, key=lambda p: int(p["ways"]))["plan_id"] if shown else None


def _frozen(value: Any) -> str:
    return json.dumps(value, sort_keys=True) if isinstance(value, Mapping | list) else repr(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Rows of the views, those of the model alone."""

    model: Row
    versions: Rows  # all of the name, the first first
    metrics: Rows  # of all versions
    aliases: Rows  # their history
    tags: Rows
    notes: Rows
    tensors: Rows
    storage: Row | None
    origin: Row | None  # of one that was not made here
    evaluations: Rows  # what it was measured by, the last call first
    figures: Mapping[str, Any]  # of its last evaluation, and of its last importance
    groups: Rows  # those that do worst, of a model per group
    predictions: Rows  # that it wrote to tables, the last first
    epochs: Rows  # of the candidate it was
    hops: Rows
    transfers: Rows
    outcome: Row | None  # of its run
    lineage: LineageGraph | None


def read_model(connection: Connection, reference: str) -> ModelFacts:
    """Return what the views say of a model's version; a dropped one by its number alone.

    Raises:
        ModelNotFound
    """
    asked = reference_of(reference)
    with connection.snapshot():
        rows = asked and connection.rows(
            _MODEL_QUERIES.find_version, model=asked.name, version=asked.version, alias=asked.alias
        )
        if not asked or not rows:
            raise ModelNotFound(f"There is no model named {show(reference)}.")
        model = {**rows[0], "reason": json.loads(rows[0]["reason"] or "null")}
        name, version = asked.name, model["version"]
        of = {"run": model["run"], "candidate_id": model["candidate_id"]}
        trained = model["run"] is not None
        this = {"model": name, "version": version}

        def first(query: Query, **parameters: object) -> Row | None:
            return next(iter(connection.rows(query, **parameters)), None)

        return ModelFacts(
            model=model,
            versions=connection.rows(_MODEL_QUERIES.find_versions, model=name),
            metrics=connection.rows(_MODEL_QUERIES.find_model_metrics, model=name),
            aliases=connection.rows(_MODEL_QUERIES.find_alias_history, model=name),
            tags=connection.rows(_MODEL_QUERIES.find_tags, **this),
            notes=connection.rows(_MODEL_QUERIES.find_notes, **this),
            tensors=connection.rows(_MODEL_QUERIES.find_tensors, **this),
            storage=first(_MODEL_QUERIES.find_storage, **this),
            origin=first(_MODEL_QUERIES.find_origin, **this),
            evaluations=connection.rows(_MODEL_QUERIES.find_evaluations, **this),
            figures=_figures(connection.rows(_MODEL_QUERIES.find_figures, **this)),
            groups=find_groups(connection, **this),
            predictions=connection.rows(_MODEL_QUERIES.find_predictions, **this),
            epochs=connection.rows(_MODEL_QUERIES.find_candidate_epochs, **of) if trained else [],
            hops=connection.rows(_RUN_QUERIES.find_hops, **of) if trained else [],
            transfers=connection.rows(_MODEL_QUERIES.find_transfer, **of) if trained else [],
            outcome=first(_RUN_QUERIES.find_outcome, run=model["run"]) if trained else None,
            lineage=lineage_of(connection, f"model:{name}@{version}"),
        )


def _figures(rows: Rows) -> dict[str, Any]:
    """Return what is drawn by its kind, each from the last call that has it, with `of`: on what."""
    found: dict[str, Any] = {}
    for row in rows:
        of = row["query"] or " ".join(filter(None, (row["dataset"], row["slice"])))
        about = {"of": of, "row_count": row["row_count"], "evaluated": row["evaluated"]}
        figures = json.loads(row["figures"])
        kind = "importance" if "importance" in figures else "errors"
        found.setdefault(kind, {**figures, **about})
    return found
