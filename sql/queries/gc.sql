-- name: find_deadline
-- When what is to go must have been dropped; an error if `grace` says no time.
SELECT now() - %(grace)s::interval AS deadline;

-- name: find_garbage_models
-- Models dropped before the grace period that still hold something.
SELECT m.model_id AS id
FROM mmdb.model AS m
WHERE
    m.dropped_at <= now() - %(grace)s::interval
    AND (
        m.manifest_id IS NOT NULL OR m.pack_id IS NOT NULL OR m.architecture_id IS NOT NULL
        OR EXISTS (
            SELECT 1 FROM mmdb.model_change AS c
            WHERE c.model_id = m.model_id
        )
        OR EXISTS (
            SELECT 1 FROM mmdb.recipe_tensor AS r
            WHERE r.model_id = m.model_id
        )
    )
ORDER BY m.model_id;

-- name: lock_models
-- Lock dropped models, but for those that another collection has.
SELECT m.model_id AS id
FROM mmdb.model AS m
WHERE m.model_id = any(%(ids)s::bigint[]) AND m.dropped_at IS NOT NULL
ORDER BY m.model_id
FOR NO KEY UPDATE SKIP LOCKED;

-- name: empty_models
-- Let dropped models hold nothing; their rows stay as lineage.
UPDATE mmdb.model SET manifest_id = NULL, pack_id = NULL, architecture_id = NULL
WHERE model_id = any(%(ids)s::bigint[]) AND dropped_at IS NOT NULL;

-- name: delete_changes
-- Delete what stood in place of the manifests' tensors.
DELETE FROM mmdb.model_change
WHERE model_id = any(%(ids)s::bigint[]);

-- name: delete_recipe_tensors
-- Delete what recipes start from.
DELETE FROM mmdb.recipe_tensor
WHERE model_id = any(%(ids)s::bigint[]);

-- name: find_garbage_manifests
-- Manifests made before the grace period that no model has.
SELECT l.manifest_id AS id
FROM mmdb.manifest AS l
WHERE
    l.created_at <= now() - %(grace)s::interval
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.model AS m
        WHERE m.manifest_id = l.manifest_id
    )
ORDER BY l.manifest_id;

-- name: lock_manifests
-- Lock manifests, but for those that a save is about to use.
SELECT l.manifest_id AS id
FROM mmdb.manifest AS l
WHERE l.manifest_id = any(%(ids)s::bigint[])
ORDER BY l.manifest_id
FOR UPDATE SKIP LOCKED;

-- name: recheck_manifests
-- Those of some manifests that no model has.
SELECT l.manifest_id AS id
FROM mmdb.manifest AS l
WHERE
    l.manifest_id = any(%(ids)s::bigint[])
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.model AS m
        WHERE m.manifest_id = l.manifest_id
    );

-- name: delete_manifest_tensors
-- Delete the lists of manifests.
DELETE FROM mmdb.manifest_tensor
WHERE manifest_id = any(%(ids)s::bigint[]);

-- name: delete_manifests
-- Delete manifests.
DELETE FROM mmdb.manifest
WHERE manifest_id = any(%(ids)s::bigint[]);

-- name: find_garbage_tensors
-- Tensors stored before the grace period that nothing names and no difference is kept against.
SELECT
    t.tensor_id AS id,
    coalesce(x.stored_bytes, 0) AS bytes
FROM mmdb.tensor AS t
LEFT JOIN mmdb.encoding AS x ON t.tensor_id = x.tensor_id
WHERE
    t.created_at <= now() - %(grace)s::interval
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.manifest_tensor AS e
        WHERE e.tensor_id = t.tensor_id
    )
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.model_change AS c
        WHERE c.tensor_id = t.tensor_id
    )
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.model AS m
        WHERE m.pack_id = t.tensor_id
    )
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.recipe_tensor AS r
        WHERE r.tensor_id = t.tensor_id
    )
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.encoding AS d
        WHERE d.base_id = t.tensor_id
    )
ORDER BY t.tensor_id;

-- name: lock_tensors
-- Lock tensors, but for those that a save is about to use.
SELECT t.tensor_id AS id
FROM mmdb.tensor AS t
WHERE t.tensor_id = any(%(ids)s::bigint[])
ORDER BY t.tensor_id
FOR UPDATE SKIP LOCKED;

-- name: recheck_tensors
-- Those of some tensors that nothing names and no difference is kept against, with their stored bytes.
SELECT
    t.tensor_id AS id,
    coalesce(x.stored_bytes, 0) AS bytes
