-- Runs, as people and BI tools see them, upon the views of their candidates.

CREATE OR REPLACE VIEW mmdb.leaderboard AS
SELECT
    o.run,
    o.rank,
    o.candidate_id,
    o.config,
    cast(o.metrics ->> 'accuracy' AS double precision) AS accuracy,
    cast(o.metrics ->> 'rmse' AS double precision) AS rmse,
    o.validation_loss,
    o.best_epoch,
    o.epochs,
    o.hops,
    o.total_s,
    o.error,
    o.training_loss,
    o.metric,
    o.best_value AS objective,
    o.status,
    o.candidate,
    o.parent_id,
    w.parent,
    w.similarity,
    w.coverage,
    w.target,
    w.steps_to_target,
    w.cold_steps,
    w.steps_saved
FROM mmdb.candidate_overview AS o
LEFT JOIN mmdb.warm_start_overview AS w ON o.run = w.run AND o.candidate_id = w.candidate_id;
COMMENT ON VIEW mmdb.leaderboard IS 'Candidates of each run, the best first: by best validated epoch, else by last training loss.';

CREATE OR REPLACE VIEW mmdb.run_progress AS
WITH member AS (
    SELECT
        o.run,
        o.candidate_id,
        o.status,
        o.error,
        o.hops_done,
        o.hops_total,
        o.started_at,
        o.last_hop_at,
        o.best_value,
        cast(o.hops_total - o.hops_done AS double precision) * coalesce(
            cast(o.spent_s AS double precision) / nullif(o.hops_done, 0),
            cast(sum(o.spent_s) OVER (PARTITION BY o.run) AS double precision)
            / nullif(sum(o.hops_done) OVER (PARTITION BY o.run), 0)
        ) AS left_s,
        row_number() OVER (
            PARTITION BY o.run
            ORDER BY
                o.error IS NULL DESC,
                CASE WHEN o.maximize THEN -o.best_value ELSE o.best_value END ASC NULLS LAST,
                o.validation_loss ASC NULLS LAST,
                o.candidate ASC
        ) AS place
    FROM mmdb.open_candidate AS o
),

timed AS (
    SELECT
        r.run,
        h.finished_at,
        min(h.started_at) OVER (PARTITION BY r.run) AS first_at,
        max(h.finished_at) OVER (PARTITION BY r.run) AS last_at
    FROM mmdb.hop AS h
    INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
    INNER JOIN mmdb.open_run AS r ON c.run_id = r.run_id
),

recent AS (
    SELECT
        t.run,
        cast(count(*) AS double precision) / nullif(
            CASE
                WHEN min(t.first_at) > min(t.last_at) - cast('1 minute' AS interval)
                    THEN extract(EPOCH FROM min(t.last_at)) - extract(EPOCH FROM min(t.first_at))
                ELSE 60
            END,
            0
        ) AS hops_per_s
    FROM timed AS t
    WHERE t.finished_at > t.last_at - cast('1 minute' AS interval)
    GROUP BY t.run
),

added AS (
    SELECT
        m.run,
        count(*) AS candidates,
        count(*) FILTER (WHERE m.status = 'failed') AS failed,
        count(*) FILTER (WHERE m.status = 'training') AS training,
        count(*) FILTER (WHERE m.status = 'resting') AS resting,
        count(*) FILTER (WHERE m.status = 'trained') AS trained,
        count(*) FILTER (WHERE m.status = 'stopped') AS stopped,
        cast(sum(m.hops_done) AS bigint) AS hops_done,
        cast(CASE WHEN sum(m.hops_total) < 9000000000000000000 THEN sum(m.hops_total) ELSE 9000000000000000000 END AS bigint) AS hops_total,
        min(m.started_at) AS started_at,
        max(m.last_hop_at) AS last_hop_at,
        sum(m.left_s) AS left_s,
        max(m.left_s) AS longest_s,
        max(m.candidate_id) FILTER (WHERE m.place = 1 AND m.error IS NULL AND m.best_value IS NOT NULL)
            AS best_candidate_id,
        max(m.best_value) FILTER (WHERE m.place = 1 AND m.error IS NULL) AS best_value
    FROM member AS m
    GROUP BY m.run
),

progress AS (
    SELECT
        r.name AS run,
        t.candidates,
        t.failed,
        t.training,
        t.resting,
        t.trained,
        t.stopped,
        t.hops_done,
        t.hops_total,
        t.started_at,
        t.last_hop_at,
        t.best_candidate_id,
        t.best_value,
        t.hops_per_s,
        cast(NULL AS double precision) AS left_s,
        cast(NULL AS double precision) AS longest_s
    FROM mmdb.run_total AS t
    INNER JOIN mmdb.run AS r ON t.run_id = r.run_id
    UNION ALL
    SELECT
        a.run,
        a.candidates,
        a.failed,
        a.training,
        a.resting,
        a.trained,
        a.stopped,
        a.hops_done,
        a.hops_total,
        a.started_at,
        a.last_hop_at,
        a.best_candidate_id,
        a.best_value,
        n.hops_per_s,
        a.left_s,
        a.longest_s
    FROM added AS a
    LEFT JOIN recent AS n ON a.run = n.run
),

