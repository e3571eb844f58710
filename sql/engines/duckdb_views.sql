-- Views that have no text common to both engines; run at each install.

CREATE OR REPLACE VIEW mmdb.mlflow_params AS
SELECT
    p.key,
    p.value ->> '$' AS value,
    cast(c.candidate_id AS text) AS run_uuid,
    r.name AS experiment
FROM mmdb.candidate AS c
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
CROSS JOIN json_each(c.config) AS p;
COMMENT ON VIEW mmdb.mlflow_params IS 'What the candidates were configured with, as MLflow shows params.';
COMMENT ON COLUMN mmdb.mlflow_params.key IS 'The hyper-parameter; an argument of the architecture begins with "architecture.".';
COMMENT ON COLUMN mmdb.mlflow_params.value IS 'Its value; a list or an object as JSON.';
COMMENT ON COLUMN mmdb.mlflow_params.run_uuid IS 'The candidate''s id, as a text.';
COMMENT ON COLUMN mmdb.mlflow_params.experiment IS 'The run''s name.';

CREATE OR REPLACE VIEW mmdb.mlflow_metrics AS
WITH known AS (
    SELECT
        p.run,
        p.candidate_id,
        p.epoch,
        'training_loss' AS key,
        p.training_loss AS value,
        p.trained_at AS known_at
    FROM mmdb.candidate_progress AS p
    UNION ALL
    SELECT
        p.run,
        p.candidate_id,
        p.epoch,
        'validation_loss' AS key,
        p.validation_loss AS value,
        p.validated_at AS known_at
    FROM mmdb.candidate_progress AS p
    UNION ALL
    SELECT
        p.run,
        p.candidate_id,
        p.epoch,
        p.metric AS key,
        p.objective AS value,
        p.validated_at AS known_at
    FROM mmdb.candidate_progress AS p
    UNION ALL
    SELECT
        p.run,
        p.candidate_id,
        p.epoch,
        j.key,
        cast(j.value AS double) AS value,
        p.validated_at AS known_at
    FROM mmdb.candidate_progress AS p
    CROSS JOIN json_each(p.metrics) AS j
    WHERE j.key <> p.metric
)

SELECT
    m.key,
    CASE WHEN isnan(m.value) THEN 0 ELSE m.value END AS value,
    cast(extract(EPOCH FROM m.known_at) * 1000 AS bigint) AS timestamp,
    cast(m.candidate_id AS text) AS run_uuid,
    cast(m.epoch AS bigint) AS step,
    isnan(m.value) AS is_nan,
    m.run AS experiment
FROM known AS m
WHERE m.key IS NOT NULL AND m.value IS NOT NULL;
COMMENT ON VIEW mmdb.mlflow_metrics IS 'What the candidates reached in each epoch, as MLflow shows metrics.';
COMMENT ON COLUMN mmdb.mlflow_metrics.key IS 'training_loss, validation_loss, the run''s own metric, or another that its validations gave.';
COMMENT ON COLUMN mmdb.mlflow_metrics.value IS 'Its value; 0 where it is not a number, as in MLflow.';
COMMENT ON COLUMN mmdb.mlflow_metrics.timestamp IS 'When it was known, in milliseconds since 1970 (UTC).';
COMMENT ON COLUMN mmdb.mlflow_metrics.run_uuid IS 'The candidate''s id, as a text.';
COMMENT ON COLUMN mmdb.mlflow_metrics.step IS 'The epoch, from 0.';
COMMENT ON COLUMN mmdb.mlflow_metrics.is_nan IS 'Whether it is not a number.';
COMMENT ON COLUMN mmdb.mlflow_metrics.experiment IS 'The run''s name.';

CREATE OR REPLACE VIEW mmdb.server_metric AS
WITH file AS (
    SELECT
        cast(s.total_blocks * s.block_size AS double) AS bytes,
        cast(s.used_blocks * s.block_size AS double) AS used_bytes
    FROM pragma_database_size() AS s
    WHERE s.database_name = current_database()
)

SELECT
    'mmdb_database_bytes' AS name,
    'gauge' AS type,
    'Bytes of the database.' AS help,
    '' AS label,
    '' AS label_value,
    f.bytes AS value
FROM file AS f
UNION ALL
SELECT
    'mmdb_database_used_bytes' AS name,
    'gauge' AS type,
    'Bytes of the file that are in use.' AS help,
    '' AS label,
    '' AS label_value,
    f.used_bytes AS value
FROM file AS f;
COMMENT ON VIEW mmdb.server_metric IS 'What the database holds and its server does, as samples for a monitor; mmdb metrics prints them.';
COMMENT ON COLUMN mmdb.server_metric.name IS 'Name of the metric; counters end with _total.';
COMMENT ON COLUMN mmdb.server_metric.type IS 'gauge or counter.';
COMMENT ON COLUMN mmdb.server_metric.help IS 'What is counted.';
COMMENT ON COLUMN mmdb.server_metric.label IS 'What tells its samples apart; empty where there is one.';
COMMENT ON COLUMN mmdb.server_metric.label_value IS 'Of this sample.';
COMMENT ON COLUMN mmdb.server_metric.value IS 'In the unit that the name ends with, else a number of things.';
