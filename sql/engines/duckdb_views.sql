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

CREATE OR REPLACE VIEW mmdb.schedule_overview AS
WITH tally AS (
    SELECT
        r.schedule_id,
        max(r.due_at) AS due_at,
        count(*) FILTER (WHERE r.outcome = 'done') AS done,
        sum(r.tries) AS tries
    FROM mmdb.schedule_run AS r
    GROUP BY r.schedule_id
)

SELECT
    s.name AS schedule,
    s.owner,
    s.statement,
    s.every_s,
    s.starts_at,
    CASE
        WHEN r.due_at IS NULL THEN s.starts_at
        WHEN r.outcome = 'done' THEN to_timestamp(extract(EPOCH FROM r.due_at) + s.every_s)
        ELSE r.retry_at
    END AS next_at,
    r.due_at AS last_due,
    CASE WHEN r.due_at IS NOT NULL THEN coalesce(r.outcome, 'begun') END AS last_outcome,
    r.started_at AS last_start,
    r.ended_at AS last_end,
    coalesce(r.failures, 0) AS failures,
    coalesce(t.done, 0) AS done,
    cast(coalesce(t.tries, 0) AS bigint) AS tries,
    r.message,
    s.schedule_id
FROM mmdb.schedule AS s
LEFT JOIN tally AS t ON s.schedule_id = t.schedule_id
LEFT JOIN mmdb.schedule_run AS r ON t.schedule_id = r.schedule_id AND t.due_at = r.due_at;
COMMENT ON VIEW mmdb.schedule_overview IS 'Schedules: when each is due next, and how it went last.';
COMMENT ON COLUMN mmdb.schedule_overview.schedule IS 'Name of the schedule.';
COMMENT ON COLUMN mmdb.schedule_overview.owner IS 'The role with whose rights it runs; null on DuckDB.';
COMMENT ON COLUMN mmdb.schedule_overview.statement IS 'What it runs; null for those who may not drop it.';
COMMENT ON COLUMN mmdb.schedule_overview.every_s IS 'Seconds from one due time to the next.';
COMMENT ON COLUMN mmdb.schedule_overview.starts_at IS 'The first due time.';
COMMENT ON COLUMN mmdb.schedule_overview.next_at IS 'When it is to run next, or to be tried again.';
COMMENT ON COLUMN mmdb.schedule_overview.last_due IS 'The due time that ran last.';
COMMENT ON COLUMN mmdb.schedule_overview.last_outcome IS 'done, failed, or begun: it is under way, or its worker died.';
COMMENT ON COLUMN mmdb.schedule_overview.last_start IS 'When its last try began.';
COMMENT ON COLUMN mmdb.schedule_overview.last_end IS 'When its last try ended.';
COMMENT ON COLUMN mmdb.schedule_overview.failures IS 'Tries that failed in a row, up to the last one.';
COMMENT ON COLUMN mmdb.schedule_overview.done IS 'Due times that are done.';
COMMENT ON COLUMN mmdb.schedule_overview.tries IS 'Tries of all due times.';
COMMENT ON COLUMN mmdb.schedule_overview.message IS 'Of the error that ended the last try; null as statement is.';
COMMENT ON COLUMN mmdb.schedule_overview.schedule_id IS 'Number of the schedule.';

CREATE OR REPLACE VIEW mmdb.schedule_history AS
SELECT
    s.name AS schedule,
    r.due_at,
    r.started_at,
    r.ended_at,
    coalesce(r.outcome, 'begun') AS outcome,
    r.tries,
    r.failures,
    r.sqlstate,
    r.message,
    r.schedule_run_id
FROM mmdb.schedule_run AS r
INNER JOIN mmdb.schedule AS s ON r.schedule_id = s.schedule_id;
COMMENT ON VIEW mmdb.schedule_history IS 'Runs of schedules, one for each due time that was served.';
COMMENT ON COLUMN mmdb.schedule_history.schedule IS 'Name of the schedule.';
COMMENT ON COLUMN mmdb.schedule_history.due_at IS 'When it was due.';
COMMENT ON COLUMN mmdb.schedule_history.started_at IS 'When its last try began.';
COMMENT ON COLUMN mmdb.schedule_history.ended_at IS 'When its last try ended; null while it is under way.';
COMMENT ON COLUMN mmdb.schedule_history.outcome IS 'done, failed, or begun: it is under way, or its worker died.';
COMMENT ON COLUMN mmdb.schedule_history.tries IS 'How often it was begun.';
COMMENT ON COLUMN mmdb.schedule_history.failures IS 'Tries of the schedule that failed in a row, up to this one.';
COMMENT ON COLUMN mmdb.schedule_history.sqlstate IS 'Of the error that ended the last try.';
COMMENT ON COLUMN mmdb.schedule_history.message IS 'Its text; null for those who may not drop the schedule.';
COMMENT ON COLUMN mmdb.schedule_history.schedule_run_id IS 'Number of the run.';

CREATE OR REPLACE VIEW mmdb.scoring_failures AS
SELECT
    s.schema_name,
    s.table_name,
    s.column_name,
    s.model,
    f.row_count,
    f.row_key,
    f.sqlstate,
    f.message,
    f.failed_at,
    f.scoring_failure_id
FROM mmdb.scoring_failure AS f
INNER JOIN mmdb.scoring AS s ON f.scoring_id = s.scoring_id;
COMMENT ON VIEW mmdb.scoring_failures IS 'New rows that were left without a prediction, and why.';
COMMENT ON COLUMN mmdb.scoring_failures.schema_name IS 'Schema of the table.';
COMMENT ON COLUMN mmdb.scoring_failures.table_name IS 'The table.';
COMMENT ON COLUMN mmdb.scoring_failures.column_name IS 'The column that stayed NULL.';
COMMENT ON COLUMN mmdb.scoring_failures.model IS 'The model, as it was named.';
COMMENT ON COLUMN mmdb.scoring_failures.row_count IS 'Rows of the statement that this is about.';
COMMENT ON COLUMN mmdb.scoring_failures.row_key IS 'Key of the first of them, if known; null for those who may not stop this.';
COMMENT ON COLUMN mmdb.scoring_failures.sqlstate IS 'Of the error.';
COMMENT ON COLUMN mmdb.scoring_failures.message IS 'Its text; null as row_key is.';
COMMENT ON COLUMN mmdb.scoring_failures.failed_at IS 'When the row was inserted.';
COMMENT ON COLUMN mmdb.scoring_failures.scoring_failure_id IS 'Number of the failure.';
