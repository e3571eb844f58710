-- name: table_columns
-- Columns of a table or view, by its name with or without a schema.
SELECT
    c.column_name AS name,
    c.data_type AS type
FROM information_schema.columns AS c
WHERE
    (
        lower(c.table_schema::text || '.' || c.table_name::text) = lower(%(table)s::text)
        OR lower(c.table_name::text) = lower(%(table)s::text)
    )
    AND c.table_schema NOT IN ('information_schema', 'pg_catalog')
ORDER BY c.table_schema, c.ordinal_position;

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
