-- What plans said of runs, and what became of them.

CREATE OR REPLACE VIEW mmdb.plan_outcome AS
WITH began AS (
    SELECT
        r.name,
        count(*) FILTER (WHERE e.event = 'started') AS starts,
        min(e.happened_at) FILTER (WHERE e.event = 'started') AS started_at,
        max(e.happened_at) FILTER (WHERE e.event = 'finished') AS finished_at,
        max(e.workers) FILTER (WHERE e.event = 'started') AS workers
    FROM mmdb.run_event AS e
    INNER JOIN mmdb.run AS r ON e.run_id = r.run_id
    GROUP BY r.name
),

planned AS (
    SELECT
        r.name,
        p.plan_id,
        p.planned_at,
        p.assumed,
        p.measured,
        coalesce(cast(p.options ->> 'workers' AS integer), b.workers) >= b.workers AS is_for_all,
        row_number() OVER (PARTITION BY r.name ORDER BY p.planned_at DESC, p.plan_id DESC) AS place
    FROM mmdb.plan AS p
    INNER JOIN mmdb.run AS r ON p.run_id = r.run_id
    INNER JOIN began AS b ON r.name = b.name
    WHERE NOT p.simulated AND p.planned_at <= b.started_at
),

trained AS (
    SELECT
        r.name,
        coalesce(s.strategy, CASE WHEN r.strategy = 'auto' THEN 'mop' ELSE r.strategy END) AS strategy,
        CASE
            WHEN s.strategy IS NOT NULL THEN s.group_size
            WHEN r.strategy = 'data_parallel' THEN coalesce(cast(r.options ->> 'group' AS integer), 2)
            ELSE 1
        END AS group_size,
        d.partitions
    FROM mmdb.run AS r
    INNER JOIN mmdb.dataset AS d ON r.dataset_id = d.dataset_id
    LEFT JOIN mmdb.run_strategy AS s ON r.run_id = s.run_id
),

foreseen AS (
    SELECT
        p.name,
        p.planned_at,
        p.assumed,
        p.measured,
        e.plan_id,
        e.rank,
        e.t_p10,
        e.t_p50,
        e.t_p90,
        e.lower_bound,
        e.compute_s,
        e.read_s,
        e.hop_s,
        e.communication_s,
        e.validation_s,
        e.idle_s,
        e.bytes_moved,
        e.peak_memory,
        e.hops,
        -- Workers that a run could not use stay idle, and a plan has no row for them.
        row_number() OVER (PARTITION BY p.name ORDER BY e.workers DESC, e.rank ASC) AS place
    FROM planned AS p
    INNER JOIN mmdb.estimate AS e ON p.plan_id = e.plan_id
    INNER JOIN trained AS t ON p.name = t.name
    INNER JOIN began AS b ON p.name = b.name
    WHERE
        p.place = 1
        AND e.strategy = t.strategy
        AND p.is_for_all
        AND e.workers <= b.workers
        AND e.group_size = t.group_size
        AND e.partitions = t.partitions
        AND e.batch_size IS NULL
)

SELECT
    t.name AS run,
    f.plan_id,
    f.rank,
    t.strategy,
    b.workers,
    t.group_size,
    f.planned_at,
    b.started_at,
    b.finished_at,
    f.measured,
    f.assumed,
    f.t_p10,
    f.t_p50,
    f.t_p90,
    f.lower_bound,
    s.seconds AS actual_s,
    cast(s.seconds AS double precision) / nullif(f.t_p50, 0) - 1 AS error,
    f.compute_s + f.communication_s AS compute_s,
    s.compute_s AS actual_compute_s,
    f.read_s,
    s.read_s AS actual_read_s,
    f.hop_s,
    s.hop_s AS actual_hop_s,
    f.validation_s,
    s.validation_s AS actual_validation_s,
    f.idle_s,
    CASE WHEN s.seconds * b.workers > s.busy_s THEN s.seconds * b.workers - s.busy_s ELSE 0 END AS actual_idle_s,
    f.bytes_moved,
    f.peak_memory,
    f.hops,
    s.visits AS actual_hops,
    coalesce(b.starts = 1 AND f.hops = s.visits, FALSE) AS is_comparable
FROM trained AS t
INNER JOIN began AS b ON t.name = b.name
INNER JOIN mmdb.run_time AS s ON t.name = s.run
LEFT JOIN foreseen AS f ON t.name = f.name AND f.place = 1
WHERE b.finished_at IS NOT NULL;
COMMENT ON VIEW mmdb.plan_outcome IS 'Trained runs: what the last plan before the start said of what was done, and what it took.';

CREATE OR REPLACE VIEW mmdb.plan_accuracy AS
WITH one AS (
    SELECT
        o.run,
        o.finished_at,
        o.strategy,
        o.workers,
        o.measured,
        o.assumed,
        o.t_p50,
        o.actual_s,
        o.error,
        CASE WHEN o.error < 0 THEN -o.error ELSE o.error END AS absolute_error,
        CASE WHEN o.actual_s BETWEEN o.t_p10 AND o.t_p90 THEN 1 ELSE 0 END AS hit
    FROM mmdb.plan_outcome AS o
    WHERE o.is_comparable
),

counted AS (
    SELECT
        n.run,
        n.finished_at,
        n.strategy,
        n.workers,
        n.measured,
        n.assumed,
        n.t_p50,
        n.actual_s,
        n.error,
        n.hit,
        row_number() OVER (ORDER BY n.finished_at, n.run) AS runs,
        sum(n.absolute_error) OVER (ORDER BY n.finished_at, n.run) AS errors,
        sum(n.hit) OVER (ORDER BY n.finished_at, n.run) AS hits
    FROM one AS n
)

SELECT
    k.run,
    k.finished_at,
    k.strategy,
    k.workers,
    k.measured,
    k.assumed,
    k.t_p50,
    k.actual_s,
    k.error,
    k.hit = 1 AS is_within,
    k.runs,
    cast(k.errors AS double precision) / nullif(k.runs, 0) AS mean_error,
    cast(k.hits AS double precision) / nullif(k.runs, 0) AS share_within
FROM counted AS k;
COMMENT ON VIEW mmdb.plan_accuracy IS 'How far plans were from the runs, each in the order in which they ended, and over all so far.';