FROM mmdb.tensor AS t
LEFT JOIN mmdb.encoding AS x ON t.tensor_id = x.tensor_id
WHERE
    t.tensor_id = any(%(ids)s::bigint[])
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.manifest_tensor AS e
        WHERE e.tensor_id = t.tensor_id
    )
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.model_change AS c
        WHERE c.tensor_id = t.tensor_id
    )
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.model AS m
        WHERE m.pack_id = t.tensor_id
    )
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.recipe_tensor AS r
        WHERE r.tensor_id = t.tensor_id
    )
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.encoding AS d
        WHERE d.base_id = t.tensor_id
    );

-- name: find_chunks
-- Those of some tensors that have chunks.
SELECT DISTINCT c.tensor_id
FROM mmdb.tensor_chunk AS c
WHERE c.tensor_id = any(%(ids)s::bigint[]);

-- name: delete_chunks
-- Delete the bytes of tensors.
DELETE FROM mmdb.tensor_chunk
WHERE tensor_id = any(%(ids)s::bigint[]);

-- name: delete_encodings
-- Delete how tensors lay in their chunks.
DELETE FROM mmdb.encoding
WHERE tensor_id = any(%(ids)s::bigint[]);

-- name: delete_tensors
-- Delete tensors.
DELETE FROM mmdb.tensor
WHERE tensor_id = any(%(ids)s::bigint[]);

-- name: find_garbage_architectures
-- Architectures that no model has.
SELECT a.architecture_id AS id
FROM mmdb.architecture AS a
WHERE
    NOT EXISTS (
        SELECT 1 FROM mmdb.model AS m
        WHERE m.architecture_id = a.architecture_id
    )
ORDER BY a.architecture_id;

-- name: lock_architectures
-- Lock architectures, but for those that a save is about to use.
SELECT a.architecture_id AS id
FROM mmdb.architecture AS a
WHERE a.architecture_id = any(%(ids)s::bigint[])
ORDER BY a.architecture_id
FOR UPDATE SKIP LOCKED;

-- name: recheck_architectures
-- Those of some architectures that no model has.
SELECT a.architecture_id AS id
FROM mmdb.architecture AS a
WHERE
    a.architecture_id = any(%(ids)s::bigint[])
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.model AS m
        WHERE m.architecture_id = a.architecture_id
    );

-- name: delete_architecture_nodes
-- Delete the nodes of architectures.
DELETE FROM mmdb.architecture_node
WHERE architecture_id = any(%(ids)s::bigint[]);

-- name: delete_architecture_edges
-- Delete the edges of architectures.
DELETE FROM mmdb.architecture_edge
WHERE architecture_id = any(%(ids)s::bigint[]);

-- name: delete_outlines
-- Delete the outlines of architectures.
DELETE FROM mmdb.outline
WHERE architecture_id = any(%(ids)s::bigint[]);

-- name: delete_architectures
-- Delete architectures.
DELETE FROM mmdb.architecture
WHERE architecture_id = any(%(ids)s::bigint[]);

-- name: find_garbage_prefixes
-- Beginnings that no architecture has.
SELECT p.prefix_hash AS id
FROM mmdb.architecture_prefix AS p
WHERE
    NOT EXISTS (
        SELECT 1 FROM mmdb.architecture_node AS n
        WHERE n.prefix_hash = p.prefix_hash
    )
ORDER BY p.prefix_hash;

-- name: lock_prefixes
-- Lock beginnings, but for those that a save is about to use.
SELECT p.prefix_hash AS id
FROM mmdb.architecture_prefix AS p
WHERE p.prefix_hash = any(%(ids)s::bytea[])
ORDER BY p.prefix_hash
FOR UPDATE SKIP LOCKED;

-- name: recheck_prefixes
-- Those of some beginnings that no architecture has.
SELECT p.prefix_hash AS id
FROM mmdb.architecture_prefix AS p
WHERE
    p.prefix_hash = any(%(ids)s::bytea[])
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.architecture_node AS n
        WHERE n.prefix_hash = p.prefix_hash
    );

-- name: delete_prefixes
-- Delete beginnings.
DELETE FROM mmdb.architecture_prefix
WHERE prefix_hash = any(%(ids)s::bytea[]);

-- name: find_garbage_checkpoints
-- Candidates whose dataset or run was dropped before the grace period, with checkpoints that no recipe needs.
SELECT k.candidate_id AS id
FROM mmdb.candidate AS k
INNER JOIN mmdb.run AS r ON k.run_id = r.run_id
INNER JOIN mmdb.dataset AS d ON r.dataset_id = d.dataset_id
WHERE
    (d.dropped_at <= now() - %(grace)s::interval OR r.dropped_at <= now() - %(grace)s::interval)
    AND k.candidate_id IN (SELECT c.candidate_id FROM mmdb.checkpoint AS c)
    AND NOT EXISTS (
        SELECT 1
        FROM mmdb.model AS m
        WHERE m.candidate_id = k.candidate_id AND m.approach = 'provenance' AND m.dropped_at IS NULL
    )
