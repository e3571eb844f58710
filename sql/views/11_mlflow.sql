-- Runs and models in the shape of an MLflow tracking store: a run is an experiment, a candidate a run.
-- Names, types and units are MLflow's: ids of runs are texts, times are milliseconds since 1970 in UTC.
-- mlflow_params and mlflow_metrics take JSON apart: sql/engines. Filter by `experiment`: it reaches the hops.

CREATE OR REPLACE VIEW mmdb.mlflow_experiments AS
SELECT
    r.run_id AS experiment_id,
    r.name,
    'active' AS lifecycle_stage,
    cast(extract(EPOCH FROM r.created_at) * 1000 AS bigint) AS creation_time,
    coalesce(
        (
            SELECT cast(extract(EPOCH FROM max(e.happened_at)) * 1000 AS bigint)
            FROM mmdb.run_event AS e
            WHERE e.run_id = r.run_id
        ),
        cast(extract(EPOCH FROM r.created_at) * 1000 AS bigint)
    ) AS last_update_time,
    d.name AS dataset,
    r.metric,
    coalesce(s.strategy, r.strategy) AS strategy,
    r.epochs
FROM mmdb.run AS r
INNER JOIN mmdb.dataset AS d ON r.dataset_id = d.dataset_id
LEFT JOIN mmdb.run_strategy AS s ON r.run_id = s.run_id;
COMMENT ON VIEW mmdb.mlflow_experiments IS 'The runs, as MLflow shows experiments.';
COMMENT ON COLUMN mmdb.mlflow_experiments.experiment_id IS 'The run''s id.';
COMMENT ON COLUMN mmdb.mlflow_experiments.name IS 'The run''s name.';
COMMENT ON COLUMN mmdb.mlflow_experiments.lifecycle_stage IS 'Always active: runs are not deleted.';
COMMENT ON COLUMN mmdb.mlflow_experiments.creation_time IS 'When the run was created, in milliseconds since 1970 (UTC).';
COMMENT ON COLUMN mmdb.mlflow_experiments.last_update_time
IS 'When it was last started, planned anew, finished or interrupted, in milliseconds since 1970 (UTC).';
COMMENT ON COLUMN mmdb.mlflow_experiments.dataset IS 'The dataset that it trains on.';
COMMENT ON COLUMN mmdb.mlflow_experiments.metric IS 'What its candidates are compared by; null where there is nothing to validate on.';
COMMENT ON COLUMN mmdb.mlflow_experiments.strategy IS 'How it trains; auto before that is decided.';
COMMENT ON COLUMN mmdb.mlflow_experiments.epochs IS 'Epochs of a candidate that is trained to the end.';

CREATE OR REPLACE VIEW mmdb.mlflow_runs AS
SELECT
    cast(o.candidate_id AS text) AS run_uuid,
    o.run || '-' || cast(o.candidate AS text) AS name,
    r.run_id AS experiment_id,
    CASE
        WHEN o.status = 'failed' THEN 'FAILED'
        WHEN o.status = 'stopped' THEN 'KILLED'
        WHEN o.status = 'trained' OR o.status = 'resting' THEN 'FINISHED'
        WHEN o.hops_done > 0 THEN 'RUNNING'
        ELSE 'SCHEDULED'
    END AS status,
    cast(extract(EPOCH FROM o.started_at) * 1000 AS bigint) AS start_time,
    CASE
        WHEN o.status <> 'training' THEN cast(extract(EPOCH FROM o.last_hop_at) * 1000 AS bigint)
    END AS end_time,
    'active' AS lifecycle_stage,
    o.run AS experiment,
    o.candidate,
    o.error
FROM mmdb.candidate_overview AS o
INNER JOIN mmdb.run AS r ON o.run = r.name;
COMMENT ON VIEW mmdb.mlflow_runs IS 'The candidates, as MLflow shows runs.';
COMMENT ON COLUMN mmdb.mlflow_runs.run_uuid IS 'The candidate''s id, as a text.';
COMMENT ON COLUMN mmdb.mlflow_runs.name IS 'The run''s name and the candidate''s place in it.';
COMMENT ON COLUMN mmdb.mlflow_runs.experiment_id IS 'The run''s id.';
COMMENT ON COLUMN mmdb.mlflow_runs.status IS 'SCHEDULED, RUNNING, FINISHED (resting too), FAILED, or KILLED where it was stopped.';
COMMENT ON COLUMN mmdb.mlflow_runs.start_time IS 'When its first hop began, in milliseconds since 1970 (UTC); null before.';
COMMENT ON COLUMN mmdb.mlflow_runs.end_time IS 'When its last hop ended, in milliseconds since 1970 (UTC); null while it is training.';
COMMENT ON COLUMN mmdb.mlflow_runs.lifecycle_stage IS 'Always active: candidates are not deleted.';
COMMENT ON COLUMN mmdb.mlflow_runs.experiment IS 'The run''s name.';
COMMENT ON COLUMN mmdb.mlflow_runs.candidate IS 'The candidate''s place in its run, from 0.';
COMMENT ON COLUMN mmdb.mlflow_runs.error IS 'What ended it before its last epoch; else null.';

