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

-- A login without pg_monitor sees sessions of other users as unknown, and no replicas.
CREATE OR REPLACE VIEW mmdb.server_metric AS
WITH held AS (
    SELECT
        c.oid,
        c.reltoastrelid,
        cast(c.relname AS text) AS table_name,
        pg_catalog.pg_total_relation_size(c.oid) AS bytes
    FROM pg_catalog.pg_class AS c
    WHERE
        c.relnamespace = cast('mmdb' AS regnamespace) AND c.relkind = 'r'
        AND (
            c.relname IN ('block', 'hop', 'checkpoint', 'tensor', 'assignment', 'worker_beat', 'feature_block')
            OR c.relname LIKE '%\_chunk%'
        )
),

counted AS (
    SELECT
        h.table_name,
        h.bytes,
        s.n_dead_tup + coalesce(t.n_dead_tup, 0) AS dead_rows,
        s.n_live_tup + coalesce(t.n_live_tup, 0) AS live_rows,
        greatest(s.last_vacuum, s.last_autovacuum) AS vacuumed_at
    FROM held AS h
    INNER JOIN pg_catalog.pg_stat_all_tables AS s ON h.oid = s.relid
    LEFT JOIN pg_catalog.pg_stat_all_tables AS t ON h.reltoastrelid = t.relid
),

activity AS (
    SELECT
        coalesce(a.state, 'unknown') AS state,
        a.xact_start
    FROM pg_catalog.pg_stat_activity AS a
    WHERE a.datname = current_database() AND a.backend_type = 'client backend' AND a.pid <> pg_catalog.pg_backend_pid()
),

sample AS (
    SELECT
        'mmdb_database_bytes' AS name,
        '' AS label,
        '' AS label_value,
        cast(pg_catalog.pg_database_size(current_database()) AS double precision) AS value
    UNION ALL
    SELECT
        'mmdb_table_bytes' AS name,
        'table' AS label,
        c.table_name AS label_value,
        cast(c.bytes AS double precision) AS value
    FROM counted AS c
    UNION ALL
    SELECT
        'mmdb_table_dead_rows' AS name,
        'table' AS label,
        c.table_name AS label_value,
        cast(c.dead_rows AS double precision) AS value
    FROM counted AS c
    UNION ALL
    SELECT
        'mmdb_table_live_rows' AS name,
        'table' AS label,
        c.table_name AS label_value,
        cast(c.live_rows AS double precision) AS value
    FROM counted AS c
    UNION ALL
    SELECT
        'mmdb_table_vacuum_timestamp_seconds' AS name,
        'table' AS label,
        c.table_name AS label_value,
        cast(extract(EPOCH FROM c.vacuumed_at) AS double precision) AS value
    FROM counted AS c
    UNION ALL
    SELECT
        'mmdb_sessions' AS name,
        'state' AS label,
        a.state AS label_value,
        cast(count(*) AS double precision) AS value
    FROM activity AS a
    GROUP BY a.state
    UNION ALL
    SELECT
        'mmdb_session_limit' AS name,
        '' AS label,
        '' AS label_value,
        cast(current_setting('max_connections') AS double precision) AS value
    UNION ALL
    SELECT
        'mmdb_oldest_transaction_seconds' AS name,
        '' AS label,
        '' AS label_value,
        cast(coalesce(extract(EPOCH FROM pg_catalog.clock_timestamp() - min(a.xact_start)), 0) AS double precision) AS value
    FROM activity AS a
    UNION ALL
    SELECT
        'mmdb_prepared_transactions' AS name,
        '' AS label,
        '' AS label_value,
        cast(count(*) AS double precision) AS value
    FROM pg_catalog.pg_prepared_xacts AS x
    WHERE x.database = current_database()
    UNION ALL
    SELECT
        'mmdb_transaction_id_age' AS name,
        '' AS label,
        '' AS label_value,
        cast(pg_catalog.age(d.datfrozenxid) AS double precision) AS value
    FROM pg_catalog.pg_database AS d
    WHERE d.datname = current_database()
    UNION ALL
    SELECT
        'mmdb_replica_lag_bytes' AS name,
        'replica' AS label,
        coalesce(nullif(r.application_name, ''), 'unnamed') || ' ' || cast(r.pid AS text) AS label_value,
        cast(pg_catalog.pg_wal_lsn_diff(r.sent_lsn, r.replay_lsn) AS double precision) AS value
    FROM pg_catalog.pg_stat_replication AS r
    UNION ALL
    SELECT
        'mmdb_slot_retained_bytes' AS name,
        'slot' AS label,
        cast(s.slot_name AS text) AS label_value,
        CASE
            WHEN NOT pg_catalog.pg_is_in_recovery()
                THEN cast(pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), s.restart_lsn) AS double precision)
        END AS value
    FROM pg_catalog.pg_replication_slots AS s
    UNION ALL
    SELECT
        'mmdb_archive_failures_total' AS name,
        '' AS label,
        '' AS label_value,
        cast(a.failed_count AS double precision) AS value
    FROM pg_catalog.pg_stat_archiver AS a
)

