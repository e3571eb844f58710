-- name: identify
-- Which server and database a session is with, and whether it only replays another's changes.
SELECT
    c.system_identifier,
    d.oid::bigint AS database_oid,
    pg_catalog.pg_is_in_recovery() AS is_replica,
    pg_catalog.pg_postmaster_start_time() AS started_at
FROM pg_catalog.pg_control_system() AS c
CROSS JOIN pg_catalog.pg_database AS d
WHERE d.datname = pg_catalog.current_database();

-- name: read_position
-- How far a server is in the changes of the primary, in bytes of log.
SELECT
    pg_catalog.pg_wal_lsn_diff(
        CASE
            WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
            ELSE pg_catalog.pg_current_wal_lsn()
        END,
        '0/0'
    )::bigint AS position;

-- name: count_models
-- How many of some models are there, be they dropped.
SELECT count(*) AS models
FROM mmdb.model AS m
WHERE m.model_id = any(%(model_ids)s::bigint[]);
