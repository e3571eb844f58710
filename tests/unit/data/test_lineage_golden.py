"""Golden queries: what each output of a query is made from, told by hand, against what is found.

A case is a file in `lineage/`: the query, then an answer a line. The catalog is a real DuckDB;
tests/integration/test_lineage_query.py asks PostgreSQL the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import duckdb
import pytest

from mmdb.data.query import SourceColumn, analyse
from mmdb.db.connection import Relation, TableName, find_duckdb
from tests.lineage_cases import CASES, Case, Score, catalog, score

#: Of all output columns, how many must be right; none may be wrong.
RIGHT = 0.98
_CASES = [case for case in CASES if "duckdb" in case.engines]


class DuckCatalog:
    """The relations of a DuckDB."""

    def __init__(self, session: duckdb.DuckDBPyConnection) -> None:
        self.session = session

    def relation(self, name: TableName, beside: Relation | None = None) -> Relation | None:
        return find_duckdb(self.session, name, beside)


class Renamed(DuckCatalog):
    """The same, but that each table is a view of a table whose columns have other names."""

    def relation(self, name: TableName, beside: Relation | None = None) -> Relation | None:
        is_under = name.name.startswith(_UNDER)
        asked = replace(name, name=name.name.removeprefix(_UNDER))
        found = super().relation(asked, None if is_under else beside)
        if found is None or found.kind != "table":
            return found
        if is_under:
            columns = tuple((_UNDER + column, kind) for column, kind in found.columns)
            return replace(found, name=_UNDER + found.name, columns=columns)
        items = ", ".join(f'"{_UNDER}{column}" AS "{column}"' for column, _ in found.columns)
        definition = f'SELECT {items} FROM {found.schema}."{_UNDER}{found.name}"'
        return replace(found, kind="view", definition=definition)


_UNDER = "under "


def uncovered(source: SourceColumn) -> SourceColumn:
    """Return a source as it would be without the view on top of its table."""
    column = source.column and source.column.removeprefix(_UNDER)
    table = source.table.removeprefix(_UNDER)
    via = source.via[:-1] if source.table.startswith(_UNDER) else source.via
    return replace(source, table=table, column=column, via=via)


@pytest.fixture(scope="module")
def known() -> Iterator[DuckCatalog]:
    with duckdb.connect() as session:
        for statement in catalog("duckdb"):
            session.execute(statement)
        yield DuckCatalog(session)


def scored(known: DuckCatalog, case: Case) -> Score:
    path = ",".join(case.search_path) or "main"
    known.session.execute(f"SET search_path = '{path}'")
    columns = case.outputs
    if not case.is_hidden:
        columns = [d[0] for d in known.session.execute(f"DESCRIBE {case.query}").fetchall()]
    return score(case, "duckdb", known, columns)


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.name)
def test_names_behind_a_view_play_no_part(known: DuckCatalog, case: Case) -> None:
    known.session.execute(f"SET search_path = '{','.join(case.search_path) or 'main'}'")
    plain = analyse(case.query, "duckdb", known).sources
    behind = analyse(case.query, "duckdb", Renamed(known.session)).sources
    assert len(behind) == len(plain) > 0
    assert {uncovered(source) for source in behind} == set(plain)


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.name)
def test_no_source_is_wrong(known: DuckCatalog, case: Case) -> None:
    found = scored(known, case)
    assert not found.wrong, found.wrong


def test_nearly_every_output_is_right(known: DuckCatalog) -> None:
    scores = [scored(known, case) for case in _CASES]
    right, count = sum(s.right for s in scores), sum(s.count for s in scores)
    assert count > 150
    assert right >= RIGHT * count, [s.unresolved for s in scores if s.unresolved]
