-- name: timeline
-- The hops of a bench's runs; `seen` from the second visit of a worker to a partition.
SELECT
    t.run,
    t.candidate_id,
    t.part_id,
    t.role,
    t.read_s,
    t.load_s,
    t.compute_s,
    t.store_s,
    t.startup_s,
    t.total_s,
    t.started_at,
    t.finished_at,
    row_number() OVER (PARTITION BY t.worker, t.part_id ORDER BY t.started_at) > 1 AS seen
FROM mmdb.hop_timeline AS t
WHERE t.run LIKE %(prefix)s::text
ORDER BY t.started_at;
