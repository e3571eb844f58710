-- name: find_datasets
-- The datasets that have their blocks.
SELECT d.dataset_id
FROM mmdb.dataset AS d
WHERE d.dropped_at IS NULL
ORDER BY d.dataset_id;

-- name: is_dataset_there
-- Whether a dataset still has its blocks.
SELECT d.dataset_id
FROM mmdb.dataset AS d
WHERE d.dataset_id = %(dataset_id)s::bigint AND d.dropped_at IS NULL;

-- name: find_encodings
-- Every tensor that has chunks of its own, and how long it is.
SELECT
    e.tensor_id,
    t.byte_count
FROM mmdb.encoding AS e
INNER JOIN mmdb.tensor AS t ON e.tensor_id = t.tensor_id
ORDER BY e.tensor_id;

-- name: find_models
-- The models that have a list of tensors.
SELECT m.model_id
FROM mmdb.model AS m
WHERE m.dropped_at IS NULL AND m.manifest_id IS NOT NULL
ORDER BY m.model_id;

-- name: count_recipes
-- How many models are kept as a recipe alone: only making them again shows their bits.
SELECT count(*) AS items
FROM mmdb.model AS m
WHERE m.dropped_at IS NULL AND m.manifest_id IS NULL;

-- name: find_checkpoints
-- Every durable state.
SELECT
    c.part_id,
    c.candidate_id,
    c.state_hash,
    c.byte_count
FROM mmdb.checkpoint AS c
ORDER BY c.candidate_id, c.epoch, c.part_id;

-- name: is_checkpoint_there
-- Whether a durable state is still kept.
SELECT c.epoch
FROM mmdb.checkpoint AS c
WHERE
    c.part_id = %(part_id)s::bigint AND c.candidate_id = %(candidate_id)s::bigint
    AND c.state_hash = %(state_hash)s::bytea;

-- name: find_feature_parts
-- The partitions whose features are stored.
SELECT
    p.feature_id,
    p.part_id,
    p.row_count,
    p.byte_count,
    f.layer,
    d.name AS dataset
FROM mmdb.feature_part AS p
INNER JOIN mmdb.feature AS f ON p.feature_id = f.feature_id
INNER JOIN mmdb.dataset AS d ON f.dataset_id = d.dataset_id
ORDER BY p.feature_id, p.part_id;

-- name: find_strays
-- Blocks of partitions of which nothing is noted as stored; there are none, unless rows were lost.
SELECT
    b.feature_id,
    b.part_id,
    count(*) AS blocks,
    f.layer,
    d.name AS dataset
FROM mmdb.feature_block AS b
LEFT JOIN mmdb.feature_part AS p ON b.feature_id = p.feature_id AND b.part_id = p.part_id
LEFT JOIN mmdb.feature AS f ON b.feature_id = f.feature_id
LEFT JOIN mmdb.dataset AS d ON f.dataset_id = d.dataset_id
WHERE p.part_id IS NULL
GROUP BY b.feature_id, b.part_id, f.layer, d.name
ORDER BY b.feature_id, b.part_id;