ORDER BY k.candidate_id;

-- name: find_checkpoints
-- The checkpoints of some candidates, with whose they are.
SELECT
    c.candidate_id AS id,
    c.byte_count AS bytes
FROM mmdb.checkpoint AS c
WHERE c.candidate_id = any(%(ids)s::bigint[]);

-- name: delete_checkpoint_chunks
-- Delete the bytes of checkpoints.
DELETE FROM mmdb.checkpoint_chunk
WHERE candidate_id = any(%(ids)s::bigint[]);

-- name: delete_checkpoints
-- Delete checkpoints.
DELETE FROM mmdb.checkpoint
WHERE candidate_id = any(%(ids)s::bigint[]);

-- name: find_garbage_features
-- Features with blocks whose dataset was dropped, or that were last used before the grace period and that no unfinished
-- run uses.
SELECT
    f.feature_id AS id,
    sum(p.byte_count)::bigint AS bytes
FROM mmdb.feature AS f
INNER JOIN mmdb.feature_part AS p ON f.feature_id = p.feature_id
INNER JOIN mmdb.dataset AS d ON f.dataset_id = d.dataset_id
WHERE
    d.dropped_at IS NOT NULL
    OR (
        f.used_at <= now() - %(grace)s::interval
        AND NOT EXISTS (
            SELECT 1 FROM mmdb.run_feature AS u
            INNER JOIN mmdb.run AS r ON u.run_id = r.run_id
            WHERE
                u.feature_id = f.feature_id
                AND r.dropped_at IS NULL
                AND coalesce((
                    SELECT v.event FROM mmdb.run_event AS v
                    WHERE v.run_id = u.run_id
                    ORDER BY v.happened_at DESC
                    LIMIT 1
                ), '') <> 'finished'
        )
    )
GROUP BY f.feature_id
ORDER BY f.feature_id;

-- name: lock_features
-- Lock features, but for those that a run begins to use or stores.
SELECT f.feature_id AS id
FROM mmdb.feature AS f
WHERE f.feature_id = any(%(ids)s::bigint[])
ORDER BY f.feature_id
FOR UPDATE SKIP LOCKED;

-- name: recheck_features
-- Those of some features that can go, with their bytes.
SELECT
    f.feature_id AS id,
    sum(p.byte_count)::bigint AS bytes
FROM mmdb.feature AS f
INNER JOIN mmdb.feature_part AS p ON f.feature_id = p.feature_id
INNER JOIN mmdb.dataset AS d ON f.dataset_id = d.dataset_id
WHERE
    f.feature_id = any(%(ids)s::bigint[])
    AND (
        d.dropped_at IS NOT NULL
        OR (
            f.used_at <= now() - %(grace)s::interval
            AND NOT EXISTS (
                SELECT 1 FROM mmdb.run_feature AS u
                INNER JOIN mmdb.run AS r ON u.run_id = r.run_id
                WHERE
                    u.feature_id = f.feature_id
                    AND r.dropped_at IS NULL
                    AND coalesce((
                        SELECT v.event FROM mmdb.run_event AS v
                        WHERE v.run_id = u.run_id
                        ORDER BY v.happened_at DESC
                        LIMIT 1
                    ), '') <> 'finished'
            )
        )
    )
GROUP BY f.feature_id
ORDER BY f.feature_id;

-- name: delete_feature_blocks
-- Delete the blocks of features.
DELETE FROM mmdb.feature_block
WHERE feature_id = any(%(ids)s::bigint[]);

-- name: delete_feature_parts
-- Forget which partitions of features are stored.
DELETE FROM mmdb.feature_part
WHERE feature_id = any(%(ids)s::bigint[]);

-- name: plan_features
-- What becomes of the features that have blocks: how many, and their bytes. The lowest place is the first reason.
SELECT
    s.place,
    count(DISTINCT s.feature_id) AS items,
    sum(s.byte_count)::bigint AS bytes
FROM (
    SELECT
        f.feature_id,
        p.byte_count,
        CASE
            WHEN d.dropped_at IS NOT NULL THEN 1
            WHEN EXISTS (
                SELECT 1 FROM mmdb.run_feature AS u
                INNER JOIN mmdb.run AS r ON u.run_id = r.run_id
                WHERE
                    u.feature_id = f.feature_id
                    AND r.dropped_at IS NULL
                    AND coalesce((
                        SELECT v.event FROM mmdb.run_event AS v
                        WHERE v.run_id = u.run_id
                        ORDER BY v.happened_at DESC
                        LIMIT 1
                    ), '') <> 'finished'
            ) THEN 3
            WHEN f.used_at > now() - %(grace)s::interval THEN 4
            ELSE 2
        END AS place
    FROM mmdb.feature AS f
    INNER JOIN mmdb.feature_part AS p ON f.feature_id = p.feature_id
    INNER JOIN mmdb.dataset AS d ON f.dataset_id = d.dataset_id
) AS s
GROUP BY s.place
ORDER BY s.place;

