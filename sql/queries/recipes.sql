-- name: add_recipe
-- How a model is made again.
INSERT INTO mmdb.recipe (model_id, trainer, arguments, seed, tensor_hashes, train_s)
VALUES (
    %(model_id)s::bigint, %(trainer)s::text, %(arguments)s::jsonb, %(seed)s::bigint,
    %(tensor_hashes)s::bytea, %(train_s)s::double precision
);

-- name: add_recipe_tensor
-- States that a recipe starts from.
INSERT INTO mmdb.recipe_tensor (model_id, path, tensor_id)
VALUES (%(model_id)s::bigint, %(path)s::text, %(tensor_id)s::bigint);

-- name: find_recipe
-- How a model is made again.
SELECT
    r.trainer,
    r.arguments::text AS arguments,
    r.seed,
    r.tensor_hashes,
    r.train_s,
    r.replayed_s,
    d.name AS dataset
FROM mmdb.recipe AS r
INNER JOIN mmdb.model AS m ON r.model_id = m.model_id
LEFT JOIN mmdb.dataset AS d ON m.dataset_id = d.dataset_id
WHERE r.model_id = %(model_id)s::bigint;

-- name: find_recipe_tensors
-- States that a recipe starts from.
SELECT
    t.path,
    t.tensor_id
FROM mmdb.recipe_tensor AS t
WHERE t.model_id = %(model_id)s::bigint;

-- name: measure_ancestry
-- Seconds of the trainings that recovering a model repeats, and the bytes that it starts from.
WITH RECURSIVE ancestry (model_id, parent_id, manifest_id, byte_count) AS (
    SELECT
        m.model_id,
        m.parent_id,
        m.manifest_id,
        m.byte_count
    FROM mmdb.model AS m
    WHERE m.model_id = %(model_id)s::bigint
    UNION
    SELECT
        p.model_id,
        p.parent_id,
        p.manifest_id,
        p.byte_count
    FROM ancestry AS a
    INNER JOIN mmdb.model AS p ON a.parent_id = p.model_id
    WHERE a.manifest_id IS NULL
)

SELECT
    coalesce(sum(r.train_s), 0)::double precision AS train_s,
    coalesce(sum(CASE WHEN a.manifest_id IS NULL THEN 0 ELSE a.byte_count END), 0)::double precision AS byte_count
FROM ancestry AS a
LEFT JOIN mmdb.recipe AS r ON a.model_id = r.model_id AND a.manifest_id IS NULL;

-- name: mark_replayed
-- Note that a recipe gave the model's weights.
UPDATE mmdb.recipe
SET replayed_s = %(replayed_s)s::double precision
WHERE model_id = %(model_id)s::bigint;

-- name: find_recipe_hops
-- The train hops of a candidate up to an epoch, in order, with who did them.
SELECT
    h.part_id,
    h.epoch,
    h.ordinal,
    h.state_out,
    h.worker,
    h.node,
    h.device,
    h.environment,
    h.compute_s,
    p.ordinal AS partition
FROM mmdb.hop AS h
INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id
WHERE h.candidate_id = %(candidate_id)s::bigint AND h.epoch <= %(epoch)s::integer AND p.role = 'train'
ORDER BY h.ordinal;

-- name: find_candidate_model
-- The version of a model that a candidate's epoch was saved as.
SELECT
    m.model_id,
    m.name,
    m.version
FROM mmdb.model AS m
WHERE
    m.name = %(name)s::text
    AND m.candidate_id = %(candidate_id)s::bigint
    AND m.epoch = %(epoch)s::integer
    AND m.calibration IS NULL
    AND m.dropped_at IS NULL
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.model_member AS k
        WHERE m.model_id = k.model_id
    )
ORDER BY m.version DESC
LIMIT 1;

-- name: find_trainer
-- What a registered trainer's name stands for.
SELECT t.target
FROM mmdb.trainer AS t
WHERE t.name = %(name)s::text;

-- name: add_trainer
-- Register a trainer.
INSERT INTO mmdb.trainer (name, target) VALUES (%(name)s::text, %(target)s::text);

-- name: find_environment_id
-- An environment by its hash.
SELECT e.environment_id
FROM mmdb.environment AS e
WHERE e.environment_hash = %(environment_hash)s::bytea;

-- name: find_environment
-- What an environment was.
SELECT e.details::text AS details
FROM mmdb.environment AS e
WHERE e.environment_id = %(environment_id)s::bigint;

-- name: add_environment
-- Add an environment, unless it is known.
INSERT INTO mmdb.environment (environment_hash, details)
VALUES (%(environment_hash)s::bytea, %(details)s::jsonb)
ON CONFLICT (environment_hash) DO NOTHING;

-- name: measure_ratios
-- Stored and raw bytes of the tensors encoded last, by dtype and by whether they are differences.
SELECT
    l.dtype,
    l.is_delta,
    sum(l.stored_bytes)::double precision AS stored_bytes,
    sum(l.byte_count)::double precision AS byte_count
FROM (
    SELECT
        t.dtype,
        e.base_id IS NOT NULL AS is_delta,
        e.stored_bytes,
        t.byte_count
    FROM mmdb.encoding AS e
    INNER JOIN mmdb.tensor AS t ON e.tensor_id = t.tensor_id
    ORDER BY e.tensor_id DESC
    LIMIT 400
) AS l
GROUP BY l.dtype, l.is_delta;
