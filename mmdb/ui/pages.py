"""What is served: reports of runs and models, lists of them, lineage; each with its state."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from mmdb.data.names import found_run, reference_of
from mmdb.db.check import shown
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import EntityNotFound, InputError, ModelNotFound, NotFound
from mmdb.messages import bytes_text, seconds_text, show
from mmdb.report.facts import lineage_of, lineage_section
from mmdb.report.parts import (
    ReportContent,
    Section,
    Table,
    TableColumn,
    telling,
    time_text,
    value_text,
)
from mmdb.report.subject_reports import model_report, run_report

_Q = load("ui")
#: Rows of the first page's lists, and of a list alone.
FEW, MANY = 20, 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of page: what it says, and what changes when that does."""

    report: Callable[[Connection, str], ReportContent]
    state: Callable[[Connection, str], list[Row]]


def address_of(entity: str) -> str:
    """Return where an entity's page is.

    >>> address_of("model:resnet@3"), address_of("column:public.orders.total")
    ('/model/resnet@3', '/lineage/column:public.orders.total')
    """
    kind, _, name = entity.partition(":")
    return path_of(kind, name) if kind in ("run", "model") else path_of("lineage", entity)


def path_of(start: str, name: str) -> str:
    """Return the address of what a page of some start says of a name.

    >>> path_of("run", "a/b"), path_of("state/run", "a/../b")
    ('/run/a/b', '/state/run/?name=a%2F..%2Fb')
    """
    # A browser resolves dots between slashes, and a route's pattern ends at a newline.
    if "\n" in name or not {".", ".."}.isdisjoint(name.split("/")):
        return f"/{start}/?{urlencode({'name': name})}"
    return f"/{start}/{quote(name, safe='/@:')}"


def tag_of(rows: list[Row]) -> str:
    """Return a short text that differs where rows do."""
    texts = [repr(sorted((key, str(value)) for key, value in row.items())) for row in rows]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:20]


def first_page(url: str) -> Kind:
    """Return the page of a database: its last runs and models."""

    def report(connection: Connection, _: str) -> ReportContent:
        sections = (
            _section("runs", "Runs", _runs(connection, FEW)),
            _section("models", "Models", _models(connection, FEW)),
        )
        return ReportContent(kind="database", name=shown(url), made=time.time(), sections=sections)

    return Kind(report=report, state=_state)


def _all_runs(connection: Connection, _: str) -> ReportContent:
    section = _section("runs", "Runs", _runs(connection, MANY))
    return ReportContent(kind="all", name="runs", made=time.time(), sections=(section,))


def _all_models(connection: Connection, _: str) -> ReportContent:
    section = _section("models", "Models", _models(connection, MANY))
    return ReportContent(kind="all", name="models", made=time.time(), sections=(section,))


def _lineage(connection: Connection, entity: str) -> ReportContent:
    with connection.snapshot():
        section = lineage_section(lineage_of(connection, entity))
    if section is None:
        raise EntityNotFound(f"{show(entity)} has no lineage: nothing came of it.")
    return ReportContent(kind="lineage of", name=entity, made=time.time(), sections=(section,))


def _run_state(connection: Connection, name: str) -> list[Row]:
    rows = connection.rows(_Q.run_state, run=name)
    found_run(rows, name)
    return rows


def _model_state(connection: Connection, reference: str) -> list[Row]:
    asked = reference_of(reference)
    if asked is None:
        raise ModelNotFound(f"There is no model named {show(reference)}.")
    return connection.rows(_Q.model_state, model=asked.name)


def _lineage_state(connection: Connection, _: str) -> list[Row]:
    return [*connection.rows(_Q.lineage_state), *_models_state(connection, _)]


def _runs_state(connection: Connection, _: str) -> list[Row]:
    return connection.rows(_Q.runs_state)


def _models_state(connection: Connection, _: str) -> list[Row]:
    return connection.rows(_Q.models_state)


def _state(connection: Connection, _: str) -> list[Row]:
    return [*_runs_state(connection, _), *_models_state(connection, _)]


KINDS = {
    "run": Kind(report=run_report, state=_run_state),
    "model": Kind(report=model_report, state=_model_state),
    "lineage": Kind(report=_lineage, state=_lineage_state),
    "runs": Kind(report=_all_runs, state=_runs_state),
    "models": Kind(report=_all_models, state=_models_state),
}


def status_of(error: Exception) -> int:
    """Return the HTTP status that stands for an error."""
    if isinstance(error, NotFound):
        return 404
    return 400 if isinstance(error, InputError) else 503


def _section(key: str, title: str, table: Table | None) -> Section:
    if table is None:
        return Section(key=key, title=title, texts=(f"There are no {title.lower()} yet.",))
    return Section(key=key, title=title, tables=(table,))


def _runs(connection: Connection, most: int) -> Table | None:
    rows = [
        {
            **row,
            "hops": f"{row['hops_done']:,} of {row['hops_total']:,}",
            "entity": f"run:{row['run']}",
            "dataset_entity": f"dataset:{row['dataset']}",
        }
        for row in connection.rows(_Q.list_runs, most=most)
    ]
    columns = (
        TableColumn(key="run", label="run", entity="entity"),
        TableColumn(key="status", label="status"),
        TableColumn(key="dataset", label="dataset", entity="dataset_entity"),
        TableColumn(key="strategy", label="strategy"),
        TableColumn(key="candidates", label="candidates", right=True),
        TableColumn(key="hops", label="hops", right=True),
        TableColumn(key="metric", label="metric"),
        TableColumn(key="best_value", label="best", show=value_text, right=True),
        TableColumn(key="seconds_left", label="left", show=seconds_text, right=True),
        TableColumn(key="created", label="created", show=time_text),
    )
    told = telling(columns, rows)
    return Table(key="runs", title="Runs", columns=told, rows=rows) if rows else None


def _models(connection: Connection, most: int) -> Table | None:
    rows = [
        {
            **row,
            "reference": f"{row['model']}@{row['version']}",
            "entity": f"model:{row['model']}@{row['version']}",
            "parent_entity": row["parent"] and f"model:{row['parent']}",
            "run_entity": row["run"] and f"run:{row['run']}",
            "dataset_entity": row["dataset"] and f"dataset:{row['dataset']}",
        }
        for row in connection.rows(_Q.list_models, most=most)
    ]
    columns = (
        TableColumn(key="reference", label="model", entity="entity"),
        TableColumn(key="dataset", label="dataset", entity="dataset_entity"),
        TableColumn(key="run", label="run", entity="run_entity"),
        TableColumn(key="parent", label="parent", entity="parent_entity"),
        TableColumn(key="approach", label="kept as"),
        TableColumn(key="byte_count", label="size", show=bytes_text, right=True),
        TableColumn(key="stored_bytes", label="stored for it", show=bytes_text, right=True),
        TableColumn(key="created", label="saved", show=time_text),
    )
    told = telling(columns, rows)
    return Table(key="models", title="Models", columns=told, rows=rows) if rows else None
