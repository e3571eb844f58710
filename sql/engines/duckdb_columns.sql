-- The columns of mmdb's views, with what is said of them.
SELECT
    v.view_name,
    v.comment AS view_comment,
    c.column_index AS ordinal,
    c.column_name,
    c.data_type AS column_type,
    c.comment AS column_comment
FROM duckdb_views() AS v
INNER JOIN duckdb_columns() AS c ON v.database_oid = c.database_oid AND v.schema_oid = c.schema_oid AND v.view_oid = c.table_oid
WHERE v.database_name = current_database() AND v.schema_name = 'mmdb'
ORDER BY v.view_name, c.column_index;
