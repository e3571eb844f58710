-- What a monitor reads at each scrape: names, types and units are those of Prometheus. Finished runs cost one row each, their hops are
-- not read; a metric has at most one label.

CREATE OR REPLACE VIEW mmdb.metric AS
WITH run_of AS (
    SELECT
        p.status,
        p.failed,
        p.hops_done,
        p.last_hop_at
    FROM mmdb.run_progress AS p
),

beat AS (
    SELECT s.state
    FROM mmdb.worker_status AS s
),

waiting AS (
    SELECT q.requested_at
    FROM mmdb.run_request AS q
    LEFT JOIN mmdb.run_outcome AS o ON q.request_id = o.request_id
    WHERE o.request_id IS NULL
),

sample AS (
    SELECT
        'mmdb_runs' AS name,
        'status' AS label,
        s.status AS label_value,
        cast(count(r.status) AS double precision) AS value
    FROM (VALUES ('created'), ('started'), ('finished'), ('interrupted')) AS s (status)
    LEFT JOIN run_of AS r ON s.status = r.status
    GROUP BY s.status
    UNION ALL
    SELECT
        'mmdb_failed_candidates' AS name,
        '' AS label,
        '' AS label_value,
        cast(coalesce(sum(r.failed), 0) AS double precision) AS value
    FROM run_of AS r
    UNION ALL
    SELECT
        'mmdb_hops_total' AS name,
        '' AS label,
        '' AS label_value,
        cast(coalesce(sum(r.hops_done), 0) AS double precision) AS value
    FROM run_of AS r
    UNION ALL
    SELECT
        'mmdb_last_hop_timestamp_seconds' AS name,
        '' AS label,
        '' AS label_value,
        cast(extract(EPOCH FROM max(r.last_hop_at)) AS double precision) AS value
    FROM run_of AS r
    UNION ALL
    SELECT
        'mmdb_worker_busy_seconds_total' AS name,
        '' AS label,
        '' AS label_value,
        coalesce(sum(t.busy_s), 0) AS value
    FROM mmdb.run_time AS t
    UNION ALL
    SELECT
        'mmdb_compute_seconds_total' AS name,
        '' AS label,
        '' AS label_value,
        coalesce(sum(t.compute_s), 0) AS value
    FROM mmdb.run_time AS t
    UNION ALL
    SELECT
        'mmdb_run_interruptions_total' AS name,
        '' AS label,
        '' AS label_value,
        cast(count(*) AS double precision) AS value
    FROM mmdb.run_event AS e
    WHERE e.event = 'interrupted'
    UNION ALL
    SELECT
        'mmdb_workers' AS name,
        'state' AS label,
        s.state AS label_value,
        cast(count(b.state) AS double precision) AS value
    FROM (VALUES ('idle'), ('hopping'), ('lost'), ('stopped')) AS s (state)
    LEFT JOIN beat AS b ON s.state = b.state
    GROUP BY s.state
    UNION ALL
    SELECT
        'mmdb_requests_waiting' AS name,
        '' AS label,
        '' AS label_value,
        cast(count(*) AS double precision) AS value
    FROM waiting
    UNION ALL
    SELECT
        'mmdb_request_age_seconds' AS name,
        '' AS label,
        '' AS label_value,
        cast(extract(EPOCH FROM now()) - extract(EPOCH FROM min(w.requested_at)) AS double precision) AS value
    FROM waiting AS w
    UNION ALL
    SELECT
        'mmdb_datasets' AS name,
        '' AS label,
        '' AS label_value,
        cast(count(*) AS double precision) AS value
    FROM mmdb.dataset AS d
    WHERE d.dropped_at IS NULL
    UNION ALL
    SELECT
        'mmdb_dataset_bytes' AS name,
        '' AS label,
        '' AS label_value,
        cast(coalesce(sum(d.byte_count), 0) AS double precision) AS value
    FROM mmdb.dataset AS d
    WHERE d.dropped_at IS NULL
    UNION ALL
    SELECT
        'mmdb_models' AS name,
        '' AS label,
        '' AS label_value,
        cast(count(*) AS double precision) AS value
    FROM mmdb.model AS m
    WHERE m.dropped_at IS NULL
    UNION ALL
    SELECT
        'mmdb_model_bytes' AS name,
        '' AS label,
        '' AS label_value,
        cast(coalesce(sum(m.byte_count), 0) AS double precision) AS value
    FROM mmdb.model AS m
    WHERE m.dropped_at IS NULL
    UNION ALL
    SELECT
        'mmdb_stored_bytes' AS name,
        '' AS label,
        '' AS label_value,
        cast(coalesce(sum(e.stored_bytes), 0) AS double precision) AS value
    FROM mmdb.encoding AS e
    UNION ALL
    SELECT
        'mmdb_checkpoint_bytes' AS name,
        '' AS label,
        '' AS label_value,
        cast(coalesce(sum(c.byte_count), 0) AS double precision) AS value
    FROM mmdb.checkpoint AS c
    UNION ALL
    SELECT
        'mmdb_feature_bytes' AS name,
        '' AS label,
        '' AS label_value,
        cast(coalesce(sum(p.byte_count), 0) AS double precision) AS value
    FROM mmdb.feature_part AS p
    UNION ALL
    SELECT
        'mmdb_predicted_rows_total' AS name,
        '' AS label,
        '' AS label_value,
        cast(coalesce(sum(p.row_count), 0) AS double precision) AS value
    FROM mmdb.prediction AS p
    UNION ALL
    SELECT
        'mmdb_schema_migration' AS name,
        '' AS label,
        '' AS label_value,
        cast(max(m.number) AS double precision) AS value
    FROM mmdb.migration AS m
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
    ('mmdb_runs', 'gauge', 'Runs by their last event.'),
    ('mmdb_failed_candidates', 'gauge', 'Candidates that an error ended.'),
    ('mmdb_hops_total', 'counter', 'Hops done, validations included.'),
    ('mmdb_last_hop_timestamp_seconds', 'gauge', 'When the last hop ended, in seconds since 1970 (UTC).'),
    ('mmdb_worker_busy_seconds_total', 'counter', 'Seconds of all hops and merges.'),
    ('mmdb_compute_seconds_total', 'counter', 'Seconds of train hops in forward, backward and optimizer steps.'),
    ('mmdb_run_interruptions_total', 'counter', 'Times that a run stopped before its end.'),
    ('mmdb_workers', 'gauge', 'Slots of worker processes by state; lost is silent for more than 10 s.'),
    ('mmdb_requests_waiting', 'gauge', 'Requests about runs without an outcome.'),
    ('mmdb_request_age_seconds', 'gauge', 'Age of the oldest of them.'),
    ('mmdb_datasets', 'gauge', 'Datasets that are not dropped.'),
    ('mmdb_dataset_bytes', 'gauge', 'Bytes of their blocks.'),
    ('mmdb_models', 'gauge', 'Versions of models that are not dropped.'),
    ('mmdb_model_bytes', 'gauge', 'Bytes of their state dicts.'),
    ('mmdb_stored_bytes', 'gauge', 'Bytes of all tensors as they are stored.'),
    ('mmdb_checkpoint_bytes', 'gauge', 'Bytes of durable states.'),
    ('mmdb_feature_bytes', 'gauge', 'Bytes of features of frozen layers.'),
    ('mmdb_predicted_rows_total', 'counter', 'Predictions written to tables.'),
    ('mmdb_schema_migration', 'gauge', 'The last migration of the schema.')
) AS f (name, type, help)
INNER JOIN sample AS s ON f.name = s.name
WHERE s.value IS NOT NULL;
COMMENT ON VIEW mmdb.metric IS 'What mmdb does, as samples for a monitor; mmdb metrics prints them.';
COMMENT ON COLUMN mmdb.metric.name IS 'Name of the metric; counters end with _total.';
COMMENT ON COLUMN mmdb.metric.type IS 'gauge or counter.';
COMMENT ON COLUMN mmdb.metric.help IS 'What is counted.';
COMMENT ON COLUMN mmdb.metric.label IS 'What tells its samples apart; empty where there is one.';
COMMENT ON COLUMN mmdb.metric.label_value IS 'Of this sample.';
COMMENT ON COLUMN mmdb.metric.value IS 'In the unit that the name ends with, else a number of things.';
