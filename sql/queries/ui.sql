-- name: list_runs
-- The runs, the last first.
SELECT
    p.run,
    p.status,
    p.dataset,
    p.strategy,
    p.metric,
    p.candidates,
    p.failed,
    p.hops_done,
    p.hops_total,
    p.best_value,
    p.seconds_left,
    extract(EPOCH FROM p.created_at)::double precision AS created
FROM mmdb.run_progress AS p
ORDER BY p.created_at DESC, p.run ASC
LIMIT %(most)s::integer;

-- name: list_models
-- The versions of models, the last first.
SELECT
    m.model,
    m.version,
    m.dataset,
    m.run,
    m.approach,
    m.parent,
    m.byte_count,
    m.stored_bytes,
    extract(EPOCH FROM m.created_at)::double precision AS created
FROM mmdb.model_overview AS m
WHERE m.dropped_at IS NULL
ORDER BY m.created_at DESC, m.model ASC, m.version DESC
LIMIT %(most)s::integer;

-- name: run_state
-- What changes when a run's page does.
SELECT
    p.status,
    p.candidates,
    p.failed,
    p.stopped,
    p.hops_done,
    p.hops_total,
    p.last_hop_at,
    p.best_value,
    (
        SELECT count(*)
        FROM mmdb.model_overview AS m
        WHERE m.run = %(run)s::text AND m.dropped_at IS NULL
    ) AS models,
    (
        SELECT max(l.plan_id)
        FROM mmdb.plan_overview AS l
        WHERE l.run = %(run)s::text
    ) AS plan_id
FROM mmdb.run_progress AS p
WHERE p.run = %(run)s::text;

-- name: model_state
-- What changes when a model's page does.
SELECT
    count(*) AS versions,
    count(m.dropped_at) AS dropped,
    (
        SELECT max(h.event_id)
        FROM mmdb.alias_history AS h
        WHERE h.model = %(model)s::text
    ) AS alias_event,
    (
        SELECT count(*)
        FROM mmdb.metric_overview AS t
        WHERE t.model = %(model)s::text
    ) AS metrics,
    (
        SELECT count(*)
        FROM mmdb.note_overview AS n
        WHERE n.model = %(model)s::text
    ) AS notes,
    (
        SELECT count(*)
        FROM mmdb.tag_overview AS g
        WHERE g.model = %(model)s::text
    ) AS tags,
    (
        SELECT count(*)
        FROM mmdb.prediction_overview AS p
        WHERE p.model = %(model)s::text
    ) AS predictions
FROM mmdb.model_overview AS m
WHERE m.model = %(model)s::text;

-- name: runs_state
-- What changes when the list of runs does.
SELECT
    count(*) AS runs,
    sum(p.hops_done) AS hops_done,
    count(*) FILTER (WHERE p.status = 'finished') AS finished,
    count(*) FILTER (WHERE p.status = 'started') AS started
FROM mmdb.run_progress AS p;

-- name: models_state
-- What changes when the list of models does, or what came of something.
SELECT
    count(*) AS models,
    count(*) FILTER (WHERE m.dropped_at IS NULL) AS kept,
    max(m.model_id) AS last_model
FROM mmdb.model_overview AS m;

-- name: lineage_state
-- What changes when something new came of something.
SELECT
    (SELECT count(*) FROM mmdb.dataset_overview) AS datasets,
    (SELECT count(*) FROM mmdb.run_progress) AS runs,
    (SELECT count(*) FROM mmdb.prediction_overview) AS predictions;
