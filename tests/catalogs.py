"""Schema mmdb as the catalogs of PostgreSQL and DuckDB describe it."""

from __future__ import annotations

import json

from mmdb.db.url import connect

POSTGRES_CATALOG = {
    "columns": """
        SELECT
            c.relname, c.relkind::text AS kind, a.attname,
            format_type(a.atttypid, a.atttypmod) AS type,
            a.attnotnull, a.attidentity::text AS identity, a.attstorage::text AS storage,
            pg_get_expr(d.adbin, d.adrelid) AS value,
            row_number() OVER (PARTITION BY c.oid ORDER BY a.attnum) AS place,
            col_description(c.oid, a.attnum) AS comment
        FROM pg_class AS c
        INNER JOIN pg_attribute AS a ON c.oid = a.attrelid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_attrdef AS d ON c.oid = d.adrelid AND a.attnum = d.adnum
        WHERE c.relnamespace = 'mmdb'::regnamespace AND c.relkind NOT IN ('i', 'I')
    """,
    "relations": """
        SELECT
            c.relname, c.relkind::text AS kind, c.relpersistence::text AS persistence,
            c.reloptions, pg_get_expr(c.relpartbound, c.oid) AS bound,
            pg_get_viewdef(c.oid) AS view, obj_description(c.oid) AS comment
        FROM pg_class AS c
        WHERE c.relnamespace = 'mmdb'::regnamespace
    """,
    "constraints": """
        SELECT
            c.conrelid::regclass::text AS relation, c.conname,
            pg_get_constraintdef(c.oid) AS definition
        FROM pg_constraint AS c
        WHERE c.connamespace = 'mmdb'::regnamespace
    """,
    "indexes": """
        SELECT pg_get_indexdef(i.indexrelid) AS definition
        FROM pg_index AS i
        INNER JOIN pg_class AS c ON i.indrelid = c.oid
        WHERE c.relnamespace = 'mmdb'::regnamespace
    """,
    "functions": """
        SELECT p.oid::regprocedure::text AS function, pg_get_functiondef(p.oid) AS definition
        FROM pg_proc AS p
        WHERE p.pronamespace = 'mmdb'::regnamespace
    """,
}
DUCKDB_CATALOG = {
    "columns": """
        SELECT
            table_name, column_name, data_type, is_nullable, lower(column_default) AS value,
            column_index, comment
        FROM duckdb_columns() WHERE schema_name = 'mmdb'
    """,
    "tables": "SELECT table_name, comment FROM duckdb_tables() WHERE schema_name = 'mmdb'",
    "views": "SELECT view_name, sql, comment FROM duckdb_views() WHERE schema_name = 'mmdb'",
    "constraints": """
        SELECT table_name, constraint_type, constraint_text, constraint_column_names
        FROM duckdb_constraints() WHERE schema_name = 'mmdb'
    """,
    "indexes": "SELECT sql FROM duckdb_indexes() WHERE schema_name = 'mmdb'",
    "sequences": "SELECT sequence_name FROM duckdb_sequences() WHERE schema_name = 'mmdb'",
}


def described(url: str) -> dict[str, list[str]]:
    """Return what the catalog says of schema mmdb, as sorted lines by kind of object."""
    connection = connect(url)
    catalog = DUCKDB_CATALOG if connection.engine == "duckdb" else POSTGRES_CATALOG
    try:
        return {
            kind: sorted(json.dumps(dict(row), default=str) for row in connection.select(sql))
            for kind, sql in catalog.items()
        }
    finally:
        connection.close()