-- name: plan_tensors
-- What becomes of the tensors that no model needs: how many, and their stored bytes.
WITH holder AS (
    SELECT
        m.model_id,
        m.manifest_id,
        m.pack_id,
        m.dropped_at IS NOT NULL AS is_dropped
    FROM mmdb.model AS m
    WHERE m.dropped_at IS NULL OR m.dropped_at > now() - %(grace)s::interval
),

listed AS (
    SELECT
        e.tensor_id,
        h.model_id,
        h.is_dropped,
        c.tensor_id AS changed_id
    FROM holder AS h
    INNER JOIN mmdb.manifest_tensor AS e ON h.manifest_id = e.manifest_id
    LEFT JOIN mmdb.model_change AS c ON h.model_id = c.model_id AND e.ordinal = c.ordinal
),

named AS ( -- the lowest place is the first reason to keep it
    SELECT
        coalesce(l.changed_id, l.tensor_id) AS tensor_id,
        CASE WHEN l.is_dropped THEN 1 ELSE 0 END AS place
    FROM listed AS l
    UNION ALL
    SELECT
        h.pack_id AS tensor_id,
        CASE WHEN h.is_dropped THEN 1 ELSE 0 END AS place
    FROM holder AS h
    UNION ALL
    SELECT
        r.tensor_id,
        CASE WHEN h.is_dropped THEN 1 ELSE 0 END AS place
    FROM holder AS h
    INNER JOIN mmdb.recipe_tensor AS r ON h.model_id = r.model_id
    UNION ALL
    SELECT
        l.tensor_id,
        3 AS place
    FROM listed AS l
    WHERE l.changed_id IS NOT NULL
    UNION ALL
    SELECT
        e.tensor_id,
        4 AS place
    FROM mmdb.manifest AS l
    INNER JOIN mmdb.manifest_tensor AS e ON l.manifest_id = e.manifest_id
    WHERE l.created_at > now() - %(grace)s::interval
    UNION ALL
    SELECT
        t.tensor_id,
        4 AS place
    FROM mmdb.tensor AS t
    WHERE t.created_at > now() - %(grace)s::interval
),

kept AS (
    SELECT
        n.tensor_id,
        min(n.place) AS place
    FROM named AS n
    WHERE n.tensor_id IS NOT NULL
    GROUP BY n.tensor_id
),

base AS (
    SELECT DISTINCT x.base_id AS tensor_id
    FROM mmdb.encoding AS x
    INNER JOIN kept AS k ON x.tensor_id = k.tensor_id
    WHERE x.base_id IS NOT NULL
)

SELECT
    s.place,
    count(*) AS items,
    coalesce(sum(s.stored_bytes), 0)::bigint AS bytes
FROM (
    SELECT
        x.stored_bytes,
        CASE
            WHEN k.place < 2 THEN k.place
            WHEN b.tensor_id IS NOT NULL THEN 2
            ELSE coalesce(k.place, 5)
        END AS place
    FROM mmdb.tensor AS t
    LEFT JOIN mmdb.encoding AS x ON t.tensor_id = x.tensor_id
    LEFT JOIN kept AS k ON t.tensor_id = k.tensor_id
    LEFT JOIN base AS b ON t.tensor_id = b.tensor_id
) AS s
WHERE s.place > 0
GROUP BY s.place
ORDER BY s.place DESC;

-- name: plan_manifests
-- How many manifests no model will have.
SELECT count(*) AS items
FROM mmdb.manifest AS l
WHERE
    l.created_at <= now() - %(grace)s::interval
    AND NOT EXISTS (
        SELECT 1
        FROM mmdb.model AS m
        WHERE
            m.manifest_id = l.manifest_id
            AND (m.dropped_at IS NULL OR m.dropped_at > now() - %(grace)s::interval)
    );

-- name: plan_architectures
-- How many architectures no model will have.
SELECT count(*) AS items
FROM mmdb.architecture AS a
WHERE
    NOT EXISTS (
        SELECT 1
        FROM mmdb.model AS m
        WHERE
            m.architecture_id = a.architecture_id
            AND (m.dropped_at IS NULL OR m.dropped_at > now() - %(grace)s::interval)
    );
