"""The views for other tools: as Parquet files, and as a source of dbt."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mmdb.db.columnar import ViewColumns, find_views, read_view
from mmdb.db.connection import Row
from mmdb.db.url import AnyConnection
from mmdb.errors import InvalidOption
from mmdb.messages import show
from mmdb.standards.identity import declared_keys
from mmdb.store.files.atomic import replacing, writing

_ABOUT = "Models, runs and lineage of mmdb: its views, which the role mmdb_reader may select from."


def dbt_sources(connection: AnyConnection) -> str:
    """Return the views of an open database as the text of a `sources.yml`."""
    return sources(find_views(connection), declared_keys(connection))


def sources(views: Iterable[ViewColumns], keys: Iterable[Row]) -> str:
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


def _view(view: ViewColumns, keys: Sequence[Row]) -> Iterator[str]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetFile:
    """A file with the rows of a view."""

    view: str
    file: str
    rows: int
    bytes: int


def export_parquet(
    connection: AnyConnection, folder: str | Path, only: Sequence[str] = ()
) -> list[ParquetFile]:
    """Write views, all if `only` is empty, as `Database.export_parquet` does.

    Compressed by zstd; comments of columns lie in the files too. The views are read one after the
    other, each whole; where others write meanwhile, a later one may know more than an earlier.
    """
    views = chosen(find_views(connection), only)
    keys = _keys(connection, views)
    target = Path(folder)
    found = [_write(connection, view, target) for view in views]
    about = [_about(view, written, keys) for view, written in zip(views, found, strict=True)]
    with replacing(target / "views.json", overwrite=True) as file:
        text = json.dumps({"format": 1, "views": about}, indent=2, ensure_ascii=False)
        file.write(text.encode() + b"\n")
    return found


def chosen(views: Iterable[ViewColumns], only: Sequence[str]) -> list[ViewColumns]:
    """Return the views of these names, or all.

    Raises:
        InvalidOption: there is no such view.
    """
    by_name = {view.name: view for view in views}
    for name in only:
        if name not in by_name:
            raise InvalidOption(
                f"There is no view {show(name)}.", hint=f"Views: {', '.join(by_name)}."
            )
    return [view for name, view in by_name.items() if not only or name in only]


def _write(connection: AnyConnection, view: ViewColumns, folder: Path) -> ParquetFile:
    path = folder / f"{view.name}.parquet"
    schema, batches = read_view(connection, view.name)
    comments = {column.name: column.comment for column in view.columns}
    fields = [
        field.with_metadata({"comment": text}) if (text := comments.get(field.name)) else field
        for field in schema
    ]
    schema = pa.schema(fields, metadata={"comment": view.comment or ""})
    rows = 0
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with replacing(path, overwrite=True) as file:
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for batch in batches:
                writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
                rows += batch.num_rows
        size = file.tell()
    return ParquetFile(view=view.name, file=path.name, rows=rows, bytes=size)


def _about(
    view: ViewColumns, written: ParquetFile, keys: dict[str, list[dict[str, Any]]]
) -> dict[str, Any]:
    return {
        "view": view.name,
        "file": written.file,
        "comment": view.comment,
        "rows": written.rows,
        "columns": [{"name": c.name, "type": c.type, "comment": c.comment} for c in view.columns],
        "keys": keys.get(view.name, []),
    }


def _keys(
    connection: AnyConnection, views: Sequence[ViewColumns]
) -> dict[str, list[dict[str, Any]]]:
    """Return the declared keys of each view."""
    found: dict[str, list[dict[str, Any]]] = {view.name: [] for view in views}
    for row in declared_keys(connection):
        if row["view_name"] in found:
            key = {"key": row["key"], "column": row["column_name"], "kind": row["kind"]}
            found[row["view_name"]].append(
                key | {"refers_to": row["refers_to"], "refers_column": row["refers_column"]}
            )
    return found
