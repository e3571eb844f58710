-- name: hold_model
-- Take the row of a model that is not dropped; whoever drops it waits. No row where it is dropped.
UPDATE mmdb.model SET dropped_at = NULL
WHERE model_id = %(model_id)s::bigint AND dropped_at IS NULL
RETURNING model_id;

-- name: find_alias
-- The version that an alias of a model is at; no row, or a null, where it is nowhere.
SELECT e.version
FROM mmdb.alias_event AS e
WHERE e.model = %(model)s::text AND e.alias = %(alias)s::text
ORDER BY e.event_id DESC
LIMIT 1;

-- name: find_alias_events
-- Where an alias of a model has been, in order.
SELECT e.version
FROM mmdb.alias_event AS e
WHERE e.model = %(model)s::text AND e.alias = %(alias)s::text
ORDER BY e.event_id;

-- name: add_alias_event
-- Move an alias, or take it away.
INSERT INTO mmdb.alias_event (model, alias, version)
VALUES (%(model)s::text, %(alias)s::text, %(version)s::integer);

-- name: find_aliases
-- The aliases that are at a version of a model.
SELECT a.alias
FROM mmdb.model_alias AS a
WHERE a.model = %(model)s::text AND a.version = %(version)s::integer
ORDER BY a.alias;

-- name: put_tag
-- Give a model a tag, or another value for it.
INSERT INTO mmdb.model_tag (model_id, key, value)
VALUES (%(model_id)s::bigint, %(key)s::text, %(value)s::text)
ON CONFLICT (model_id, key) DO UPDATE SET value = excluded.value, created_at = excluded.created_at;

-- name: delete_tag
-- Take a tag from a model.
DELETE FROM mmdb.model_tag
WHERE model_id = %(model_id)s::bigint AND key = %(key)s::text;

-- name: put_metric
-- Give a model a metric, or another value for it.
INSERT INTO mmdb.model_metric (model_id, metric, dataset, value)
VALUES (%(model_id)s::bigint, %(metric)s::text, %(dataset)s::text, %(value)s::double precision)
ON CONFLICT (model_id, metric, dataset) DO UPDATE SET value = excluded.value, created_at = excluded.created_at;

-- name: add_note
-- Write a note about a model.
INSERT INTO mmdb.model_note (model_id, note)
VALUES (%(model_id)s::bigint, %(note)s::text);

-- name: count_versions
-- How many versions of a model are there.
SELECT count(*) AS versions
FROM mmdb.model AS m
WHERE m.name = %(name)s::text AND m.dropped_at IS NULL;

-- name: find_needing
-- A model whose recipe begins with another one.
SELECT
    m.name,
    m.version
FROM mmdb.model AS m
WHERE
    m.approach = 'provenance' AND m.dropped_at IS NULL
    AND (
        m.parent_id = %(model_id)s::bigint
        OR m.candidate_id IN (
            SELECT w.candidate_id
            FROM mmdb.warm_start AS w
            INNER JOIN mmdb.transfer AS t ON w.transfer_id = t.transfer_id
            INNER JOIN mmdb.candidate AS c ON w.candidate_id = c.candidate_id
            INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
            WHERE t.parent_id = %(model_id)s::bigint AND (r.architecture ->> 'adapted') IS NOT NULL
        )
    )
ORDER BY m.model_id
LIMIT 1;

-- name: mark_dropped
-- Drop a model; its row stays.
UPDATE mmdb.model SET dropped_at = now()
WHERE model_id = %(model_id)s::bigint AND dropped_at IS NULL
RETURNING model_id;

-- name: own_bytes
-- Stored bytes of the tensors of a dropped model that no other model lists, and no difference is kept against.
WITH own AS (
    SELECT coalesce(c.tensor_id, e.tensor_id) AS tensor_id
    FROM mmdb.model AS m
    INNER JOIN mmdb.manifest_tensor AS e ON m.manifest_id = e.manifest_id
    LEFT JOIN mmdb.model_change AS c ON m.model_id = c.model_id AND e.ordinal = c.ordinal
    WHERE m.model_id = %(model_id)s::bigint
    UNION
    SELECT m.pack_id
    FROM mmdb.model AS m
    WHERE m.model_id = %(model_id)s::bigint AND m.pack_id IS NOT NULL
    UNION
    SELECT r.tensor_id
    FROM mmdb.recipe_tensor AS r
    WHERE r.model_id = %(model_id)s::bigint
)

SELECT coalesce(sum(x.stored_bytes), 0)::bigint AS bytes
FROM own AS o
INNER JOIN mmdb.encoding AS x ON o.tensor_id = x.tensor_id
WHERE
    NOT EXISTS (
        SELECT 1
        FROM mmdb.manifest_tensor AS e
        INNER JOIN mmdb.model AS m ON e.manifest_id = m.manifest_id
        WHERE e.tensor_id = x.tensor_id AND m.dropped_at IS NULL
    )
    AND NOT EXISTS (
        SELECT 1
        FROM mmdb.model_change AS c
        INNER JOIN mmdb.model AS m ON c.model_id = m.model_id
        WHERE c.tensor_id = x.tensor_id AND m.dropped_at IS NULL
    )
    AND NOT EXISTS (
        SELECT 1
        FROM mmdb.recipe_tensor AS r
        INNER JOIN mmdb.model AS m ON r.model_id = m.model_id
        WHERE r.tensor_id = x.tensor_id AND m.dropped_at IS NULL
    )
    AND NOT EXISTS (
        SELECT 1
        FROM mmdb.model AS m
        WHERE m.pack_id = x.tensor_id AND m.dropped_at IS NULL
    )
    AND NOT EXISTS (
        SELECT 1
        FROM mmdb.encoding AS d
        WHERE d.base_id = x.tensor_id AND d.tensor_id NOT IN (SELECT s.tensor_id FROM own AS s)
    );

-- name: add_probe
-- Keep a probe's summary.
INSERT INTO mmdb.probe (name, model_id, summary)
VALUES (%(name)s::text, %(model_id)s::bigint, %(summary)s::jsonb);

-- name: find_probe
-- The newest probe of a name.
SELECT p.summary::text AS summary
FROM mmdb.probe AS p
WHERE p.name = %(name)s::text
ORDER BY p.probe_id DESC
LIMIT 1;
