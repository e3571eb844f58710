-- What mmdb's rows say, for OpenLineage: of one run with what it rests on, or of all where run is null.

-- name: find_installation
-- When the schema was made: with it the ids of events are made, so they survive dump and restore.
SELECT m.applied_at
FROM mmdb.migration AS m
WHERE m.number = 0;

-- name: find_runs
-- Runs, with how many of their candidates failed.
SELECT
    r.run_id,
    r.name,
    r.dataset_id,
    r.architecture::text AS architecture,
    r.search::text AS search,
    r.epochs,
    coalesce(s.strategy, r.strategy) AS strategy,
    r.warm_start,
    r.metric,
    r.seed,
    r.created_at,
    (
        SELECT count(*) FROM mmdb.candidate AS c
        WHERE c.run_id = r.run_id
    ) AS candidates,
    (
        SELECT count(*)
        FROM mmdb.candidate_event AS e
        INNER JOIN mmdb.candidate AS c ON e.candidate_id = c.candidate_id
        WHERE c.run_id = r.run_id
    ) AS failed,
    (
        SELECT min(e.message)
        FROM mmdb.candidate_event AS e
        INNER JOIN mmdb.candidate AS c ON e.candidate_id = c.candidate_id
        WHERE c.run_id = r.run_id
    ) AS error
FROM mmdb.run AS r
LEFT JOIN mmdb.run_strategy AS s ON r.run_id = s.run_id
WHERE %(run)s::text IS NULL OR r.name = %(run)s::text
ORDER BY r.run_id;

-- name: find_run_events
-- When runs were started, finished or interrupted.
SELECT
    e.run_id,
    e.happened_at,
    e.event,
    e.workers
FROM mmdb.run_event AS e
INNER JOIN mmdb.run AS r ON e.run_id = r.run_id
WHERE e.event <> 'replanned' AND (%(run)s::text IS NULL OR r.name = %(run)s::text)
ORDER BY e.run_id, e.happened_at;

-- name: find_warm_parents
-- The models that candidates of a run began with.
SELECT DISTINCT
    c.run_id,
    t.parent_id
FROM mmdb.warm_start AS w
INNER JOIN mmdb.candidate AS c ON w.candidate_id = c.candidate_id
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
INNER JOIN mmdb.transfer AS t ON w.transfer_id = t.transfer_id
WHERE t.parent_id IS NOT NULL AND (%(run)s::text IS NULL OR r.name = %(run)s::text)
ORDER BY c.run_id, t.parent_id;

-- name: find_datasets
-- Datasets, dropped ones too.
SELECT
    d.dataset_id,
    d.name,
    d.query,
    d.label,
    d.row_count,
    d.byte_count,
    d.content_hash,
    d.created_at
FROM mmdb.dataset AS d
WHERE
    %(run)s::text IS NULL OR d.dataset_id IN (
        SELECT r.dataset_id FROM mmdb.run AS r
        WHERE r.name = %(run)s::text
    )
ORDER BY d.dataset_id;

-- name: find_dataset_columns
-- The columns of datasets.
SELECT
    c.dataset_id,
    c.column_name AS name,
    c.role AS kind,
    c.transform,
    c.meaning
FROM mmdb.transform_overview AS c
WHERE
    %(run)s::text IS NULL OR c.dataset_id IN (
        SELECT r.dataset_id FROM mmdb.run AS r
        WHERE r.name = %(run)s::text
    )
ORDER BY c.dataset_id, c.ordinal;

-- name: find_dataset_sources
-- What the queries of datasets read.
SELECT
    s.dataset_id AS owner_id,
    s.schema_name,
    s.table_name,
    s.column_name,
    s.output_name,
    s.via
FROM mmdb.dataset_source AS s
WHERE
    %(run)s::text IS NULL OR s.dataset_id IN (
        SELECT r.dataset_id FROM mmdb.run AS r
        WHERE r.name = %(run)s::text
    )
ORDER BY s.dataset_id, s.ordinal;

