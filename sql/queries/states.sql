-- name: read_in_flight
-- The chunks of a state on its way between two sessions.
SELECT s.data
FROM mmdb.state_chunk AS s
WHERE
    s.part_id = %(part_id)s::bigint
    AND s.candidate_id = %(candidate_id)s::bigint
    AND s.state_hash = %(state_hash)s::bytea
ORDER BY s.ordinal;

-- name: write_in_flight
-- One chunk of a state on its way.
INSERT INTO mmdb.state_chunk (part_id, candidate_id, state_hash, ordinal, data)
VALUES (
    %(part_id)s::bigint, %(candidate_id)s::bigint, %(state_hash)s::bytea, %(ordinal)s::integer, %(data)s::bytea
);

-- name: drop_in_flight
-- Delete a candidate's states on their way, but for those that are kept.
DELETE FROM mmdb.state_chunk
WHERE candidate_id = %(candidate_id)s::bigint AND state_hash <> all(%(kept)s::bytea[]);

-- name: find_database
-- What tells this database apart from others that use the same node.
SELECT (s.system_identifier::text || '-' || d.oid::text) AS name
FROM pg_control_system() AS s, pg_database AS d
WHERE d.datname = current_database();

-- name: vacuum
-- Give back the space of states that are gone; tables of others are skipped with a warning.
VACUUM (SKIP_LOCKED, INDEX_CLEANUP, TRUNCATE FALSE) mmdb.state_chunk, mmdb.checkpoint_chunk, mmdb.checkpoint;

-- name: has_citus
-- Whether the database has the extension of clusters; its tables need not lie on one.
SELECT count(*) > 0 AS found
FROM pg_extension AS e
WHERE e.extname = 'citus';

-- name: has_distant_workers
-- Whether worker processes serve that do not share one node's cache.
SELECT count(DISTINCT w.node || ' ' || w.mode) > 1 AS distant
FROM mmdb.worker AS w
INNER JOIN mmdb.worker_beat AS b ON w.worker_id = b.worker_id
WHERE b.stopped_at IS NULL AND b.beat_at > clock_timestamp() - interval '10 seconds';

-- name: find_checkpoints
-- A candidate's durable states.
SELECT
    c.part_id,
    c.state_hash,
    c.epoch
FROM mmdb.checkpoint AS c
WHERE c.candidate_id = %(candidate_id)s::bigint
ORDER BY c.epoch;

-- name: read_checkpoint
-- The chunks of a durable state.
SELECT c.data
FROM mmdb.checkpoint_chunk AS c
WHERE
    c.part_id = %(part_id)s::bigint
    AND c.candidate_id = %(candidate_id)s::bigint
    AND c.state_hash = %(state_hash)s::bytea
ORDER BY c.ordinal;

-- name: add_checkpoint
-- Name a durable state.
INSERT INTO mmdb.checkpoint (part_id, candidate_id, state_hash, epoch, byte_count)
VALUES (
    %(part_id)s::bigint, %(candidate_id)s::bigint, %(state_hash)s::bytea, %(epoch)s::integer, %(byte_count)s::bigint
);

-- name: write_checkpoint
-- One chunk of a durable state.
INSERT INTO mmdb.checkpoint_chunk (part_id, candidate_id, state_hash, ordinal, data)
VALUES (
    %(part_id)s::bigint, %(candidate_id)s::bigint, %(state_hash)s::bytea, %(ordinal)s::integer, %(data)s::bytea
);

-- name: drop_checkpoint
-- Delete the name of a durable state.
DELETE FROM mmdb.checkpoint
WHERE
    part_id = %(part_id)s::bigint
    AND candidate_id = %(candidate_id)s::bigint
    AND state_hash = %(state_hash)s::bytea;

-- name: drop_checkpoint_chunks
-- Delete the chunks of a durable state.
DELETE FROM mmdb.checkpoint_chunk
WHERE
    part_id = %(part_id)s::bigint
    AND candidate_id = %(candidate_id)s::bigint
    AND state_hash = %(state_hash)s::bytea;
