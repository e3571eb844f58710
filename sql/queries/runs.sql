-- name: find_run
-- A run that is not dropped with its dataset, by name.
SELECT
    r.run_id,
    r.name,
    r.seed AS run_seed,
    r.epochs,
    r.search::text AS search,
    r.strategy AS asked_strategy,
    coalesce(s.strategy, r.strategy) AS strategy,
    s.group_size,
    s.workers,
    r.warm_start,
    r.options::text AS options,
    r.metric,
    r.maximize,
    r.dataset_id,
    d.name AS dataset,
    d.task,
    d.dropped_at IS NOT NULL AS dropped
FROM mmdb.run AS r
INNER JOIN mmdb.dataset AS d ON r.dataset_id = d.dataset_id
LEFT JOIN mmdb.run_strategy AS s ON r.run_id = s.run_id
WHERE r.name = %(name)s::text AND r.dropped_at IS NULL;

-- name: find_disposable
-- The candidates of a run whose checkpoints no model is made again from.
SELECT c.candidate_id
FROM mmdb.candidate AS c
WHERE
    c.run_id = %(run_id)s::bigint
    AND NOT EXISTS (
        SELECT 1
        FROM mmdb.model AS m
        WHERE m.candidate_id = c.candidate_id AND m.approach = 'provenance' AND m.dropped_at IS NULL
    )
ORDER BY c.candidate_id;

-- name: mark_run_dropped
-- Record that a run was dropped, and free its name.
UPDATE mmdb.run
SET dropped_at = now(), name = name || '#' || run_id::text
WHERE run_id = %(run_id)s::bigint;

-- name: add_run
-- Create a run.
INSERT INTO mmdb.run (
    name, dataset_id, architecture, search, epochs, strategy, warm_start, seed, options, metric, maximize
) VALUES (
    %(name)s::text, %(dataset_id)s::bigint, %(architecture)s::jsonb, %(search)s::jsonb, %(epochs)s::integer,
    %(strategy)s::text, %(warm_start)s::text, %(seed)s::bigint, %(options)s::jsonb,
    %(metric)s::text, %(maximize)s::boolean
)
RETURNING run_id;

-- name: find_standing
-- How a run was created, whether it was decided how it is trained, and whether it was started.
SELECT
    r.run_id,
    r.strategy,
    r.options::text AS options,
    s.strategy AS taken,
    (
        SELECT count(*) FROM mmdb.run_event AS e
        WHERE e.run_id = r.run_id
    ) > 0 AS was_started
FROM mmdb.run AS r
LEFT JOIN mmdb.run_strategy AS s ON r.run_id = s.run_id
WHERE r.name = %(name)s::text;

-- name: count_run_hops
-- How many hops a run has done.
SELECT count(*) AS hops
FROM mmdb.hop AS h
INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
WHERE c.run_id = %(run_id)s::bigint;

-- name: add_run_strategy
-- Decide how a run is trained; what was decided before stands.
INSERT INTO mmdb.run_strategy (run_id, strategy, group_size, workers, plan_id, reason)
VALUES (
    %(run_id)s::bigint, %(strategy)s::text, %(group_size)s::integer, %(workers)s::integer,
    %(plan_id)s::bigint, %(reason)s::text
)
ON CONFLICT DO NOTHING;

-- name: find_run_strategy
-- How it was decided that a run is trained.
SELECT
    s.strategy,
    s.group_size,
    s.workers,
    s.plan_id,
    s.reason
FROM mmdb.run_strategy AS s
WHERE s.run_id = %(run_id)s::bigint;

-- name: add_candidate
-- Create a candidate of a run, from fresh weights or from a parent's state.
INSERT INTO mmdb.candidate (run_id, ordinal, config, seed, parent_id, parent_state, architecture_hash)
VALUES (
    %(run_id)s::bigint, %(ordinal)s::integer, %(config)s::jsonb, %(seed)s::bigint,
    %(parent_id)s::bigint, %(parent_state)s::bytea, %(architecture_hash)s::bytea
)
RETURNING candidate_id;

-- name: add_first_candidate
-- Create a candidate together with its run.
INSERT INTO mmdb.candidate (run_id, ordinal, config, seed, architecture_hash)
VALUES (
    %(run_id)s::bigint, %(ordinal)s::integer, %(config)s::jsonb, %(seed)s::bigint, %(architecture_hash)s::bytea
);

-- name: add_first_step_time
-- Keep what steps of a candidate took that was created together with its run.
INSERT INTO mmdb.step_time (candidate_id, node, device, environment, row_count, steps, seconds, state_bytes)
SELECT
    c.candidate_id,
    %(node)s::text,
    'cpu' AS device,
    %(environment)s::text,
    %(row_count)s::bigint,
    %(steps)s::integer,
    %(seconds)s::double precision,
    %(state_bytes)s::bigint
FROM mmdb.candidate AS c
WHERE c.run_id = %(run_id)s::bigint AND c.ordinal = %(ordinal)s::integer;

