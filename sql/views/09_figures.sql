-- What people plot. Hours and days are those of UTC: a chart says the same wherever it is drawn.

CREATE OR REPLACE VIEW mmdb.metric_history AS
SELECT
    p.run,
    p.candidate_id,
    p.candidate,
    p.epoch,
    p.validated_at,
    p.metric,
    p.objective AS value,
    p.best_so_far
FROM mmdb.candidate_progress AS p
WHERE p.objective IS NOT NULL;
COMMENT ON VIEW mmdb.metric_history IS 'The metric of each candidate over its epochs and over time, with the best value so far.';

CREATE OR REPLACE VIEW mmdb.hops_per_hour AS
SELECT
    t.hour,
    r.name AS run,
    t.node,
    t.worker,
    t.hops,
    t.train_hops,
    t.row_count,
    t.busy_s
FROM mmdb.hour_total AS t
INNER JOIN mmdb.run AS r ON t.run_id = r.run_id
UNION ALL
SELECT
    to_timestamp(floor(extract(EPOCH FROM h.finished_at) / cast(3600 AS double precision)) * 3600) AS hour,
    r.run,
    h.node,
    h.worker,
    count(*) AS hops,
    count(*) FILTER (WHERE p.role = 'train') AS train_hops,
    cast(CASE WHEN sum(h.row_count) < 9000000000000000000 THEN sum(h.row_count) ELSE 9000000000000000000 END AS bigint) AS row_count,
    sum(h.total_s) AS busy_s
FROM mmdb.hop AS h
INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
INNER JOIN mmdb.open_run AS r ON c.run_id = r.run_id
INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id
GROUP BY
    to_timestamp(floor(extract(EPOCH FROM h.finished_at) / cast(3600 AS double precision)) * 3600), r.run, h.node, h.worker;
COMMENT ON VIEW mmdb.hops_per_hour IS 'Hops that each worker ended in each hour, by run; hours without any have no row.';

CREATE OR REPLACE VIEW mmdb.storage_overview AS
WITH listed AS ( -- a tied tensor and a view of a storage take nothing of their own
    SELECT
        t.manifest_id,
        cast(sum(e.stored_bytes) AS bigint) AS encoded_bytes
    FROM mmdb.manifest_tensor AS t
    LEFT JOIN mmdb.encoding AS e ON t.tensor_id = e.tensor_id
    WHERE t.tied_to IS NULL AND t.layout IS NULL
    GROUP BY t.manifest_id
),

kept AS ( -- tensors in place of the manifest's count as those: alone they would not be kept as differences
    SELECT
        m.model_id,
        m.name,
        m.version,
        m.approach,
        m.created_at,
        m.tensor_count,
        m.byte_count,
        m.stored_bytes,
        coalesce(l.encoded_bytes, 0) + coalesce(p.stored_bytes, 0) AS encoded_bytes
    FROM mmdb.model AS m
    LEFT JOIN listed AS l ON m.manifest_id = l.manifest_id
    LEFT JOIN mmdb.encoding AS p ON m.pack_id = p.tensor_id
    WHERE m.dropped_at IS NULL
)

SELECT
    k.name AS model,
    k.version,
    k.approach,
    k.created_at,
    k.tensor_count AS tensors,
    k.byte_count,
    k.stored_bytes,
    CASE WHEN k.encoded_bytes > k.stored_bytes THEN k.encoded_bytes - k.stored_bytes ELSE 0 END AS shared_bytes,
    CASE WHEN k.encoded_bytes > k.stored_bytes THEN k.byte_count - k.encoded_bytes ELSE k.byte_count - k.stored_bytes END
        AS encoded_away_bytes,
    k.model_id
FROM kept AS k;
COMMENT ON VIEW mmdb.storage_overview
IS 'What each model takes in the database, and what sharing tensors and encoding them saved: the three add up to its bytes.';

CREATE OR REPLACE VIEW mmdb.run_cost AS
WITH began AS (
    SELECT
        r.name,
        count(*) FILTER (WHERE e.event = 'started') AS starts,
        max(e.workers) FILTER (WHERE e.event = 'started') AS workers
    FROM mmdb.run_event AS e
    INNER JOIN mmdb.run AS r ON e.run_id = r.run_id
    GROUP BY r.name
),

spent AS (
    SELECT
        r.name AS run,
        d.name AS dataset,
        coalesce(s.strategy, r.strategy) AS strategy,
        b.workers,
        b.starts,
        t.visits AS hops,
        t.busy_s AS worker_s,
        t.compute_s,
        t.busy_s - t.compute_s AS overhead_s,
        CASE -- nobody waited between an interruption and the next start
            WHEN b.starts <> 1 THEN NULL
            WHEN t.seconds * b.workers > t.busy_s THEN t.seconds * b.workers - t.busy_s
            ELSE 0
        END AS wait_s,
        t.bytes_moved,
        t.seconds,
        (
            SELECT CASE WHEN p.value ~ '^[0-9]{1,15}([.][0-9]{1,15})?$' THEN cast(p.value AS double precision) END
            FROM mmdb.setting AS p
            WHERE p.name = 'price_per_worker_hour'
        ) AS price_per_worker_hour,
        r.created_at
    FROM mmdb.run AS r
    INNER JOIN mmdb.dataset AS d ON r.dataset_id = d.dataset_id
    INNER JOIN mmdb.run_time AS t ON r.name = t.run
    LEFT JOIN mmdb.run_strategy AS s ON r.run_id = s.run_id
    LEFT JOIN began AS b ON r.name = b.name
)

SELECT
    s.run,
    s.dataset,
    s.strategy,
    s.workers,
    s.hops,
    s.worker_s,
    s.compute_s,
    s.overhead_s,
    s.wait_s,
    s.bytes_moved,
    s.seconds,
    s.price_per_worker_hour,
    s.price_per_worker_hour * (cast(s.worker_s + coalesce(s.wait_s, 0) AS double precision) / 3600) AS cost,
    s.created_at
FROM spent AS s;
COMMENT ON VIEW mmdb.run_cost IS 'What each run took of its workers, and what that cost where a price is set.';

CREATE OR REPLACE VIEW mmdb.zoo_hits AS
WITH daily AS (
    SELECT
        m.name AS model,
        m.version,
        to_timestamp(floor(extract(EPOCH FROM e.happened_at) / cast(86400 AS double precision)) * 86400) AS day,
        count(*) AS hits
    FROM mmdb.zoo_event AS e
    INNER JOIN mmdb.model AS m ON e.model_id = m.model_id
    WHERE e.event = 'hit'
    GROUP BY
        m.name, m.version,
        to_timestamp(floor(extract(EPOCH FROM e.happened_at) / cast(86400 AS double precision)) * 86400)
)

SELECT
    d.day,
    d.model,
    d.version,
    d.hits,
    cast(sum(d.hits) OVER (PARTITION BY d.model, d.version ORDER BY d.day) AS bigint) AS hits_so_far
FROM daily AS d;
COMMENT ON VIEW mmdb.zoo_hits IS 'How often each model was taken as a parent, by day; days without a hit have no row.';
