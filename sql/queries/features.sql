-- name: find_owner
-- Whose a run's features are: its owner's in a database with teams, and else nobody's.
SELECT
    CASE
        WHEN EXISTS (
            SELECT 1 FROM mmdb.migration AS m
            WHERE m.number = -2
        ) THEN coalesce(r.owner, 'public')
        ELSE ''
    END AS owner
FROM mmdb.run AS r
WHERE r.run_id = %(run_id)s::bigint;

-- name: find
-- Features of a dataset by their keys.
SELECT
    f.feature_id,
    f.feature_key,
    f.dataset_id,
    f.owner,
    f.prefix_key,
    f.layer,
    f.pool,
    f.storage,
    f.shape,
    f.architecture_hash,
    f.tensors_hash,
    f.network_hash,
    f.depth,
    f.backbone,
    f.model_id,
    f.seed,
    f.row_bytes,
    f.max_error,
    f.mean_error
FROM mmdb.feature AS f
WHERE
    f.feature_key = any(%(feature_keys)s::bytea[])
    AND f.dataset_id = %(dataset_id)s::bigint
    AND f.owner = %(owner)s::text
ORDER BY f.feature_id;

-- name: find_of_run
-- The features that a run uses.
SELECT
    f.feature_id,
    f.feature_key,
    f.dataset_id,
    f.owner,
    f.prefix_key,
    f.layer,
    f.pool,
    f.storage,
    f.shape,
    f.architecture_hash,
    f.tensors_hash,
    f.network_hash,
    f.depth,
    f.backbone,
    f.model_id,
    f.seed,
    f.row_bytes,
    f.max_error,
    f.mean_error
FROM mmdb.run_feature AS u
INNER JOIN mmdb.feature AS f ON u.feature_id = f.feature_id
WHERE u.run_id = %(run_id)s::bigint
ORDER BY f.feature_id;

-- name: add
-- Add features; they may be there already.
INSERT INTO mmdb.feature (
    feature_key, dataset_id, owner, prefix_key, layer, pool, storage, shape, architecture_hash, tensors_hash,
    network_hash, depth, backbone, model_id,
    seed, row_bytes
) VALUES (
    %(feature_key)s::bytea,
    %(dataset_id)s::bigint,
    %(owner)s::text,
    %(prefix_key)s::bytea,
    %(layer)s::text,
    %(pool)s::text,
    %(storage)s::text,
    %(shape)s::integer[],
    %(architecture_hash)s::bytea,
    %(tensors_hash)s::bytea,
    %(network_hash)s::bytea,
    %(depth)s::integer,
    %(backbone)s::text,
    %(model_id)s::bigint,
    %(seed)s::bigint,
    %(row_bytes)s::bigint
)
ON CONFLICT (feature_key, dataset_id, owner) DO NOTHING;

-- name: touch
-- Note that a run begins to use features.
UPDATE mmdb.feature SET used_at = now()
WHERE feature_id = any(%(feature_ids)s::bigint[]);

-- name: note_error
-- Note the error of a partition's features, where it is the worst so far.
UPDATE mmdb.feature SET
    max_error = CASE
        WHEN coalesce(max_error, -1) > %(max_error)s::double precision THEN max_error ELSE %(max_error)s::double precision
    END,
    mean_error = CASE
        WHEN coalesce(mean_error, -1) > %(mean_error)s::double precision THEN mean_error ELSE %(mean_error)s::double precision
    END
WHERE feature_id = %(feature_id)s::bigint;

-- name: find_parts
-- The partitions whose features are stored.
SELECT
    p.feature_id,
    p.part_id,
    p.row_count,
    p.byte_count,
    p.digest
FROM mmdb.feature_part AS p
WHERE p.feature_id = any(%(feature_ids)s::bigint[])
ORDER BY p.feature_id, p.part_id;

-- name: find_part
-- What is stored of one partition.
SELECT
    p.row_count,
    p.byte_count,
    p.blocks,
    p.digest
FROM mmdb.feature_part AS p
WHERE p.feature_id = %(feature_id)s::bigint AND p.part_id = %(part_id)s::bigint;

-- name: add_part
-- Note that a partition's features are stored; no row where they are already.
INSERT INTO mmdb.feature_part (feature_id, part_id, row_count, byte_count, blocks, digest)
VALUES (
    %(feature_id)s::bigint,
    %(part_id)s::bigint,
    %(row_count)s::bigint,
    %(byte_count)s::bigint,
    %(blocks)s::integer,
    %(digest)s::bytea
)
ON CONFLICT (feature_id, part_id) DO NOTHING
RETURNING part_id;

-- name: add_block
-- Add a block of features.
INSERT INTO mmdb.feature_block (feature_id, part_id, ordinal, row_count, digest, data)
VALUES (
    %(feature_id)s::bigint,
    %(part_id)s::bigint,
    %(ordinal)s::integer,
    %(row_count)s::integer,
    %(digest)s::bytea,
    %(data)s::bytea
);

-- name: read_blocks
-- Some blocks of a partition's features, in order.
SELECT
    b.ordinal,
    b.row_count,
    b.digest,
    b.data
FROM mmdb.feature_block AS b
WHERE
    b.feature_id = %(feature_id)s::bigint
    AND b.part_id = %(part_id)s::bigint
    AND b.ordinal >= %(low)s::integer
    AND b.ordinal < %(high)s::integer
ORDER BY b.ordinal;

-- name: lock
-- Wait for those who store some features, and let others wait: what is deleted of them is whole then.
SELECT f.feature_id
FROM mmdb.feature AS f
WHERE f.feature_id = any(%(feature_ids)s::bigint[])
ORDER BY f.feature_id
FOR UPDATE;

