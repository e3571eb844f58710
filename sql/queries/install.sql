-- name: read_committed
-- See, once the lock is taken, what the install before this one has done.
SET LOCAL transaction_isolation = 'read committed';

-- name: lock_install
-- One install at a time in this database.
SELECT pg_catalog.pg_advisory_xact_lock(1835889764);

-- name: pin_search_path
-- Install with names resolved in the catalog alone.
SET LOCAL search_path = pg_catalog, pg_temp;

-- name: find_schema
-- Rows if there is a schema mmdb, and whether it is ours.
SELECT c.oid IS NOT NULL AS installed
FROM pg_catalog.pg_namespace AS n
LEFT JOIN pg_catalog.pg_class AS c ON n.oid = c.relnamespace AND c.relname = 'migration'
WHERE n.nspname = 'mmdb';

-- name: find_extension
-- Whether the server has PL/Python, and whether this database does.
SELECT e.installed_version IS NOT NULL AS installed
FROM pg_catalog.pg_available_extensions AS e
WHERE e.name = 'plpython3u';

-- name: create_extension
-- Enable PL/Python in this database.
CREATE EXTENSION IF NOT EXISTS plpython3u;

-- name: create_schema
-- Make the schema that holds all of mmdb.
CREATE SCHEMA mmdb;

-- name: applied_migrations
-- The migrations that the database has; of numbered ones the digest says which they are.
SELECT
    m.number,
    CASE WHEN m.number <= 0 THEN m.name END AS name,
    m.digest
FROM mmdb.migration AS m
ORDER BY m.number;

-- name: record_migration
-- Note that the database has a migration.
INSERT INTO mmdb.migration (number, name, digest)
VALUES (%(number)s::integer, %(name)s::text, %(digest)s::text)
ON CONFLICT (number) DO UPDATE
    SET name = excluded.name, digest = excluded.digest, applied_at = excluded.applied_at;

-- name: forget_teams
-- Note that the database has teams no longer.
DELETE FROM mmdb.migration
WHERE number = -2;
