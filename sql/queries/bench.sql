-- name: find_tables
-- Tables that a bench made.
SELECT t.table_name
FROM information_schema.tables AS t
WHERE t.table_name LIKE %(prefix)s::text AND t.table_schema <> 'mmdb';

-- name: delete_definitions
-- What it takes to build modules that no model is of any more.
DELETE FROM mmdb.definition
WHERE NOT EXISTS (
    SELECT 1 FROM mmdb.model AS m
    WHERE m.definition_id = definition.definition_id
);