-- name: delete_parts
-- Forget which partitions of some features are stored.
DELETE FROM mmdb.feature_part
WHERE feature_id = any(%(feature_ids)s::bigint[]);

-- name: delete_blocks
-- Delete the blocks of some features.
DELETE FROM mmdb.feature_block
WHERE feature_id = any(%(feature_ids)s::bigint[]);

-- name: delete_part
-- Forget that one partition is stored.
DELETE FROM mmdb.feature_part
WHERE feature_id = %(feature_id)s::bigint AND part_id = %(part_id)s::bigint;

-- name: delete_part_blocks
-- Delete the blocks of one partition's features.
DELETE FROM mmdb.feature_block
WHERE feature_id = %(feature_id)s::bigint AND part_id = %(part_id)s::bigint;

-- name: put_use
-- Note how a run gets features; a run that goes on may get them otherwise.
INSERT INTO mmdb.run_feature (
    run_id, feature_id, choice, reason, candidates, uses, byte_count, saved_s, planned_s, layer, network_hash, depth,
    backbone, model_id
)
VALUES (
    %(run_id)s::bigint,
    %(feature_id)s::bigint,
    %(choice)s::text,
    %(reason)s::text,
    %(candidates)s::integer,
    %(uses)s::bigint,
    %(byte_count)s::bigint,
    %(saved_s)s::double precision,
    %(planned_s)s::double precision,
    %(layer)s::text,
    %(network_hash)s::bytea,
    %(depth)s::integer,
    %(backbone)s::text,
    %(model_id)s::bigint
)
ON CONFLICT (run_id, feature_id) DO UPDATE SET
    choice = excluded.choice,
    reason = excluded.reason,
    candidates = excluded.candidates,
    uses = excluded.uses,
    byte_count = excluded.byte_count,
    saved_s = excluded.saved_s,
    planned_s = excluded.planned_s;

-- name: add_seconds
-- Add to what a run's features have cost.
UPDATE mmdb.run_feature SET
    compute_s = compute_s + %(compute_s)s::double precision,
    store_s = store_s + %(store_s)s::double precision,
    read_s = read_s + %(read_s)s::double precision
WHERE run_id = %(run_id)s::bigint AND feature_id = %(feature_id)s::bigint;

-- name: find_uses
-- How a run gets its features.
SELECT
    u.feature_id,
    u.choice,
    u.reason,
    u.candidates,
    u.uses,
    u.byte_count,
    u.saved_s,
    u.planned_s,
    u.layer,
    u.network_hash,
    u.depth,
    u.backbone,
    u.model_id,
    u.compute_s,
    u.store_s,
    u.read_s
FROM mmdb.run_feature AS u
WHERE u.run_id = %(run_id)s::bigint
ORDER BY u.feature_id;

-- name: put_candidate
-- Note the features that a candidate trains on.
INSERT INTO mmdb.candidate_feature (candidate_id, run_id, feature_id)
VALUES (%(candidate_id)s::bigint, %(run_id)s::bigint, %(feature_id)s::bigint)
ON CONFLICT (candidate_id) DO NOTHING;

-- name: find_candidates
-- The features that the candidates of a run train on.
SELECT
    c.candidate_id,
    c.feature_id
FROM mmdb.candidate_feature AS c
WHERE c.run_id = %(run_id)s::bigint
ORDER BY c.candidate_id;

-- name: find_unsettled
-- Candidates of a run that freeze layers, and of which it is not settled how their features come to them.
SELECT
    c.candidate_id,
    c.ordinal,
    c.config::text AS config
FROM mmdb.candidate AS c
LEFT JOIN mmdb.candidate_feature AS t ON c.candidate_id = t.candidate_id
WHERE c.run_id = %(run_id)s::bigint AND t.candidate_id IS NULL
ORDER BY c.ordinal;

-- name: find_paces
-- What features have cost that were stored and read so far: seconds and bytes.
SELECT
    coalesce(sum(u.store_s), 0)::double precision AS store_s,
    coalesce(sum(u.read_s), 0)::double precision AS read_s,
    coalesce(sum(CASE WHEN u.store_s > 0 THEN p.bytes END), 0)::bigint AS stored_bytes,
    coalesce(sum(CASE WHEN u.read_s > 0 THEN p.bytes END), 0)::bigint AS read_bytes
FROM mmdb.run_feature AS u
INNER JOIN (
    SELECT
        q.feature_id,
        sum(q.byte_count) AS bytes
    FROM mmdb.feature_part AS q
    GROUP BY q.feature_id
) AS p ON u.feature_id = p.feature_id
WHERE u.choice = 'stored';

-- name: find_known
-- All features of a dataset, whether or not any of them are stored.
SELECT
    f.feature_id,
    f.layer
FROM mmdb.feature AS f
WHERE f.dataset_id = %(dataset_id)s::bigint
ORDER BY f.feature_id;

-- name: find_recipes_on
-- A model that is kept as a recipe of hops over layers of another model, which stay as they are.
SELECT
    m.name,
    m.version
FROM mmdb.model AS m
INNER JOIN mmdb.candidate_feature AS c ON m.candidate_id = c.candidate_id
INNER JOIN mmdb.run_feature AS u ON c.run_id = u.run_id AND c.feature_id = u.feature_id
WHERE u.model_id = %(model_id)s::bigint AND m.approach = 'provenance' AND m.dropped_at IS NULL
ORDER BY m.model_id
LIMIT 1;

-- name: find_layers
-- The layers that the features of a dataset were found at.
SELECT DISTINCT f.layer
FROM mmdb.feature AS f
WHERE f.dataset_id = %(dataset_id)s::bigint
ORDER BY f.layer;
