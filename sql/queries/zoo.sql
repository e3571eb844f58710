-- name: add_outline
-- The outline of an architecture, unless it is there.
INSERT INTO mmdb.outline (architecture_id, version, layer_count, parameter_count, packed)
VALUES (
    %(architecture_id)s::bigint, %(version)s::integer, %(layer_count)s::integer, %(parameter_count)s::bigint,
    %(packed)s::bytea
)
ON CONFLICT (architecture_id, version) DO NOTHING;

-- name: read_outlines
-- Outlines of some architectures.
SELECT
    o.architecture_id,
    o.packed
FROM mmdb.outline AS o
WHERE o.architecture_id = any(%(architecture_ids)s::bigint[]) AND o.version = %(version)s::integer
ORDER BY o.architecture_id;

-- name: is_read_only
-- Whether the transaction may write nothing.
SELECT current_setting('transaction_read_only')::boolean AS read_only;

-- name: find_zoo
-- Architectures of models that are not dropped: 0 one is of the goal's dataset, 1 of its task, 2 of another, 3 none is in the zoo.
WITH goal AS (
    SELECT
        d.name,
        d.content_hash
    FROM mmdb.dataset AS d
    WHERE d.dataset_id = %(dataset_id)s::bigint
),

latest AS (
    SELECT
        e.model_id,
        e.event,
        row_number() OVER (PARTITION BY e.model_id ORDER BY e.event_id DESC) AS place
    FROM mmdb.zoo_event AS e
    WHERE e.event <> 'hit'
)

SELECT
    m.architecture_id,
    min(
        CASE
            WHEN l.event <> 'admitted' THEN 3
            WHEN d.name IN (SELECT g.name FROM goal AS g) OR d.content_hash IN (SELECT g.content_hash FROM goal AS g) THEN 0
            WHEN d.task = %(task)s::text THEN 1
            ELSE 2
        END
    ) AS place
FROM mmdb.model AS m
LEFT JOIN mmdb.dataset AS d ON m.dataset_id = d.dataset_id
LEFT JOIN latest AS l ON m.model_id = l.model_id AND l.place = 1
WHERE m.dropped_at IS NULL AND m.architecture_id IS NOT NULL
GROUP BY m.architecture_id
ORDER BY m.architecture_id;

-- name: find_models
-- Models of some architectures that are not dropped, with what the zoo says of each.
WITH latest AS (
    SELECT
        e.model_id,
        e.event,
        e.reason,
        e.by_rule,
        row_number() OVER (PARTITION BY e.model_id ORDER BY e.event_id DESC) AS place
    FROM mmdb.zoo_event AS e
    INNER JOIN mmdb.model AS m ON e.model_id = m.model_id
    WHERE m.architecture_id = any(%(architecture_ids)s::bigint[]) AND e.event <> 'hit'
)

SELECT
    m.model_id,
    m.name,
    m.version,
    m.architecture_id,
    m.dataset_id,
    d.name AS dataset,
    d.task,
    d.content_hash,
    l.event,
    l.reason,
    l.by_rule
FROM mmdb.model AS m
LEFT JOIN mmdb.dataset AS d ON m.dataset_id = d.dataset_id
LEFT JOIN latest AS l ON m.model_id = l.model_id AND l.place = 1
WHERE m.architecture_id = any(%(architecture_ids)s::bigint[]) AND m.dropped_at IS NULL
ORDER BY m.model_id;

-- name: list_models
-- Every model with an architecture that is not dropped, with what the zoo says of it.
WITH latest AS (
    SELECT
        e.model_id,
        e.event,
        e.by_rule,
        row_number() OVER (PARTITION BY e.model_id ORDER BY e.event_id DESC) AS place
    FROM mmdb.zoo_event AS e
    WHERE e.event <> 'hit'
)

SELECT
    m.model_id,
    m.name,
    m.version,
    m.architecture_id,
    m.dataset_id,
    r.metric,
    r.maximize,
    extract(EPOCH FROM m.created_at)::double precision AS created,
    l.event,
    l.by_rule
FROM mmdb.model AS m
LEFT JOIN mmdb.candidate AS c ON m.candidate_id = c.candidate_id
LEFT JOIN mmdb.run AS r ON c.run_id = r.run_id
LEFT JOIN latest AS l ON m.model_id = l.model_id AND l.place = 1
WHERE m.dropped_at IS NULL
ORDER BY m.model_id;

-- name: find_goal
-- The task of a dataset, and by what a parent on it is told from one that has learned nothing.
SELECT
    d.dataset_id,
    d.name,
    d.task,
    d.label,
    d.content_hash,
    d.class_counts::text AS class_counts,
    (
        SELECT sum(p.row_count)
        FROM mmdb.partition AS p
        WHERE p.dataset_id = d.dataset_id AND p.role = 'validation'
    )::bigint AS validation_rows
FROM mmdb.dataset AS d
WHERE d.dataset_id = any(%(dataset_ids)s::bigint[]);

