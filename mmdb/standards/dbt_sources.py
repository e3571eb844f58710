"""The views as a source of dbt: their comments as descriptions, their keys as tests."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from mmdb.db.columnar import View, find_views
from mmdb.db.connection import Row
from mmdb.db.url import AnyConnection
from mmdb.standards.identity import declared_keys

_ABOUT = "Models, runs and lineage of mmdb: its views, which the role mmdb_reader may select from."


def dbt_sources(connection: AnyConnection) -> str:
    """Return the views of an open database as the text of a `sources.yml`."""
    return sources(find_views(connection), declared_keys(connection))


def sources(views: Iterable[View], keys: Iterable[Row]) -> str:
    """Return the text of a `sources.yml`; equal views give equal text.

    Args:
        keys: of `declared_keys`. A key of one column is tested to be unique and not null, the
            columns of a longer one to be not null, one that refers to another view to be there.
    """
    by_view: defaultdict[str, list[Row]] = defaultdict(list)
    for row in keys:
        by_view[row["view_name"]].append(row)
    lines = ["version: 2", "", "sources:", "  - name: mmdb", "    schema: mmdb"]
    lines += [f"    description: {_text(_ABOUT)}", "    tables:"]
    for view in views:
        lines += _view(view, by_view[view.name])
    return "\n".join(lines) + "\n"


def _view(view: View, keys: Sequence[Row]) -> Iterator[str]:
    yield f"      - name: {view.name}"
    if view.comment:
        yield f"        description: {_text(view.comment)}"
    yield "        columns:"
    tests = _tests(keys)
    for column in view.columns:
        yield f"          - name: {column.name}"
        if column.comment:
            yield f"            description: {_text(column.comment)}"
        if column.name in tests:
            yield "            data_tests:"
            yield from (f"              {line}" for line in tests[column.name])


def _tests(keys: Sequence[Row]) -> Mapping[str, list[str]]:
    """Return the tests of a view's columns, each a list of lines."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    length = Counter(row["key"] for row in keys)
    for row in keys:
        tests = found[row["column_name"]]
        if row["kind"] == "primary":
            tests.append("- not_null")
        if row["kind"] == "foreign":
            tests += [
                "- relationships:",
                "    arguments:",
                f"      to: source('mmdb', '{row['refers_to']}')",
                f"      field: {row['refers_column']}",
            ]
        elif length[row["key"]] == 1:
            tests.append("- unique")
    return {name: tests for name, tests in found.items() if tests}


def _text(value: str) -> str:
    """Return a text in quotes, as JSON and so as YAML; dbt would take braces for its own."""
    return json.dumps(value.replace("{{", "{ {").replace("{%", "{ %"), ensure_ascii=False)
