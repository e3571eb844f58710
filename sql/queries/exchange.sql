-- name: list_models
-- The models of some names, or all where there are no names, in the order in which they were saved.
SELECT m.model_id
FROM mmdb.model AS m
WHERE m.dropped_at IS NULL AND (%(every)s::boolean OR m.name = any(%(names)s::text[]))
ORDER BY m.model_id;

-- name: find_parent
-- A model's parent, dropped or not.
SELECT
    p.name,
    p.version,
    p.weights_hash
FROM mmdb.model AS m
INNER JOIN mmdb.model AS p ON m.parent_id = p.model_id
WHERE m.model_id = %(model_id)s::bigint;

-- name: find_any_version
-- One version of a model, dropped or not.
SELECT
    m.model_id,
    m.weights_hash,
    m.dropped_at IS NOT NULL AS is_dropped
FROM mmdb.model AS m
WHERE m.name = %(name)s::text AND m.version = %(version)s::integer;

-- name: find_tags
-- The tags of a model.
SELECT
    t.key,
    t.value
FROM mmdb.model_tag AS t
WHERE t.model_id = %(model_id)s::bigint
ORDER BY t.key;

-- name: find_metrics
-- The metrics of a model.
SELECT
    t.metric,
    t.dataset,
    t.value
FROM mmdb.model_metric AS t
WHERE t.model_id = %(model_id)s::bigint
ORDER BY t.metric, t.dataset;

-- name: find_notes
-- The notes about a model, oldest first.
SELECT t.note
FROM mmdb.model_note AS t
WHERE t.model_id = %(model_id)s::bigint
ORDER BY t.note_id;

-- name: list_aliases
-- Where the aliases of all models are.
SELECT
    a.model,
    a.alias,
    a.version
FROM mmdb.model_alias AS a
ORDER BY a.model, a.alias;