latest AS (
    SELECT
        r.name,
        e.event,
        e.workers,
        row_number() OVER (PARTITION BY r.name ORDER BY e.happened_at DESC) AS place
    FROM mmdb.run_event AS e
    INNER JOIN mmdb.run AS r ON e.run_id = r.run_id
    WHERE e.event <> 'replanned'
)

SELECT
    r.name AS run,
    CASE WHEN r.dropped_at IS NULL THEN coalesce(l.event, 'created') ELSE 'dropped' END AS status,
    coalesce(p.candidates, 0) AS candidates,
    coalesce(p.failed, 0) AS failed,
    r.epochs,
    coalesce(p.hops_done, 0) AS hops_done,
    coalesce(p.hops_total, 0) AS hops_total,
    r.created_at,
    p.started_at,
    p.last_hop_at,
    coalesce(s.strategy, r.strategy) AS strategy,
    coalesce(p.training, 0) AS training,
    coalesce(p.resting, 0) AS resting,
    coalesce(p.trained, 0) AS trained,
    coalesce(p.stopped, 0) AS stopped,
    r.metric,
    p.best_candidate_id,
    p.best_value,
    p.hops_per_s,
    CASE
        WHEN l.event <> 'started' THEN NULL
        WHEN p.longest_s * l.workers > p.left_s THEN p.longest_s
        ELSE cast(p.left_s AS double precision) / nullif(l.workers, 0)
    END AS seconds_left,
    d.name AS dataset
FROM mmdb.run AS r
INNER JOIN mmdb.dataset AS d ON r.dataset_id = d.dataset_id
LEFT JOIN mmdb.run_strategy AS s ON r.run_id = s.run_id
LEFT JOIN progress AS p ON r.name = p.run
LEFT JOIN latest AS l ON r.name = l.name AND l.place = 1;
COMMENT ON VIEW mmdb.run_progress IS 'How far each run is; hops include validations.';

CREATE OR REPLACE VIEW mmdb.hop_timeline AS
SELECT
    r.name AS run,
    h.candidate_id,
    c.ordinal AS candidate,
    h.epoch,
    h.ordinal,
    p.role,
    p.ordinal AS partition,
    h.part_id,
    h.worker,
    h.node,
    h.device,
    h.started_at,
    h.finished_at,
    h.row_count,
    h.steps,
    h.loss,
    h.metrics,
    h.read_s,
    h.load_s,
    h.compute_s,
    h.store_s,
    h.total_s - h.read_s - h.compute_s - h.store_s AS startup_s,
    h.total_s,
    h.state_bytes,
    h.environment,
    h.total_s - h.compute_s AS overhead_s,
    r.metric,
    h.objective,
    h.peak_bytes,
    h.group_size
FROM mmdb.hop AS h
INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id;
COMMENT ON VIEW mmdb.hop_timeline IS 'Every hop with its phases in seconds; start-up is what reading, computing and storing leave over.';

CREATE OR REPLACE VIEW mmdb.run_time AS
WITH visit AS (
    SELECT
        r.run,
        p.role,
        h.started_at,
        h.finished_at,
        h.compute_s,
        h.read_s,
        h.load_s,
        h.total_s,
        h.state_bytes
    FROM mmdb.hop AS h
    INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
    INNER JOIN mmdb.open_run AS r ON c.run_id = r.run_id
    INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id
    UNION ALL
    SELECT
        r.run,
        'merge' AS role,
        m.started_at,
        m.finished_at,
        0 AS compute_s,
        0 AS read_s,
        0 AS load_s,
        m.total_s,
        m.state_bytes
    FROM mmdb.merge AS m
    INNER JOIN mmdb.candidate AS c ON m.candidate_id = c.candidate_id
    INNER JOIN mmdb.open_run AS r ON c.run_id = r.run_id
)

SELECT
    r.name AS run,
    t.visits,
    t.seconds,
    t.compute_s,
    t.read_s,
    t.hop_s,
    t.validation_s,
    t.busy_s,
    t.bytes_moved
FROM mmdb.run_total AS t
INNER JOIN mmdb.run AS r ON t.run_id = r.run_id
WHERE t.visits IS NOT NULL
UNION ALL
SELECT
    v.run,
    count(*) AS visits,
    cast(extract(EPOCH FROM max(v.finished_at)) - extract(EPOCH FROM min(v.started_at)) AS double precision)
        AS seconds,
    sum(CASE WHEN v.role = 'train' THEN v.compute_s ELSE 0 END) AS compute_s,
    sum(v.read_s) AS read_s,
    sum(
        CASE -- searched: Citus writes no other form down when it sends what an INSERT selects
            WHEN v.role = 'train' THEN v.total_s - v.compute_s - v.read_s
            WHEN v.role = 'validation' THEN v.load_s
            ELSE v.total_s
        END
    ) AS hop_s,
    sum(CASE WHEN v.role = 'validation' THEN v.total_s - v.read_s - v.load_s ELSE 0 END) AS validation_s,
    sum(v.total_s) AS busy_s,
    cast(
        CASE
            WHEN sum(v.state_bytes) < 9000000000000000000
                THEN sum(CASE WHEN v.load_s > 0 OR v.role = 'merge' THEN v.state_bytes ELSE 0 END)
            ELSE 9000000000000000000
        END AS bigint
    ) AS bytes_moved
FROM visit AS v
GROUP BY v.run;
COMMENT ON VIEW mmdb.run_time IS 'What the workers of each run did with their time: hops and merges, by phase.';
