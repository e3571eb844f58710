-- name: find_alike
-- Models that have a tensor of a path, dtype and shape, those whose statistics, within bounds, are nearest to the given ones
-- first; none of a dataset, whose rows may be forgotten: a difference would keep what they left in its weights.
SELECT m.model_id
FROM mmdb.tensor AS t
INNER JOIN mmdb.manifest_tensor AS e ON t.tensor_id = e.tensor_id
INNER JOIN mmdb.model AS m ON e.manifest_id = m.manifest_id
WHERE
    t.byte_count = %(byte_count)s::bigint
    AND t.dtype = %(dtype)s::text
    AND t.shape = %(shape)s::bigint[]
    AND e.path = %(path)s::text
    AND m.dropped_at IS NULL
    AND m.dataset_id IS NULL
    AND m.candidate_id IS NULL
    AND m.parent_id IS NULL
ORDER BY
    abs(least(t.deviation, %(bound)s::double precision) - %(deviation)s::double precision)
    + abs(greatest(least(t.mean, %(bound)s::double precision), -%(bound)s::double precision) - %(mean)s::double precision)
    + abs(greatest(least(t.minimum, %(bound)s::double precision), -%(bound)s::double precision) - %(minimum)s::double precision)
    + abs(greatest(least(t.maximum, %(bound)s::double precision), -%(bound)s::double precision) - %(maximum)s::double precision)
    ASC NULLS LAST,
    m.model_id DESC
LIMIT %(most)s::bigint;

-- name: find_roots
-- What a difference to some tensors of some models would be one to: a tensor that is no difference itself.
SELECT
    m.model_id,
    e.path,
    coalesce(x.base_id, x.tensor_id) AS root_id
FROM mmdb.model AS m
INNER JOIN mmdb.manifest_tensor AS e ON m.manifest_id = e.manifest_id
LEFT JOIN mmdb.model_change AS c ON m.model_id = c.model_id AND e.ordinal = c.ordinal
INNER JOIN mmdb.encoding AS x ON CASE WHEN c.tensor_id IS NULL THEN e.tensor_id ELSE c.tensor_id END = x.tensor_id -- noqa: ST02,LT05
WHERE m.model_id = any(%(model_ids)s::bigint[]) AND e.path = any(%(paths)s::text[]) AND e.kind <> 'storage'
ORDER BY m.model_id, e.ordinal;

-- name: list_weights
-- The models that are not dropped, newest first, each with its largest weight and with what is known of its parent.
WITH weight AS (
    SELECT
        m.model_id,
        e.path,
        t.shape,
        row_number() OVER (PARTITION BY m.model_id ORDER BY t.byte_count DESC, e.path ASC) AS place
    FROM mmdb.model AS m
    INNER JOIN mmdb.manifest_tensor AS e ON m.manifest_id = e.manifest_id
    INNER JOIN mmdb.tensor AS t ON e.tensor_id = t.tensor_id
    WHERE m.dropped_at IS NULL AND e.kind = 'parameter' AND t.dtype LIKE '%%float%%'
)

SELECT
    m.model_id,
    w.path,
    w.shape,
    coalesce(
        m.parent_id,
        (
            SELECT max(t.parent_id)
            FROM mmdb.transfer AS t
            WHERE t.model_id = m.model_id
        )
    ) AS parent_id,
    m.candidate_id IS NOT NULL
    OR m.model_id IN (SELECT k.model_id FROM mmdb.model_member AS k) AS is_trained
FROM mmdb.model AS m
INNER JOIN weight AS w ON m.model_id = w.model_id AND w.place = 1
ORDER BY m.model_id DESC;

-- name: find_reason
-- Why a model is kept as it is.
SELECT m.reason::text AS reason
FROM mmdb.model AS m
WHERE m.model_id = %(model_id)s::bigint;

-- name: set_parent
-- Say what a model was made from.
UPDATE mmdb.model SET parent_id = %(parent_id)s::bigint, reason = %(reason)s::jsonb
WHERE model_id = %(model_id)s::bigint AND dropped_at IS NULL
RETURNING model_id;
