-- name: timeline
-- The hops of a bench's runs; `seen` from the second visit of a worker to a partition.
SELECT
    t.run,
    t.candidate_id,
    t.candidate,
    t.epoch,
    t.worker,
    t.part_id,
    t.role,
    t.read_s,
    t.load_s,
    t.compute_s,
    t.store_s,
    t.startup_s,
    t.overhead_s,
    t.total_s,
    t.started_at,
    t.finished_at,
    t.objective,
    t.row_count,
    t.state_bytes,
    row_number() OVER (PARTITION BY t.worker, t.part_id ORDER BY t.started_at) > 1 AS seen
FROM mmdb.hop_timeline AS t
WHERE t.run LIKE %(prefix)s::text
ORDER BY t.started_at;

-- name: read_progress
-- What a reader sees of a bench's runs.
SELECT
    p.run,
    p.status,
    p.hops_done,
    p.hops_total,
    p.best_value,
    p.seconds_left
FROM mmdb.run_progress AS p
WHERE p.run LIKE %(prefix)s::text;

-- name: read_leaderboard
-- What a reader sees of the candidates of a bench's runs.
SELECT
    b.run,
    b.rank,
    b.candidate_id,
    b.config,
    b.objective,
    b.best_epoch,
    b.epochs,
    b.hops,
    b.total_s,
    b.status,
    b.error
FROM mmdb.leaderboard AS b
WHERE b.run LIKE %(prefix)s::text;

-- name: read_timeline
-- What a reader sees of the last hops of a bench's runs.
SELECT
    t.run,
    t.candidate,
    t.worker,
    t.started_at,
    t.finished_at,
    t.total_s
FROM mmdb.hop_timeline AS t
WHERE t.run LIKE %(prefix)s::text
ORDER BY t.finished_at DESC
LIMIT 20;

-- name: read_workers
-- What a reader sees of the worker processes' slots.
SELECT
    w.worker,
    w.state,
    w.run,
    w.candidate_id,
    w.since,
    w.hops,
    w.busy_share
FROM mmdb.worker_status AS w
WHERE w.run LIKE %(prefix)s::text OR w.run IS NULL;
