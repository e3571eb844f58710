-- name: find_run
-- A run with its dataset, by name.
SELECT
    r.run_id,
    r.name,
    r.seed AS run_seed,
    r.epochs,
    r.options::text AS options,
    r.dataset_id,
    d.name AS dataset,
    d.task,
    d.dropped_at IS NOT NULL AS dropped
FROM mmdb.run AS r
INNER JOIN mmdb.dataset AS d ON r.dataset_id = d.dataset_id
WHERE r.name = %(name)s::text;

-- name: add_run
-- Create a run.
INSERT INTO mmdb.run (name, dataset_id, architecture, search, epochs, strategy, warm_start, seed, options)
VALUES (
    %(name)s::text, %(dataset_id)s::bigint, %(architecture)s::jsonb, %(search)s::jsonb, %(epochs)s::integer,
    %(strategy)s::text, %(warm_start)s::text, %(seed)s::bigint, %(options)s::jsonb
)
RETURNING run_id;

-- name: add_candidate
-- Create a candidate of a run.
INSERT INTO mmdb.candidate (run_id, ordinal, config, seed)
VALUES (%(run_id)s::bigint, %(ordinal)s::integer, %(config)s::jsonb, %(seed)s::bigint);

-- name: find_candidates
-- The candidates of a run, with the error of those that failed.
SELECT
    c.candidate_id,
    c.ordinal,
    c.config::text AS config,
    (
        SELECT min(e.message) FROM mmdb.candidate_event AS e
        WHERE e.candidate_id = c.candidate_id
    ) AS error
FROM mmdb.candidate AS c
WHERE c.run_id = %(run_id)s::bigint
ORDER BY c.ordinal;

-- name: find_run_hops
-- Every hop of a run, in each candidate's order.
SELECT
    h.candidate_id,
    h.epoch,
    h.part_id,
    h.total_s
FROM mmdb.hop AS h
INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
WHERE c.run_id = %(run_id)s::bigint
ORDER BY h.candidate_id, h.ordinal;

-- name: add_run_event
-- Note what happened to a run.
INSERT INTO mmdb.run_event (run_id, event, workers)
VALUES (%(run_id)s::bigint, %(event)s::text, %(workers)s::integer);

-- name: add_candidate_event
-- Note what ended a candidate early.
INSERT INTO mmdb.candidate_event (candidate_id, event, sqlstate, message)
VALUES (%(candidate_id)s::bigint, %(event)s::text, %(sqlstate)s::text, %(message)s::text);

-- name: best_candidate
-- The candidate at the head of a run's leaderboard.
SELECT
    l.candidate_id,
    l.accuracy,
    l.rmse,
    l.best_epoch
FROM mmdb.leaderboard AS l
WHERE l.run = %(name)s::text AND l.error IS NULL
ORDER BY l.rank
LIMIT 1;