CREATE OR REPLACE VIEW mmdb.mlflow_registered_models AS
SELECT
    m.name,
    cast(extract(EPOCH FROM min(m.created_at)) * 1000 AS bigint) AS creation_time,
    cast(extract(EPOCH FROM max(m.created_at)) * 1000 AS bigint) AS last_updated_time,
    count(*) AS versions
FROM mmdb.model AS m
WHERE m.dropped_at IS NULL
GROUP BY m.name;
COMMENT ON VIEW mmdb.mlflow_registered_models IS 'The names of the saved models, as MLflow shows registered models.';
COMMENT ON COLUMN mmdb.mlflow_registered_models.name IS 'The models'' name.';
COMMENT ON COLUMN mmdb.mlflow_registered_models.creation_time
IS 'When the first of its versions was saved, in milliseconds since 1970 (UTC).';
COMMENT ON COLUMN mmdb.mlflow_registered_models.last_updated_time
IS 'When the last of its versions was saved, in milliseconds since 1970 (UTC).';
COMMENT ON COLUMN mmdb.mlflow_registered_models.versions IS 'How many versions there are; dropped ones do not count.';

CREATE OR REPLACE VIEW mmdb.mlflow_model_versions AS
SELECT
    m.name,
    m.version,
    cast(extract(EPOCH FROM m.created_at) * 1000 AS bigint) AS creation_time,
    cast(extract(EPOCH FROM m.created_at) * 1000 AS bigint) AS last_updated_time,
    'None' AS current_stage,
    'mmdb:/' || m.name || '/' || cast(m.version AS text) AS source,
    cast(m.candidate_id AS text) AS run_id,
    'READY' AS status,
    d.name AS dataset,
    m.approach,
    p.name || '@' || cast(p.version AS text) AS parent,
    m.byte_count
FROM mmdb.model AS m
LEFT JOIN mmdb.model AS p ON m.parent_id = p.model_id
LEFT JOIN mmdb.dataset AS d ON m.dataset_id = d.dataset_id
WHERE m.dropped_at IS NULL;
COMMENT ON VIEW mmdb.mlflow_model_versions IS 'The saved models that are not dropped, as MLflow shows versions.';
COMMENT ON COLUMN mmdb.mlflow_model_versions.name IS 'The model''s name.';
COMMENT ON COLUMN mmdb.mlflow_model_versions.version IS 'Its version, from 1.';
COMMENT ON COLUMN mmdb.mlflow_model_versions.creation_time IS 'When it was saved, in milliseconds since 1970 (UTC).';
COMMENT ON COLUMN mmdb.mlflow_model_versions.last_updated_time IS 'The same: a version never changes.';
COMMENT ON COLUMN mmdb.mlflow_model_versions.current_stage IS 'Always None: aliases say which version is used.';
COMMENT ON COLUMN mmdb.mlflow_model_versions.source IS 'Where its weights are: mmdb:/name/version, in this database.';
COMMENT ON COLUMN mmdb.mlflow_model_versions.run_id IS 'The candidate that it was saved from, a run_uuid; null where it came from no run.';
COMMENT ON COLUMN mmdb.mlflow_model_versions.status IS 'Always READY.';
COMMENT ON COLUMN mmdb.mlflow_model_versions.dataset IS 'The dataset that it was trained on; null where it is not known.';
COMMENT ON COLUMN mmdb.mlflow_model_versions.approach IS 'How it is kept: snapshot, update or provenance.';
COMMENT ON COLUMN mmdb.mlflow_model_versions.parent IS 'The model that it was made from, as name@version; null without one.';
COMMENT ON COLUMN mmdb.mlflow_model_versions.byte_count IS 'Bytes of its state dict, tied tensors counted once.';
