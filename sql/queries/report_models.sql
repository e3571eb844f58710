-- name: find_version
-- What a report says of a model at its head; by number, by alias, or the last version.
SELECT
    m.model,
    m.version,
    m.dataset,
    m.run,
    m.candidate_id,
    m.members,
    m.epoch,
    m.approach,
    m.parent,
    m.architecture::text AS architecture,
    m.nodes,
    m.parameters,
    m.tensors,
    m.byte_count,
    m.stored_bytes,
    m.save_s,
    m.reason::text AS reason,
    extract(EPOCH FROM m.created_at)::double precision AS created,
    extract(EPOCH FROM m.dropped_at)::double precision AS dropped
FROM mmdb.model_overview AS m
WHERE
    m.model = %(model)s::text
    AND m.version = (
        CASE
            WHEN %(version)s::integer IS NOT NULL THEN %(version)s::integer
            WHEN %(alias)s::text IS NOT NULL
                THEN (
                    SELECT a.version
                    FROM mmdb.model_alias AS a
                    WHERE a.model = %(model)s::text AND a.alias = %(alias)s::text
                )
            ELSE (
                SELECT max(n.version)
                FROM mmdb.model_overview AS n
                WHERE n.model = %(model)s::text AND n.dropped_at IS NULL
            )
        END
    );

-- name: find_versions
-- The versions of a model, the first first.
SELECT
    m.version,
    m.approach,
    m.parent,
    m.run,
    m.candidate_id,
    m.byte_count,
    m.stored_bytes,
    extract(EPOCH FROM m.created_at)::double precision AS created,
    extract(EPOCH FROM m.dropped_at)::double precision AS dropped
FROM mmdb.model_overview AS m
WHERE m.model = %(model)s::text
ORDER BY m.version;

-- name: find_model_metrics
-- The metrics of all versions of a model.
SELECT
    t.version,
    t.metric,
    t.dataset,
    t.value
FROM mmdb.metric_overview AS t
WHERE t.model = %(model)s::text
ORDER BY t.metric, t.dataset, t.version;

-- name: find_alias_history
-- Which version of a model each of its aliases was on, and since when.
SELECT
    h.alias,
    h.version,
    h.author,
    extract(EPOCH FROM h.happened_at)::double precision AS happened
FROM mmdb.alias_history AS h
WHERE h.model = %(model)s::text
ORDER BY h.event_id;

-- name: find_tags
-- The tags of a model's version.
SELECT
    t.key,
    t.value
FROM mmdb.tag_overview AS t
WHERE t.model = %(model)s::text AND t.version = %(version)s::integer
ORDER BY t.key;

-- name: find_notes
-- What people wrote about a model's version, the last first.
SELECT
    n.note,
    n.author,
    extract(EPOCH FROM n.created_at)::double precision AS created
FROM mmdb.note_overview AS n
WHERE n.model = %(model)s::text AND n.version = %(version)s::integer
ORDER BY n.created_at DESC;

-- name: find_tensors
-- The tensors of a model's version and how they lie in the database.
SELECT
    s.ordinal,
    s.path,
    s.kind,
    s.tied_to,
    s.dtype,
    s.shape,
    s.byte_count,
    s.stored_bytes,
    s.chunks,
    s.base_id IS NOT NULL AS is_difference,
    s.minimum,
    s.maximum,
    s.mean,
    s.deviation,
    s.tensor_id
FROM mmdb.tensor_storage AS s
WHERE s.model = %(model)s::text AND s.version = %(version)s::integer
ORDER BY s.ordinal;

-- name: find_storage
-- What sharing tensors and encoding them saved of a model's version.
SELECT
    s.byte_count,
    s.stored_bytes,
    s.shared_bytes,
    s.encoded_away_bytes
FROM mmdb.storage_overview AS s
WHERE s.model = %(model)s::text AND s.version = %(version)s::integer;

-- name: find_origin
-- Where a model's version came from that was not made here.
SELECT
    o.kind,
    o.source,
    o.format
FROM mmdb.origin_overview AS o
WHERE o.model = %(model)s::text AND o.version = %(version)s::integer;