-- name: find_new_candidate
-- What a run gives its new candidates.
SELECT
    r.seed,
    r.architecture::text AS architecture,
    r.options::text AS options,
    r.warm_start
FROM mmdb.run AS r
WHERE r.run_id = %(run_id)s::bigint;

-- name: count_candidates
-- How many candidates a run has, and how many of them have failed.
SELECT
    count(DISTINCT c.candidate_id) AS candidates,
    count(DISTINCT e.candidate_id) AS failed
FROM mmdb.run AS r
INNER JOIN mmdb.candidate AS c ON r.run_id = c.run_id
LEFT JOIN mmdb.candidate_event AS e ON c.candidate_id = e.candidate_id
WHERE r.name = %(name)s::text;

-- name: next_ordinal
-- The ordinal that a run's next candidate gets.
SELECT coalesce(max(c.ordinal) + 1, 0) AS ordinal
FROM mmdb.candidate AS c
WHERE c.run_id = %(run_id)s::bigint;

-- name: copy_checkpoint
-- Give a clone the state that it starts from.
INSERT INTO mmdb.checkpoint (part_id, candidate_id, state_hash, epoch, byte_count)
SELECT
    c.part_id,
    %(candidate_id)s::bigint AS candidate_id,
    c.state_hash,
    -1 AS epoch,
    c.byte_count
FROM mmdb.checkpoint AS c
WHERE c.candidate_id = %(parent_id)s::bigint AND c.state_hash = %(state_hash)s::bytea;

-- name: copy_checkpoint_chunks
-- The bytes of that state.
INSERT INTO mmdb.checkpoint_chunk (part_id, candidate_id, state_hash, ordinal, data)
SELECT
    c.part_id,
    %(candidate_id)s::bigint AS candidate_id,
    c.state_hash,
    c.ordinal,
    c.data
FROM mmdb.checkpoint_chunk AS c
WHERE c.candidate_id = %(parent_id)s::bigint AND c.state_hash = %(state_hash)s::bytea;

-- name: inherit_warm_start
-- Let a clone have the parent model of the candidate that it was cloned from.
INSERT INTO mmdb.warm_start (candidate_id, transfer_id, state_hash, lr_scale, lr_epochs, reason, match_s)
SELECT
    %(candidate_id)s::bigint AS candidate_id,
    w.transfer_id,
    NULL::bytea AS state_hash,
    1::double precision AS lr_scale,
    0 AS lr_epochs,
    'cloned from candidate ' || w.candidate_id::text AS reason,
    0::double precision AS match_s
FROM mmdb.warm_start AS w
WHERE w.candidate_id = %(parent_id)s::bigint AND w.transfer_id IS NOT NULL;

-- name: add_decision
-- Log what a search was told or has decided.
INSERT INTO mmdb.decision (run_id, ordinal, kind, candidate, epoch, value, detail)
VALUES (
    %(run_id)s::bigint, %(ordinal)s::integer, %(kind)s::text, %(candidate)s::integer,
    %(epoch)s::integer, %(value)s::double precision, %(detail)s::jsonb
);

-- name: find_decisions
-- The log of a run's search after an entry, in order.
SELECT
    d.ordinal,
    d.kind,
    d.candidate,
    d.epoch,
    d.value,
    d.detail::text AS detail
FROM mmdb.decision AS d
WHERE d.run_id = %(run_id)s::bigint AND d.ordinal > %(after)s::integer
ORDER BY d.ordinal;

-- name: find_objectives
-- The validated epochs of a run, in the order in which they were validated.
SELECT
    c.ordinal AS candidate,
    h.epoch,
    h.objective
FROM mmdb.hop AS h
INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id
WHERE c.run_id = %(run_id)s::bigint AND p.role = 'validation' AND h.objective IS NOT NULL
ORDER BY h.finished_at, c.ordinal, h.epoch;

-- name: find_run_merges
-- The merged epochs of a run.
SELECT
    m.candidate_id,
    m.epoch
FROM mmdb.merge AS m
INNER JOIN mmdb.candidate AS c ON m.candidate_id = c.candidate_id
WHERE c.run_id = %(run_id)s::bigint;

-- name: find_new_candidates
-- Candidates of a run from an ordinal on, in order.
SELECT
    c.candidate_id,
    c.ordinal,
    c.config::text AS config,
    c.parent_id,
    c.parent_state,
    p.ordinal AS parent
FROM mmdb.candidate AS c
LEFT JOIN mmdb.candidate AS p ON c.parent_id = p.candidate_id
WHERE c.run_id = %(run_id)s::bigint AND c.ordinal >= %(ordinal)s::integer
ORDER BY c.ordinal;

-- name: find_parent_epoch
-- The epoch after which a candidate had a state that is kept.
SELECT k.epoch AS parent_epoch
FROM mmdb.checkpoint AS k
WHERE k.candidate_id = %(candidate_id)s::bigint AND k.state_hash = %(state_hash)s::bytea;

-- name: find_candidate_requests
-- What people asked of a run's candidates since a request, in order.
SELECT
    q.request_id,
    q.request,
    c.ordinal AS candidate