-- name: newest_dataset
-- The dataset that was created last and is not dropped.
SELECT d.name
FROM mmdb.dataset AS d
WHERE d.dropped_at IS NULL
ORDER BY d.dataset_id DESC
LIMIT 1;

-- name: find_metrics
-- Metrics of some models.
SELECT
    v.model_id,
    v.metric,
    v.dataset,
    v.value
FROM mmdb.model_metric AS v
WHERE v.model_id = any(%(model_ids)s::bigint[])
ORDER BY v.model_id, v.metric, v.dataset;

-- name: find_values
-- A metric of all models that were trained on some datasets, on those.
SELECT
    m.dataset_id,
    m.model_id,
    v.value
FROM mmdb.model AS m
INNER JOIN mmdb.model_metric AS v ON m.model_id = v.model_id
WHERE
    m.dataset_id = any(%(dataset_ids)s::bigint[]) AND m.dropped_at IS NULL
    AND v.metric = %(metric)s::text AND v.dataset = ''
ORDER BY m.model_id;

-- name: find_unsound
-- Those of some models that have parameters which are no finite numbers, with the elements that are NaN.
SELECT
    m.model_id,
    sum(t.nans)::bigint AS nans
FROM mmdb.model AS m
INNER JOIN mmdb.manifest_tensor AS e ON m.manifest_id = e.manifest_id
LEFT JOIN mmdb.model_change AS c ON m.model_id = c.model_id AND e.ordinal = c.ordinal
INNER JOIN mmdb.tensor AS t ON CASE WHEN c.tensor_id IS NULL THEN e.tensor_id ELSE c.tensor_id END = t.tensor_id -- noqa: ST02,LT05
WHERE
    m.model_id = any(%(model_ids)s::bigint[]) AND e.kind = 'parameter'
    AND (
        t.nans > 0 OR t.minimum = '-Infinity'::double precision OR t.maximum = 'Infinity'::double precision
    )
GROUP BY m.model_id;

-- name: find_live
-- A model, if it is not dropped.
SELECT m.model_id
FROM mmdb.model AS m
WHERE m.model_id = %(model_id)s::bigint AND m.dropped_at IS NULL;

-- name: share_live
-- A model, if it is not dropped; whoever drops it waits, and others may share it too.
SELECT m.model_id
FROM mmdb.model AS m
WHERE m.model_id = %(model_id)s::bigint AND m.dropped_at IS NULL
FOR SHARE;

-- name: add_event
-- Say of a model what became of it in the zoo, and why.
INSERT INTO mmdb.zoo_event (model_id, event, reason, by_rule)
VALUES (%(model_id)s::bigint, %(event)s::text, %(reason)s::text, %(by_rule)s::boolean);

-- name: find_hits
-- When each model was taken as a parent.
SELECT
    e.model_id,
    extract(EPOCH FROM e.happened_at)::double precision AS happened
FROM mmdb.zoo_event AS e
WHERE e.event = 'hit'
ORDER BY e.event_id;

-- name: find_pinned
-- Models that an alias is at, and those that recipes of other models begin with.
SELECT
    m.model_id,
    'alias ' || a.alias AS why
FROM mmdb.model_alias AS a
INNER JOIN mmdb.model AS m ON a.model = m.name AND a.version = m.version
WHERE m.dropped_at IS NULL
UNION ALL
SELECT
    m.parent_id AS model_id,
    'the recipe of ' || m.name || '@' || m.version::text AS why
FROM mmdb.model AS m
WHERE m.approach = 'provenance' AND m.dropped_at IS NULL AND m.parent_id IS NOT NULL
ORDER BY model_id, why;

-- name: read_holdings
-- Which stored tensors each model that is not dropped needs: its own, its pack, its recipe's, and what they differ from.
WITH held AS (
    SELECT
        m.model_id,
        coalesce(c.tensor_id, e.tensor_id) AS tensor_id
    FROM mmdb.model AS m
    INNER JOIN mmdb.manifest_tensor AS e ON m.manifest_id = e.manifest_id
    LEFT JOIN mmdb.model_change AS c ON m.model_id = c.model_id AND e.ordinal = c.ordinal
    WHERE m.dropped_at IS NULL
    UNION
    SELECT
        m.model_id,
        m.pack_id AS tensor_id
    FROM mmdb.model AS m
    WHERE m.dropped_at IS NULL AND m.pack_id IS NOT NULL
    UNION
    SELECT
        m.model_id,
        r.tensor_id
    FROM mmdb.model AS m
    INNER JOIN mmdb.recipe_tensor AS r ON m.model_id = r.model_id
    WHERE m.dropped_at IS NULL
)

SELECT
    h.model_id,
    x.tensor_id,
    x.stored_bytes
FROM held AS h
INNER JOIN mmdb.encoding AS x ON h.tensor_id = x.tensor_id
UNION
SELECT
    h.model_id,
    b.tensor_id,
    b.stored_bytes
FROM held AS h
INNER JOIN mmdb.encoding AS x ON h.tensor_id = x.tensor_id
INNER JOIN mmdb.encoding AS b ON x.base_id = b.tensor_id;
