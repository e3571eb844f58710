-- name: find_finished
-- Runs without totals that have finished and were not started again.
SELECT
    r.run_id,
    r.run AS name
FROM mmdb.open_run AS r
WHERE
    (
        SELECT e.event FROM mmdb.run_event AS e
        WHERE e.run_id = r.run_id
        ORDER BY e.happened_at DESC
        LIMIT 1
    ) = 'finished'
ORDER BY r.run_id;

-- name: count_hops
-- How many hops runs have.
SELECT count(*) AS hops
FROM mmdb.hop AS h
INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
WHERE c.run_id = any(%(run_ids)s::bigint[]);

-- name: seal_epochs
-- Write what the epochs of runs add up to.
INSERT INTO mmdb.epoch_total (
    run_id, candidate_id, epoch, candidate, hops, row_count, steps, training_loss, validation_loss, objective, metrics,
    compute_s, total_s, trained_at, validated_at, best_so_far
)
SELECT
    r.run_id,
    p.candidate_id,
    p.epoch,
    p.candidate,
    p.hops,
    p.row_count,
    p.steps,
    p.training_loss,
    p.validation_loss,
    p.objective,
    p.metrics,
    p.compute_s,
    p.total_s,
    p.trained_at,
    p.validated_at,
    p.best_so_far
FROM mmdb.candidate_progress AS p
INNER JOIN mmdb.open_run AS r ON p.run = r.run
WHERE p.run = any(%(names)s::text[]);

-- name: seal_candidates
-- Write what the candidates of runs came to.
INSERT INTO mmdb.candidate_total (
    run_id, candidate_id, status, goal, epochs, hops, total_s, hops_done, hops_total, spent_s, best_value, best_epoch,
    validation_loss, metrics, error, started_at, last_hop_at, training_loss, rank
)
SELECT
    o.run_id,
    o.candidate_id,
    o.status,
    o.goal,
    o.epochs,
    o.hops,
    o.total_s,
    o.hops_done,
    o.hops_total,
    o.spent_s,
    o.best_value,
    o.best_epoch,
    o.validation_loss,
    o.metrics,
    o.error,
    o.started_at,
    o.last_hop_at,
    o.training_loss,
    o.rank
FROM mmdb.open_candidate AS o
WHERE o.run = any(%(names)s::text[]);

-- name: seal_hours
-- Write what the workers of runs did in each hour.
INSERT INTO mmdb.hour_total (run_id, hour, node, worker, hops, train_hops, row_count, busy_s)
SELECT
    r.run_id,
    h.hour,
    h.node,
    h.worker,
    h.hops,
    h.train_hops,
    h.row_count,
    h.busy_s
FROM mmdb.hops_per_hour AS h
INNER JOIN mmdb.open_run AS r ON h.run = r.run
WHERE h.run = any(%(names)s::text[]);

-- name: seal_runs
-- Write what it came to, after their other totals: from here on views read those.
INSERT INTO mmdb.run_total (
    run_id, candidates, failed, training, resting, trained, stopped, hops_done, hops_total, started_at, last_hop_at,
    best_candidate_id, best_value, hops_per_s, visits, seconds, compute_s, read_s, hop_s, validation_s, busy_s, bytes_moved
)
SELECT
    r.run_id,
    p.candidates,
    p.failed,
    p.training,
    p.resting,
    p.trained,
    p.stopped,
    p.hops_done,
    p.hops_total,
    p.started_at,
    p.last_hop_at,
    p.best_candidate_id,
    p.best_value,
    p.hops_per_s,
    t.visits,
    t.seconds,
    t.compute_s,
    t.read_s,
    t.hop_s,
    t.validation_s,
    t.busy_s,
    t.bytes_moved
FROM mmdb.run_progress AS p
INNER JOIN mmdb.open_run AS r ON p.run = r.run
LEFT JOIN mmdb.run_time AS t ON p.run = t.run AND t.run = any(%(names)s::text[])
WHERE p.run = any(%(names)s::text[]);

-- name: find_total
-- Whether a run has totals: most that go on have none.
SELECT t.run_id
FROM mmdb.run_total AS t
WHERE t.run_id = %(run_id)s::bigint;

-- name: unseal_run
-- A run goes on: its totals hold no longer.
DELETE FROM mmdb.run_total
WHERE run_id = %(run_id)s::bigint;

-- name: unseal_candidates
-- What its candidates came to.
DELETE FROM mmdb.candidate_total
WHERE run_id = %(run_id)s::bigint;

-- name: unseal_epochs
-- What their epochs added up to.
DELETE FROM mmdb.epoch_total
WHERE run_id = %(run_id)s::bigint;

-- name: unseal_hours
-- What its workers did in each hour.
DELETE FROM mmdb.hour_total
WHERE run_id = %(run_id)s::bigint;
