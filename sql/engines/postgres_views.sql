-- Views that have no text common to both engines; run at each install.

CREATE OR REPLACE VIEW mmdb.mlflow_params AS
SELECT
    p.key,
    p.value,
    cast(c.candidate_id AS text) AS run_uuid,
    r.name AS experiment
FROM mmdb.candidate AS c
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
CROSS JOIN LATERAL jsonb_each_text(c.config) AS p (key, value);
COMMENT ON VIEW mmdb.mlflow_params IS 'What the candidates were configured with, as MLflow shows params.';
COMMENT ON COLUMN mmdb.mlflow_params.key IS 'The hyper-parameter; an argument of the architecture begins with "architecture.".';
COMMENT ON COLUMN mmdb.mlflow_params.value IS 'Its value; a list or an object as JSON.';
COMMENT ON COLUMN mmdb.mlflow_params.run_uuid IS 'The candidate''s id, as a text.';
COMMENT ON COLUMN mmdb.mlflow_params.experiment IS 'The run''s name.';

CREATE OR REPLACE VIEW mmdb.mlflow_metrics AS
SELECT
    m.key,
    CASE WHEN m.value = 'NaN' THEN 0 ELSE m.value END AS value,
    cast(extract(EPOCH FROM m.known_at) * 1000 AS bigint) AS timestamp,
    cast(p.candidate_id AS text) AS run_uuid,
    cast(p.epoch AS bigint) AS step,
    m.value = 'NaN' AS is_nan,
    p.run AS experiment
FROM mmdb.candidate_progress AS p
CROSS JOIN
    LATERAL (
        VALUES
        ('training_loss', p.training_loss, p.trained_at),
        ('validation_loss', p.validation_loss, p.validated_at),
        (p.metric, p.objective, p.validated_at)
        UNION ALL
        SELECT
            j.key,
            cast(j.value AS double precision) AS value,
            p.validated_at AS known_at
        FROM jsonb_each_text(p.metrics) AS j
        WHERE j.key <> p.metric
    ) AS m (key, value, known_at)
WHERE m.key IS NOT NULL AND m.value IS NOT NULL;
COMMENT ON VIEW mmdb.mlflow_metrics IS 'What the candidates reached in each epoch, as MLflow shows metrics.';
COMMENT ON COLUMN mmdb.mlflow_metrics.key IS 'training_loss, validation_loss, the run''s own metric, or another that its validations gave.';
COMMENT ON COLUMN mmdb.mlflow_metrics.value IS 'Its value; 0 where it is not a number, as in MLflow.';
COMMENT ON COLUMN mmdb.mlflow_metrics.timestamp IS 'When it was known, in milliseconds since 1970 (UTC).';
COMMENT ON COLUMN mmdb.mlflow_metrics.run_uuid IS 'The candidate''s id, as a text.';
COMMENT ON COLUMN mmdb.mlflow_metrics.step IS 'The epoch, from 0.';
COMMENT ON COLUMN mmdb.mlflow_metrics.is_nan IS 'Whether it is not a number.';
COMMENT ON COLUMN mmdb.mlflow_metrics.experiment IS 'The run''s name.';
