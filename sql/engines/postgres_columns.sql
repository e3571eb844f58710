-- The columns of mmdb's views, with what is said of them.
SELECT
    c.relname::text AS view_name,
    pg_catalog.obj_description(c.oid, 'pg_class') AS view_comment,
    a.attnum::integer AS ordinal,
    a.attname::text AS column_name,
    pg_catalog.format_type(a.atttypid, a.atttypmod) AS column_type,
    pg_catalog.col_description(c.oid, a.attnum) AS column_comment
FROM pg_catalog.pg_class AS c
INNER JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid
INNER JOIN pg_catalog.pg_attribute AS a ON c.oid = a.attrelid
WHERE n.nspname = 'mmdb' AND c.relkind = 'v' AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY view_name, ordinal;
