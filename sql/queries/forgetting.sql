-- name: read_whole_block
-- A block with the hashes of its rows.
SELECT
    b.data,
    b.row_hashes
FROM mmdb.block AS b
WHERE b.part_id = %(source_id)s::bigint AND b.ordinal = %(source_ordinal)s::integer;

-- name: replace_block
-- Store a block without some of its rows.
UPDATE mmdb.block
SET
    row_count = %(row_count)s::integer,
    digest = %(digest)s::bytea,
    data = %(data)s::bytea,
    row_hashes = %(row_hashes)s::bytea
WHERE part_id = %(source_id)s::bigint AND ordinal = %(source_ordinal)s::integer;

-- name: mask_shared_block
-- Say anew which rows of a block a partition leaves out.
UPDATE mmdb.shared_block
SET masked = %(masked)s::integer[]
WHERE part_id = %(part_id)s::bigint AND ordinal = %(ordinal)s::integer;

-- name: change_partition
-- Say what is left of a partition.
UPDATE mmdb.partition
SET
    ordinal = %(ordinal)s::integer,
    row_count = %(row_count)s::bigint,
    byte_count = %(byte_count)s::bigint,
    content_hash = %(content_hash)s::bytea
WHERE part_id = %(part_id)s::bigint;

-- name: change_dataset
-- Say what is left of a dataset.
UPDATE mmdb.dataset
SET
    partitions = %(partitions)s::integer,
    validation = %(validation)s::double precision,
    row_count = %(row_count)s::bigint,
    byte_count = %(byte_count)s::bigint,
    content_hash = %(content_hash)s::bytea,
    class_counts = %(class_counts)s::jsonb
WHERE dataset_id = %(dataset_id)s::bigint;

-- name: change_categories
-- Say anew which texts a column's codes stand for.
UPDATE mmdb.transform
SET categories = %(categories)s::jsonb
WHERE
    dataset_id = %(dataset_id)s::bigint
    AND ordinal = (
        SELECT c.ordinal
        FROM mmdb.dataset_column AS c
        WHERE c.dataset_id = %(dataset_id)s::bigint AND c.name = %(name)s::text
    );

-- name: find_runs
-- Runs on datasets, and those of candidates, that are not dropped.
SELECT
    r.run_id,
    r.name
FROM mmdb.run AS r
WHERE
    r.dropped_at IS NULL
    AND (
        r.dataset_id = any(%(dataset_ids)s::bigint[])
        OR r.run_id IN (
            SELECT c.run_id FROM mmdb.candidate AS c
            WHERE c.candidate_id = any(%(candidate_ids)s::bigint[])
        )
    )
ORDER BY r.run_id;

-- name: find_models
-- Models of some names and versions that are not dropped, those that others came from first.
SELECT
    m.model_id,
    m.name,
    m.version
FROM mmdb.model AS m
WHERE m.dropped_at IS NULL AND m.name || '@' || m.version::text = any(%(references)s::text[])
ORDER BY m.model_id;

-- name: find_features
-- Features of partitions that are stored.
SELECT
    f.feature_id,
    f.part_id
FROM mmdb.feature_part AS f
WHERE f.part_id = any(%(part_ids)s::bigint[])
ORDER BY f.feature_id, f.part_id;

-- name: find_neighbours
-- Other datasets that read a table which a dataset reads.
SELECT DISTINCT
    d.dataset_id,
    d.name,
    coalesce(d.origin_id, d.dataset_id) AS origin_id
FROM mmdb.dataset_source AS s
INNER JOIN mmdb.dataset_source AS t
    ON s.table_name = t.table_name AND s.schema_name IS NOT DISTINCT FROM t.schema_name
INNER JOIN mmdb.dataset AS d ON t.dataset_id = d.dataset_id
WHERE s.dataset_id = %(dataset_id)s::bigint AND s.table_name != '' AND d.dropped_at IS NULL
ORDER BY d.dataset_id;

-- name: find_evaluations
-- Evaluations of datasets, of models, and of queries on tables that these datasets read.
SELECT e.evaluation_id
FROM mmdb.evaluation AS e
WHERE
    e.dataset_id = any(%(dataset_ids)s::bigint[])
    OR e.model_id = any(%(model_ids)s::bigint[])
    OR e.evaluation_id IN (
        SELECT o.evaluation_id
        FROM mmdb.evaluation_source AS o
        INNER JOIN mmdb.dataset_source AS s ON o.table_name = s.table_name
        WHERE s.dataset_id = any(%(dataset_ids)s::bigint[]) AND o.table_name != ''
    )
ORDER BY e.evaluation_id;

-- name: clear_figures
-- Take away what evaluations show of single rows.
UPDATE mmdb.evaluation
SET figures = NULL
WHERE evaluation_id = any(%(evaluation_ids)s::bigint[]) AND figures IS NOT NULL;

