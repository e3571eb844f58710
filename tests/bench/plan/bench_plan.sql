-- name: find_outcome
-- What a plan of a bench's run said of how it was trained, and what it took. A run is planned with all
-- others before the first of them is trained, and once more right before it begins, when others of its
-- kind may have been measured.
SELECT
    o.is_comparable,
    e.hops,
    e.t_p10,
    e.t_p50,
    e.t_p90,
    o.actual_s,
    e.compute_s + e.communication_s AS compute_s,
    e.read_s,
    e.hop_s,
    e.validation_s,
    e.idle_s,
    o.actual_compute_s,
    o.actual_read_s,
    o.actual_hop_s,
    o.actual_validation_s,
    o.actual_idle_s
FROM mmdb.plan_outcome AS o
INNER JOIN mmdb.run AS r ON o.run = r.name
INNER JOIN mmdb.dataset AS d ON r.dataset_id = d.dataset_id
INNER JOIN (
    SELECT
        p.run_id,
        CASE WHEN %(last)s::boolean THEN max(p.plan_id) ELSE min(p.plan_id) END AS plan_id
    FROM mmdb.plan AS p
    GROUP BY p.run_id
) AS f ON r.run_id = f.run_id
INNER JOIN mmdb.estimate AS e
    ON
        f.plan_id = e.plan_id
        AND o.strategy = e.strategy
        AND o.workers = e.workers
        AND o.group_size = e.group_size
        AND d.partitions = e.partitions
WHERE o.run = %(run)s::text AND e.batch_size IS NULL
ORDER BY e.rank
LIMIT 1;