-- name: find_predictions
-- Tables that a model's version has written predictions to, the last first.
SELECT
    p.schema_name,
    p.table_name,
    p.row_count,
    p.seconds,
    p.author,
    extract(EPOCH FROM p.predicted_at)::double precision AS predicted
FROM mmdb.prediction_overview AS p
WHERE p.model = %(model)s::text AND p.version = %(version)s::integer
ORDER BY p.predicted_at DESC, p.prediction_id DESC
LIMIT 100;

-- name: find_evaluations
-- What a model's version was measured by, the last call first.
SELECT
    e.dataset,
    e.slice,
    e.query,
    e.metric,
    e.by_name,
    e.by_value,
    e.row_count,
    e.value,
    e.low,
    e.high,
    e.author,
    extract(EPOCH FROM e.evaluated_at)::double precision AS evaluated
FROM mmdb.evaluation_overview AS e
WHERE
    e.model = %(model)s::text AND e.version = %(version)s::integer
    AND (e.slice IS NULL OR e.by_name IS NULL)
ORDER BY e.evaluation_id DESC, e.ordinal ASC
LIMIT 200;

-- name: find_groups
-- The groups of a model that do worst, each with how the metric lies over all of them.
WITH measured AS (
    SELECT
        g.code,
        g.column_name,
        g.group_value,
        g.train_rows,
        g.train_loss,
        g.held_out_rows,
        g.held_out_loss,
        coalesce(g.metric, 'loss of the train rows') AS metric,
        CASE WHEN g.metric IS NULL THEN g.train_loss ELSE g.value END AS value,
        coalesce(g.maximize, FALSE) AS maximize
    FROM mmdb.group_overview AS g
    WHERE g.model = %(model)s::text AND g.version = %(version)s::integer
),

ranked AS (
    SELECT
        m.code,
        m.value,
        row_number() OVER (ORDER BY m.value ASC) - 1 AS place,
        count(*) OVER () - 1 AS last
    FROM measured AS m
    WHERE m.value IS NOT NULL
),

spread AS (
    SELECT
        count(*) AS measured,
        min(r.value) AS least,
        max(r.value) FILTER (WHERE 4 * r.place <= r.last) AS low,
        max(r.value) FILTER (WHERE 2 * r.place <= r.last) AS middle,
        max(r.value) FILTER (WHERE 4 * r.place <= 3 * r.last) AS high,
        max(r.value) AS most
    FROM ranked AS r
)

SELECT
    m.code,
    m.column_name,
    m.group_value,
    m.train_rows,
    m.train_loss,
    m.held_out_rows,
    m.held_out_loss,
    m.metric,
    m.value,
    (SELECT count(g.code) FROM measured AS g) AS groups,
    s.measured,
    s.least,
    s.low,
    s.middle,
    s.high,
    s.most
FROM measured AS m
CROSS JOIN spread AS s
WHERE m.value IS NOT NULL
ORDER BY CASE WHEN m.maximize THEN m.value ELSE -m.value END ASC, m.code ASC
LIMIT 10;

-- name: find_figures
-- What is drawn of a model's version: of its last evaluation, and of its last importance.
SELECT
    e.dataset,
    e.slice,
    e.query,
    e.row_count,
    e.figures::text AS figures,
    extract(EPOCH FROM e.evaluated_at)::double precision AS evaluated
FROM mmdb.evaluation_figures AS e
WHERE e.model = %(model)s::text AND e.version = %(version)s::integer
ORDER BY e.evaluation_id DESC
LIMIT 20;

-- name: find_candidate_epochs
-- The learning curve of one candidate of a run.
SELECT
    p.candidate_id,
    p.epoch,
    p.metric,
    p.training_loss,
    p.objective
FROM mmdb.candidate_progress AS p
WHERE p.run = %(run)s::text AND p.candidate_id = %(candidate_id)s::bigint
ORDER BY p.epoch;

-- name: find_transfer
-- What was carried over from whom into a model's candidate.
SELECT
    w.parent,
    w.similarity,
    w.coverage,
    w.reason
FROM mmdb.warm_start_overview AS w
WHERE w.run = %(run)s::text AND w.candidate_id = %(candidate_id)s::bigint AND w.parent IS NOT NULL;
