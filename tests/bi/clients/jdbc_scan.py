"""Reads a schema through pgjdbc as Metabase does when it syncs one. Prints JSON.

jdbc_scan.py JDBC_URL USER PASSWORD SCHEMA
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jaydebeapi

JARS = ("postgresql", "scram-client", "scram-common", "stringprep")
KINDS = ("TABLE", "PARTITIONED TABLE", "VIEW", "FOREIGN TABLE", "MATERIALIZED VIEW")
#: What the login may read; other tables are not synced.
READABLE = """
SELECT t.relname::text
FROM pg_catalog.pg_class AS t
INNER JOIN pg_catalog.pg_namespace AS n ON n.oid = t.relnamespace
WHERE n.nspname = ? AND t.relkind IN ('r', 'p', 'v', 'f', 'm')
    AND pg_catalog.has_schema_privilege(current_user, n.oid, 'usage')
    AND pg_catalog.has_any_column_privilege(current_user, t.oid, 'select')
"""
FINGERPRINTED = 10_000  # rows
TEXT_WIDTH = 1_234  # characters of a text that are looked at


def main() -> None:
    """Print what a sync finds."""
    url, user, password, schema = sys.argv[1:]
    connection = jaydebeapi.connect(
        "org.postgresql.Driver",
        url,
        {"user": user, "password": password, "ApplicationName": "Metabase sync"},
        [str(Path("/usr/share/java") / f"{name}.jar") for name in JARS],
    )
    connection.jconn.setReadOnly(True)
    connection.jconn.setAutoCommit(False)
    data = connection.jconn.getMetaData()
    readable = {name for (name,) in rows(connection, READABLE, (schema,))}
    tables = {
        row["TABLE_NAME"]: {"kind": row["TABLE_TYPE"], "remarks": row["REMARKS"]}
        for row in listed(data.getTables(None, schema, "%", list(KINDS)))
    }
    columns: dict[str, list[dict[str, Any]]] = {}
    for row in listed(data.getColumns(None, schema, "%", None)):
        columns.setdefault(row["TABLE_NAME"], []).append(
            {"name": row["COLUMN_NAME"], "type": row["TYPE_NAME"], "remarks": row["REMARKS"]}
        )
    found = {
        "driver": data.getDriverVersion(),
        "readable": sorted(readable),
        "tables": tables,
        "columns": columns,
        "primary": {t: names(data.getPrimaryKeys(None, schema, t), "COLUMN_NAME") for t in tables},
        "imported": {
            t: names(data.getImportedKeys(None, schema, t), "PKTABLE_NAME") for t in tables
        },
        "fingerprints": {
            name: fingerprint(connection, schema, name, columns[name]) for name in sorted(readable)
        },
    }
    connection.close()
    print(json.dumps(found, default=str))


def fingerprint(
    connection: Any, schema: str, table: str, columns: list[dict[str, Any]]
) -> dict[str, Any]:
    """Read the first rows of a table, each column by its name; texts are cut."""
    selected = ", ".join(
        f'substring("{schema}"."{table}"."{c["name"]}", 1, {TEXT_WIDTH}) AS "{c["name"]}"'
        if c["type"] == "text"
        else f'"{schema}"."{table}"."{c["name"]}" AS "{c["name"]}"'
        for c in columns
    )
    found = rows(connection, f'SELECT {selected} FROM "{schema}"."{table}" LIMIT {FINGERPRINTED}')
    distinct = {c["name"]: len({str(row[k]) for row in found}) for k, c in enumerate(columns)}
    return {"rows": len(found), "distinct": distinct}


def rows(connection: Any, query: str, parameters: tuple[object, ...] = ()) -> list[Any]:
    """Return all rows of a query."""
    cursor = connection.cursor()
    cursor.execute(query, parameters)
    found = list(cursor.fetchall())
    cursor.close()
    return found


def listed(result: Any) -> list[dict[str, Any]]:
    """Return the rows of a result set of metadata by column."""
    shape = result.getMetaData()
    names = [str(shape.getColumnName(k + 1)).upper() for k in range(shape.getColumnCount())]
    found = []
    while result.next():
        texts = [result.getString(k + 1) for k in range(len(names))]
        found.append({n: None if t is None else str(t) for n, t in zip(names, texts, strict=True)})
    return found


def names(result: Any, column: str) -> list[str]:
    """Return one column of a result set of metadata."""
    return [row[column] for row in listed(result)]


if __name__ == "__main__":
    main()