-- name: delete_slices
-- Take away what evaluations show of rows with one value of a column.
DELETE FROM mmdb.evaluation_metric
WHERE evaluation_id = any(%(evaluation_ids)s::bigint[]) AND by_name IS NOT NULL;

-- name: add_forgetting
-- Record a call of forget; return its number.
INSERT INTO mmdb.forgetting (dataset_id, row_count, note)
VALUES (%(dataset_id)s::bigint, %(row_count)s::bigint, %(note)s::text)
RETURNING forgetting_id;

-- name: add_step
-- Record one step of a call of forget.
INSERT INTO mmdb.forgetting_step (
    forgetting_id, ordinal, entity, action, row_count, before_hash, after_hash, model_id, reason, done_at
)
VALUES (
    %(forgetting_id)s::bigint,
    %(ordinal)s::integer,
    %(entity)s::text,
    %(action)s::text,
    %(row_count)s::bigint,
    %(before_hash)s::text,
    %(after_hash)s::text,
    %(model_id)s::bigint,
    %(reason)s::text,
    CASE WHEN %(is_done)s::boolean THEN now() END
);

-- name: find_open_steps
-- Models that are still to be made without rows that were forgotten, the oldest first.
SELECT
    s.forgetting_id,
    s.ordinal,
    s.entity,
    s.model_id,
    m.candidate_id,
    m.owner,
    m.dropped_at IS NOT NULL AS is_dropped,
    r.name AS run,
    r.warm_start
FROM mmdb.forgetting_step AS s
INNER JOIN mmdb.model AS m ON s.model_id = m.model_id
INNER JOIN mmdb.candidate AS c ON m.candidate_id = c.candidate_id
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
WHERE s.action = 'remake' AND s.done_at IS NULL
ORDER BY s.forgetting_id, s.ordinal;

-- name: find_parent
-- The model that a candidate began with, and the state whose optimizer it went on from, if it did.
SELECT
    t.parent_id,
    t.parent_state
FROM mmdb.warm_start AS w
INNER JOIN mmdb.transfer AS t ON w.transfer_id = t.transfer_id
WHERE w.candidate_id = %(candidate_id)s::bigint AND t.parent_id IS NOT NULL;

-- name: find_shards
-- What a model is the mean of, in order, and whether it had met rows that were forgotten since, of which any row is left.
SELECT
    k.candidate_id,
    c.run_id,
    r.dataset_id,
    d.dropped_at IS NOT NULL AS is_emptied,
    r.dataset_id IN (
        SELECT p.dataset_id
        FROM mmdb.forgetting_step AS s
        INNER JOIN mmdb.forgetting_step AS e ON s.forgetting_id = e.forgetting_id AND e.action = 'erase'
        INNER JOIN mmdb.partition AS p ON e.entity = 'partition:' || p.part_id::text
        WHERE s.model_id = %(model_id)s::bigint AND p.role != 'test'
    ) AS has_met
FROM mmdb.model_member AS k
INNER JOIN mmdb.candidate AS c ON k.candidate_id = c.candidate_id
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
INNER JOIN mmdb.dataset AS d ON r.dataset_id = d.dataset_id
WHERE k.model_id = %(model_id)s::bigint
ORDER BY k.ordinal;

-- name: find_replaced
-- The versions that took the place of models, and what those were.
SELECT
    o.name || '@' || o.version::text AS old,
    n.name || '@' || n.version::text AS new
FROM mmdb.forgetting_step AS s
INNER JOIN mmdb.model AS o ON s.model_id = o.model_id
LEFT JOIN mmdb.model AS n ON s.new_model_id = n.model_id
WHERE s.done_at IS NOT NULL;

-- name: end_step
-- Record what became of a model that rows had reached.
UPDATE mmdb.forgetting_step
SET
    action = %(action)s::text,
    new_model_id = %(new_model_id)s::bigint,
    after_hash = %(after_hash)s::text,
    reason = %(reason)s::text,
    done_at = now()
WHERE forgetting_id = %(forgetting_id)s::bigint AND ordinal = %(ordinal)s::integer;

-- name: find_made_again
-- The run that has made a candidate again since rows were forgotten.
SELECT r.name AS run
FROM mmdb.forgetting_step AS s
INNER JOIN mmdb.model AS o ON s.model_id = o.model_id
INNER JOIN mmdb.model AS n ON s.new_model_id = n.model_id
INNER JOIN mmdb.candidate AS c ON n.candidate_id = c.candidate_id
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
WHERE
    s.forgetting_id = %(forgetting_id)s::bigint
    AND o.candidate_id = %(candidate_id)s::bigint
    AND r.dropped_at IS NULL
ORDER BY r.run_id
LIMIT 1;
