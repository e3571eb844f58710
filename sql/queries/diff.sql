-- name: diff_models
-- The paths at which two models have not the same tensor; those of the first alone come last.
WITH old AS (
    SELECT
        e.ordinal,
        e.path,
        coalesce(c.tensor_id, e.tensor_id) AS tensor_id
    FROM mmdb.model AS m
    INNER JOIN mmdb.manifest_tensor AS e ON m.manifest_id = e.manifest_id
    LEFT JOIN mmdb.model_change AS c ON m.model_id = c.model_id AND e.ordinal = c.ordinal
    WHERE m.model_id = %(a)s::bigint AND e.kind <> 'storage'
),

new AS (
    SELECT
        e.ordinal,
        e.path,
        coalesce(c.tensor_id, e.tensor_id) AS tensor_id
    FROM mmdb.model AS m
    INNER JOIN mmdb.manifest_tensor AS e ON m.manifest_id = e.manifest_id
    LEFT JOIN mmdb.model_change AS c ON m.model_id = c.model_id AND e.ordinal = c.ordinal
    WHERE m.model_id = %(b)s::bigint AND e.kind <> 'storage'
)

SELECT
    coalesce(n.path, o.path) AS path,
    CASE WHEN o.tensor_id IS NULL THEN 'added' WHEN n.tensor_id IS NULL THEN 'removed' ELSE 'changed' END AS change,
    x.dtype,
    x.shape,
    y.dtype AS old_dtype,
    y.shape AS old_shape,
    x.byte_count
FROM old AS o
FULL JOIN new AS n ON o.path = n.path
INNER JOIN mmdb.tensor AS x ON CASE WHEN n.tensor_id IS NULL THEN o.tensor_id ELSE n.tensor_id END = x.tensor_id -- noqa: ST02,LT05
LEFT JOIN mmdb.tensor AS y ON o.tensor_id = y.tensor_id
WHERE o.tensor_id IS DISTINCT FROM n.tensor_id
ORDER BY n.ordinal ASC NULLS LAST, o.ordinal ASC;