SELECT
    f.name,
    f.type,
    f.help,
    s.label,
    s.label_value,
    s.value
FROM (
    VALUES
    ('mmdb_database_bytes', 'gauge', 'Bytes of the database.'),
    ('mmdb_table_bytes', 'gauge', 'Bytes of a table with its indexes and what is free in it.'),
    ('mmdb_table_dead_rows', 'gauge', 'Rows and pieces of values that a vacuum will free.'),
    ('mmdb_table_live_rows', 'gauge', 'Rows and pieces of values that are in use.'),
    ('mmdb_table_vacuum_timestamp_seconds', 'gauge', 'When it was last vacuumed, in seconds since 1970 (UTC).'),
    ('mmdb_sessions', 'gauge', 'Other sessions of the database, by what they do.'),
    ('mmdb_session_limit', 'gauge', 'Sessions that the server allows.'),
    ('mmdb_oldest_transaction_seconds', 'gauge', 'Age of the oldest transaction: vacuum frees nothing younger.'),
    ('mmdb_prepared_transactions', 'gauge', 'Transactions in two phases that wait for their second.'),
    ('mmdb_transaction_id_age', 'gauge', 'Transactions since the oldest one that is not frozen; the server stops at 2^31.'),
    ('mmdb_replica_lag_bytes', 'gauge', 'Bytes of the log that a replica has been sent and has not replayed.'),
    ('mmdb_slot_retained_bytes', 'gauge', 'Bytes of the log that are kept for a replication slot.'),
    ('mmdb_archive_failures_total', 'counter', 'Times that the log could not be archived.')
) AS f (name, type, help)
INNER JOIN sample AS s ON f.name = s.name
WHERE s.value IS NOT NULL;
COMMENT ON VIEW mmdb.server_metric IS 'What the database holds and its server does, as samples for a monitor; mmdb metrics prints them.';
COMMENT ON COLUMN mmdb.server_metric.name IS 'Name of the metric; counters end with _total.';
COMMENT ON COLUMN mmdb.server_metric.type IS 'gauge or counter.';
COMMENT ON COLUMN mmdb.server_metric.help IS 'What is counted.';
COMMENT ON COLUMN mmdb.server_metric.label IS 'What tells its samples apart; empty where there is one.';
COMMENT ON COLUMN mmdb.server_metric.label_value IS 'Of this sample.';
COMMENT ON COLUMN mmdb.server_metric.value IS 'In the unit that the name ends with, else a number of things.';

-- Who calls is asked, not whose rights a view has; each column by itself, so that no condition of a reader's comes before it.
CREATE OR REPLACE FUNCTION mmdb.keeps(owner text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN mmdb.caller_is('mmdb_admin')
        OR coalesce(pg_catalog.pg_has_role(mmdb.caller(), pg_catalog.to_regrole(pg_catalog.quote_ident(owner)), 'USAGE'), FALSE);
END
$$;
COMMENT ON FUNCTION mmdb.keeps(text)
IS 'Whether the caller may see and drop what a role has stored: it is that role, a member, or an admin.';

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
    CASE WHEN mmdb.keeps(s.owner) THEN s.statement END AS statement,
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
    CASE WHEN mmdb.keeps(s.owner) THEN r.message END AS message,
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
    CASE WHEN mmdb.keeps(s.owner) THEN r.message END AS message,
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
    CASE WHEN mmdb.keeps(s.owner) THEN f.row_key END AS row_key,
    f.sqlstate,
    CASE WHEN mmdb.keeps(s.owner) THEN f.message END AS message,
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