-- name: find_saved_models
-- Models, dropped ones too, with where they came from; of a run: its own, and the parents of those.
SELECT
    m.model_id,
    m.name,
    m.version,
    m.approach,
    m.parent_id,
    m.dataset_id,
    c.run_id,
    c.ordinal AS candidate,
    m.epoch,
    m.metrics::text AS metrics,
    m.weights_hash,
    m.tensor_count,
    m.byte_count,
    m.save_s,
    m.created_at,
    a.parameter_count,
    t.parent_id AS warm_parent_id,
    o.kind AS origin,
    o.source
FROM mmdb.model AS m
LEFT JOIN mmdb.candidate AS c ON m.candidate_id = c.candidate_id
LEFT JOIN mmdb.architecture AS a ON m.architecture_id = a.architecture_id
LEFT JOIN mmdb.transfer AS t ON m.model_id = t.model_id
LEFT JOIN mmdb.model_origin AS o ON m.model_id = o.model_id
ORDER BY m.model_id;

-- name: find_predictions
-- Predictions that were written to tables.
SELECT
    p.prediction_id,
    p.model_id,
    p.schema_name,
    p.table_name,
    p.key_name,
    p.query,
    p.row_count,
    p.seconds,
    p.predicted_at
FROM mmdb.prediction AS p
ORDER BY p.prediction_id;

-- name: find_prediction_sources
-- What the queries of predictions read.
SELECT
    s.prediction_id AS owner_id,
    s.schema_name,
    s.table_name,
    s.column_name,
    s.output_name,
    s.via
FROM mmdb.prediction_source AS s
ORDER BY s.prediction_id, s.ordinal;

-- name: find_run_hops
-- The hops of a run, in the order in which they began.
SELECT
    h.part_id,
    h.candidate_id,
    c.ordinal AS candidate,
    h.epoch,
    p.ordinal AS partition,
    p.role,
    h.row_count,
    h.steps,
    h.loss,
    h.objective,
    h.worker,
    h.started_at,
    h.finished_at
FROM mmdb.hop AS h
INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id
WHERE c.run_id = %(run_id)s::bigint
ORDER BY h.started_at, h.candidate_id, h.epoch, h.part_id;

-- name: find_experiments
-- Runs as MLflow's experiments: one, or all where run is null.
SELECT
    e.name,
    e.creation_time,
    e.dataset,
    e.metric,
    e.strategy,
    e.epochs
FROM mmdb.mlflow_experiments AS e
WHERE %(run)s::text IS NULL OR e.name = %(run)s::text
ORDER BY e.experiment_id;

-- name: find_experiment_runs
-- The candidates of a run, as MLflow's runs.
SELECT
    m.run_uuid,
    m.name,
    m.status,
    m.start_time,
    m.end_time,
    m.candidate,
    m.error
FROM mmdb.mlflow_runs AS m
WHERE m.experiment = %(run)s::text
ORDER BY m.candidate;

-- name: find_params
-- What the candidates of a run were configured with.
SELECT
    p.run_uuid,
    p.key,
    p.value
FROM mmdb.mlflow_params AS p
WHERE p.experiment = %(run)s::text
ORDER BY p.run_uuid, p.key;

-- name: find_metrics
-- What the candidates of a run reached.
SELECT
    m.run_uuid,
    m.key,
    m.value,
    m.timestamp,
    m.step,
    m.is_nan
FROM mmdb.mlflow_metrics AS m
WHERE m.experiment = %(run)s::text
ORDER BY m.run_uuid, m.step, m.key;

-- name: find_model_versions
-- The models that are not dropped, as MLflow's versions: those of a run, or all where run is null.
SELECT
    v.name,
    v.version,
    v.creation_time,
    v.source,
    v.run_id,
    o.run,
    v.dataset,
    v.approach,
    v.parent,
    v.byte_count
FROM mmdb.mlflow_model_versions AS v
INNER JOIN mmdb.model_overview AS o ON v.name = o.model AND v.version = o.version
WHERE %(run)s::text IS NULL OR o.run = %(run)s::text
ORDER BY v.name, v.version;

-- name: find_tags
-- The tags of models.
SELECT
    t.model,
    t.version,
    t.key,
    t.value
FROM mmdb.tag_overview AS t
ORDER BY t.model, t.version, t.key;

-- name: find_card_versions
-- The versions of a model and the names that aliases give them.
SELECT
    o.version,
    a.alias
