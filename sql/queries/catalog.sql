-- name: find_relation
-- A table or view by its name: along the search_path, or in one schema. Views of the system are left closed.
SELECT
    CASE WHEN n.oid = pg_catalog.pg_my_temp_schema() THEN 'pg_temp' ELSE n.nspname::text END AS schema_name,
    c.relname::text AS name,
    CASE WHEN c.relkind IN ('v', 'm') THEN 'view' ELSE 'table' END AS kind,
    array(
        SELECT a.attname::text FROM pg_catalog.pg_attribute AS a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        ORDER BY a.attnum
    ) AS column_names,
    array(
        SELECT pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute AS a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        ORDER BY a.attnum
    ) AS column_types,
    CASE
        WHEN c.relkind IN ('v', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'mmdb')
            THEN pg_catalog.pg_get_viewdef(c.oid)
    END AS definition
FROM pg_catalog.pg_class AS c
INNER JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid
WHERE
    c.relname = %(name)s::text
    AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
    AND CASE
        WHEN %(schema)s::text IS NULL THEN pg_catalog.pg_table_is_visible(c.oid)
        WHEN %(schema)s::text = 'pg_temp' THEN n.oid = pg_catalog.pg_my_temp_schema()
        ELSE n.nspname = %(schema)s::text
    END;

-- name: find_target
-- A table by its name as SQL text, its columns in order, and the schema that it is in or would be made in.
-- A vector's type is shown with its length.
SELECT
    coalesce(n.nspname, s.nspname)::text AS schema_name,
    c.relname::text AS table_name,
    c.relkind IN ('r', 'p') AS is_base,
    a.attname::text AS column_name,
    pg_catalog.format_type(a.atttypid, CASE WHEN t.typname = 'vector' THEN a.atttypmod END) AS type,
    pg_catalog.format_type(a.atttypid, -1) AS key_cast
FROM (SELECT pg_catalog.to_regclass(%(name)s::text) AS found) AS f
LEFT JOIN pg_catalog.pg_class AS c ON f.found::oid = c.oid
LEFT JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid
LEFT JOIN pg_catalog.pg_namespace AS s
    ON coalesce(%(schema)s::text, pg_catalog.current_schema()::text) = s.nspname
LEFT JOIN pg_catalog.pg_attribute AS a
    ON c.oid = a.attrelid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_type AS t ON a.atttypid = t.oid
ORDER BY a.attnum;

-- name: find_factories
-- The allow-list of factories.
SELECT
    f.name,
    f.target
FROM mmdb.factory AS f
ORDER BY f.name;

-- name: add_factory
-- Register a factory.
INSERT INTO mmdb.factory (name, target) VALUES (%(name)s::text, %(target)s::text);

-- name: find_setting
-- One setting of the owner's.
SELECT s.value
FROM mmdb.setting AS s
WHERE s.name = %(name)s::text;

-- name: has_written
-- Whether the transaction has changed anything so far.
SELECT pg_current_xact_id_if_assigned() IS NOT NULL AS written;