FROM mmdb.candidate_request AS q
INNER JOIN mmdb.candidate AS c ON q.candidate_id = c.candidate_id
WHERE c.run_id = %(run_id)s::bigint AND q.request_id > %(after)s::bigint
ORDER BY q.request_id;

-- name: find_news
-- Of some runs, the last request of each and of its candidates, and its last candidate: what their driver looks for.
SELECT
    r.run_id,
    (
        SELECT max(q.request_id) FROM mmdb.run_request AS q
        WHERE q.run_id = r.run_id
    ) AS run_request,
    (
        SELECT max(q.request_id)
        FROM mmdb.candidate_request AS q
        INNER JOIN mmdb.candidate AS c ON q.candidate_id = c.candidate_id
        WHERE c.run_id = r.run_id
    ) AS candidate_request,
    (
        SELECT max(c.ordinal) FROM mmdb.candidate AS c
        WHERE c.run_id = r.run_id
    ) AS candidate
FROM mmdb.run AS r
WHERE r.run_id = any(%(run_ids)s::bigint[]);

-- name: add_candidate_request
-- Ask something of a candidate.
INSERT INTO mmdb.candidate_request (candidate_id, request)
VALUES (%(candidate_id)s::bigint, %(request)s::text)
RETURNING request_id;

-- name: find_candidates
-- The candidates of a run, with the error of those that failed.
SELECT
    c.candidate_id,
    c.ordinal,
    c.config::text AS config,
    c.parent_id,
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
INSERT INTO mmdb.run_event (run_id, event, workers, message)
VALUES (%(run_id)s::bigint, %(event)s::text, %(workers)s::integer, %(message)s::text);

-- name: find_forecast
-- What the last plan of a run says of how it is trained; its hops without merges.
SELECT
    e.plan_id,
    e.t_p10,
    e.t_p50,
    e.t_p90,
    CASE WHEN e.strategy = 'model_average' THEN e.hops - p.candidates * r.epochs ELSE e.hops END AS hops
FROM mmdb.plan AS p
INNER JOIN mmdb.run AS r ON p.run_id = r.run_id
INNER JOIN mmdb.estimate AS e ON p.plan_id = e.plan_id
WHERE p.run_id = %(run_id)s::bigint AND NOT p.simulated AND e.chosen
ORDER BY p.plan_id DESC
LIMIT 1;

-- name: add_candidate_event
-- Note what ended a candidate early.
INSERT INTO mmdb.candidate_event (candidate_id, event, sqlstate, message, trace)
VALUES (%(candidate_id)s::bigint, %(event)s::text, %(sqlstate)s::text, %(message)s::text, %(trace)s::text);

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

-- name: find_best
-- The best candidate of a run by its leaderboard.
SELECT
    r.dataset_id,
    l.config::text AS config,
    l.objective,
    l.accuracy,
    l.rmse
FROM mmdb.leaderboard AS l
INNER JOIN mmdb.candidate AS c ON l.candidate_id = c.candidate_id
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
WHERE l.run = %(run)s::text AND l.rank = 1;

-- name: find_contenders
-- The candidates at the head of a run's leaderboard that were validated, the best first.
SELECT l.candidate_id
FROM mmdb.leaderboard AS l
WHERE l.run = %(run)s::text AND l.error IS NULL AND l.objective IS NOT NULL
ORDER BY l.rank
LIMIT %(most)s::bigint;

-- name: find_means
-- The versions of a model that are the mean of a candidate and others.
SELECT
    m.model_id,
    m.name,
    m.version
FROM mmdb.model AS m
WHERE
    m.name = %(name)s::text
    AND m.candidate_id = %(candidate_id)s::bigint
    AND m.calibration IS NULL
    AND m.dropped_at IS NULL
    AND EXISTS (
        SELECT 1 FROM mmdb.model_member AS k
        WHERE m.model_id = k.model_id
    )
ORDER BY m.version DESC;

-- name: find_trained
-- The best candidate of a run that was trained to its end, and saved.
SELECT l.candidate_id
FROM mmdb.leaderboard AS l
WHERE
    l.run = %(name)s::text AND l.error IS NULL
    AND (
        SELECT count(*) > 0
        FROM mmdb.model AS m
        INNER JOIN mmdb.candidate AS c ON m.candidate_id = c.candidate_id
        INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
        WHERE r.name = %(name)s::text AND r.dropped_at IS NULL
    )
    -- One that is saved by hand while others train is not what the run came to.
    AND (
        SELECT count(*) = 0
        FROM mmdb.candidate_overview AS o
        WHERE o.run = %(name)s::text AND o.status = 'training'
    )
ORDER BY l.rank
LIMIT 1;

-- name: note_finished
-- Note that a run is finished, once.
INSERT INTO mmdb.run_event (run_id, event, workers)
SELECT
    %(run_id)s::bigint AS run_id,
    'finished' AS event,
    0 AS workers
WHERE NOT EXISTS (
    SELECT 1 FROM mmdb.run_event AS e
    WHERE e.run_id = %(run_id)s::bigint
);