FROM mmdb.model_overview AS o
LEFT JOIN mmdb.model_alias AS a ON o.model = a.model AND o.version = a.version
WHERE o.model = %(model)s::text
ORDER BY o.version DESC, a.alias ASC;

-- name: find_card
-- What a model card says at its head.
SELECT
    o.model,
    o.version,
    o.dataset,
    o.run,
    o.candidate_id,
    o.epoch,
    o.architecture::text AS architecture,
    o.arguments::text AS arguments,
    o.tensors,
    o.byte_count,
    o.stored_bytes,
    o.created_at,
    o.approach,
    o.parent,
    o.nodes,
    o.parameters,
    o.dropped_at,
    o.model_id
FROM mmdb.model_overview AS o
WHERE o.model = %(model)s::text AND o.version = %(version)s::integer;

-- name: find_card_metrics
-- The metrics of a model.
SELECT
    m.metric,
    m.dataset,
    m.value
FROM mmdb.metric_overview AS m
WHERE m.model = %(model)s::text AND m.version = %(version)s::integer
ORDER BY m.dataset, m.metric;

-- name: find_card_notes
-- The notes on a model, oldest first.
SELECT
    n.note,
    n.author,
    n.created_at
FROM mmdb.note_overview AS n
WHERE n.model = %(model)s::text AND n.version = %(version)s::integer
ORDER BY n.created_at, n.note;

-- name: find_card_datasets
-- The datasets of a name that were there when a model was saved, the last first.
SELECT
    d.dataset_id,
    d.query,
    d.label,
    d.task,
    d.row_count,
    d.validation,
    d.seed,
    d.classes::text AS classes,
    d.created_at
FROM mmdb.dataset_overview AS d
WHERE d.name = %(dataset)s::text AND d.created_at <= %(until)s::timestamptz
ORDER BY d.created_at DESC;

-- name: find_card_transforms
-- What the columns of a dataset become, in the order of its query.
SELECT
    t.column_name,
    t.role,
    t.transform,
    t.meaning,
    t.missing
FROM mmdb.transform_overview AS t
WHERE t.dataset_id = %(dataset_id)s::bigint
ORDER BY t.ordinal;

-- name: find_card_sources
-- The tables and columns that a model was trained on, and its warm start.
SELECT DISTINCT
    d.schema_name,
    l.table_name,
    l.column_name,
    l.output_name,
    d.via,
    l.warm_parent,
    l.coverage
FROM mmdb.model_lineage AS l
LEFT JOIN mmdb.dataset_lineage AS d
    ON
        l.dataset = d.dataset AND l.table_name = d.table_name
        AND l.column_name IS NOT DISTINCT FROM d.column_name AND l.output_name IS NOT DISTINCT FROM d.output_name
WHERE l.model = %(model)s::text AND l.version = %(version)s::integer
ORDER BY d.schema_name, l.table_name, l.column_name, l.output_name, d.via;

-- name: find_card_run
-- How the run of a model trained.
SELECT
    p.strategy,
    p.metric,
    p.epochs,
    p.candidates
FROM mmdb.run_progress AS p
WHERE p.run = %(run)s::text;

-- name: find_card_candidates
-- The candidate that a model was saved from, then the others of the mean that it is.
SELECT
    o.candidate,
    o.config::text AS config,
    e.parent_epoch AS epoch
FROM mmdb.candidate_overview AS o
INNER JOIN mmdb.lineage_state_edge AS e ON o.candidate_id = e.parent_id
WHERE o.run = %(run)s::text AND e.child_kind = 'model' AND e.child_id = %(model_id)s::bigint
ORDER BY e.via DESC, o.rank ASC;

-- name: find_card_children
-- The models that were made from a model.
SELECT
    o.model,
    o.version,
    o.approach
FROM mmdb.model_overview AS o
WHERE o.parent = %(parent)s::text
ORDER BY o.model, o.version;

-- name: find_view_keys
-- The keys of the views.
SELECT
    k.view_name,
    k.key,
    k.column_name,
    k.kind,
    k.refers_to,
    k.refers_column
FROM mmdb.view_key AS k
ORDER BY k.view_name, k.key, k.ordinal;
