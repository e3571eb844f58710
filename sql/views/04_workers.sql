-- Who serves the runs that were handed to worker processes. Lost means silent for longer than the lease, LEASE_S of mmdb/train/service.

CREATE OR REPLACE VIEW mmdb.worker_status AS
WITH present AS (
    SELECT
        a.worker_id,
        a.candidate_id,
        a.part_id,
        a.epoch,
        a.taken_at,
        row_number() OVER (PARTITION BY a.worker_id ORDER BY a.assignment_id) AS place
    FROM mmdb.assignment AS a
    WHERE a.finished_at IS NULL AND a.taken_at IS NOT NULL
),

past AS (
    SELECT
        a.worker_id,
        count(*) FILTER (WHERE a.sqlstate IS NULL) AS hops,
        sum(extract(EPOCH FROM a.finished_at) - extract(EPOCH FROM coalesce(a.taken_at, a.finished_at))) AS busy_s,
        max(a.finished_at) AS last_at
    FROM mmdb.assignment AS a
    WHERE a.finished_at > now() - cast('1 hour' AS interval)
    GROUP BY a.worker_id
),

slot AS (
    SELECT
        w.worker_id,
        w.name,
        w.process,
        w.node,
        w.device,
        w.mode,
        w.started_at,
        b.beat_at,
        b.stopped_at,
        CASE
            WHEN b.stopped_at IS NOT NULL THEN 'stopped'
            WHEN b.beat_at < now() - cast('10 seconds' AS interval) THEN 'lost'
            WHEN p.worker_id IS NOT NULL THEN 'hopping'
            ELSE 'idle'
        END AS state,
        p.candidate_id,
        p.part_id,
        p.epoch,
        p.taken_at,
        coalesce(h.hops, 0) AS hops,
        coalesce(h.busy_s, 0) AS busy_s,
        h.last_at,
        CASE
            WHEN w.started_at > now() - cast('1 hour' AS interval)
                THEN extract(EPOCH FROM now()) - extract(EPOCH FROM w.started_at)
            ELSE 3600
        END AS span_s
    FROM mmdb.worker AS w
    INNER JOIN mmdb.worker_beat AS b ON w.worker_id = b.worker_id
    LEFT JOIN present AS p ON w.worker_id = p.worker_id AND p.place = 1
    LEFT JOIN past AS h ON w.worker_id = h.worker_id
)

SELECT
    s.name AS worker,
    s.process,
    s.node,
    s.device,
    s.mode,
    s.state,
    CASE WHEN s.state = 'hopping' THEN r.name END AS run,
    CASE WHEN s.state = 'hopping' THEN s.candidate_id END AS candidate_id,
    CASE WHEN s.state = 'hopping' THEN s.epoch END AS epoch,
    CASE WHEN s.state = 'hopping' THEN coalesce(t.role, 'merge') END AS role,
    CASE WHEN s.state = 'hopping' THEN t.ordinal END AS partition,
    CASE s.state
        WHEN 'stopped' THEN s.stopped_at
        WHEN 'lost' THEN s.beat_at
        WHEN 'hopping' THEN s.taken_at
        ELSE coalesce(s.last_at, s.started_at)
    END AS since,
    s.beat_at AS last_beat,
    s.hops,
    CASE
        WHEN s.busy_s > s.span_s THEN 1
        ELSE cast(s.busy_s AS double precision) / nullif(s.span_s, 0)
    END AS busy_share,
    s.started_at,
    s.worker_id
FROM slot AS s
LEFT JOIN mmdb.candidate AS c ON s.candidate_id = c.candidate_id
LEFT JOIN mmdb.run AS r ON c.run_id = r.run_id
LEFT JOIN mmdb.partition AS t ON s.part_id = t.part_id;
COMMENT ON VIEW mmdb.worker_status IS 'The slots of worker processes, and what each is doing now.';
