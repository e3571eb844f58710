-- name: find_members
-- The candidates of a run with their configurations, and how each stands; of a clone, the epochs
-- that its parent had behind it.
SELECT
    o.candidate_id,
    o.config::text AS config,
    o.status,
    o.parent_id,
    h.epoch + 1 AS parent_epochs,
    extract(EPOCH FROM o.started_at) AS started_at,
    extract(EPOCH FROM o.last_hop_at) AS last_hop_at
FROM mmdb.candidate_overview AS o
INNER JOIN mmdb.candidate AS c ON o.candidate_id = c.candidate_id
LEFT JOIN (
    SELECT
        p.candidate_id,
        p.state_out,
        max(p.epoch) AS epoch
    FROM mmdb.hop AS p
    WHERE
        p.candidate_id IN (
            SELECT d.parent_id
            FROM mmdb.candidate AS d
            INNER JOIN mmdb.run AS r ON d.run_id = r.run_id
            WHERE r.name = %(run)s::text
        )
    GROUP BY p.candidate_id, p.state_out
) AS h ON c.parent_id = h.candidate_id AND c.parent_state = h.state_out
WHERE o.run = %(run)s::text
ORDER BY o.candidate;

-- name: find_curves
-- The epochs of a run's candidates, in order.
SELECT
    t.candidate_id,
    t.epoch,
    t.steps,
    t.training_loss,
    t.validation_loss,
    t.objective,
    t.metrics::text AS metrics,
    t.compute_s,
    t.total_s,
    extract(EPOCH FROM t.trained_at) AS trained_at,
    extract(EPOCH FROM t.validated_at) AS validated_at
FROM mmdb.candidate_progress AS t
WHERE t.run = %(run)s::text
ORDER BY t.candidate_id, t.epoch;

-- name: find_objective
-- What a run's candidates are compared by.
SELECT
    r.metric,
    r.maximize,
    extract(EPOCH FROM r.created_at) AS created_at
FROM mmdb.run AS r
WHERE r.name = %(run)s::text;
