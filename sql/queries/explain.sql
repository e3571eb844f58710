-- name: find_run
-- A run with what its candidates are built from.
SELECT
    r.run_id,
    r.name,
    r.epochs,
    r.seed AS run_seed,
    r.strategy,
    r.warm_start,
    r.architecture::text AS architecture,
    r.search::text AS search,
    r.options::text AS options,
    d.name AS dataset,
    d.dataset_id,
    d.dropped_at IS NOT NULL AS dropped,
    (
        SELECT count(*) FROM mmdb.run_event AS e
        WHERE e.run_id = r.run_id AND e.event = 'finished'
    ) > 0 AS finished
FROM mmdb.run AS r
INNER JOIN mmdb.dataset AS d ON r.dataset_id = d.dataset_id
WHERE r.name = %(name)s::text;

-- name: find_candidates
-- The candidates of a run that have not failed.
SELECT
    c.ordinal,
    c.config::text AS config,
    c.architecture_hash
FROM mmdb.candidate AS c
WHERE
    c.run_id = %(run_id)s::bigint
    AND NOT EXISTS (SELECT 1 FROM mmdb.candidate_event AS e WHERE e.candidate_id = c.candidate_id)
ORDER BY c.ordinal;

-- name: find_measured
-- Hops that candidates with the architectures of a run have done on a node, the last ones first.
SELECT
    c.architecture_hash,
    c.config::text AS config,
    p.role,
    h.row_count,
    h.steps,
    h.read_s,
    h.load_s,
    h.compute_s,
    h.total_s,
    h.state_bytes,
    h.worker,
    c.run_id,
    extract(EPOCH FROM h.started_at)::double precision AS started,
    extract(EPOCH FROM h.finished_at)::double precision AS finished,
    s.workers
FROM mmdb.hop AS h
INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id
INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
LEFT JOIN (
    SELECT
        e.run_id,
        max(e.workers) AS workers
    FROM mmdb.run_event AS e
    WHERE e.event = 'started'
    GROUP BY e.run_id
) AS s ON c.run_id = s.run_id
WHERE
    p.dataset_id = %(dataset_id)s::bigint
    AND h.node = %(node)s::text
    AND h.device = %(device)s::text
    AND h.group_size IS NULL
    AND c.architecture_hash IN (
        SELECT o.architecture_hash FROM mmdb.candidate AS o
        WHERE o.run_id = %(run_id)s::bigint
    )
ORDER BY h.finished_at DESC
LIMIT 4000;

-- name: add_plan
-- Keep what a plan was asked.
INSERT INTO mmdb.plan (run_id, candidates, measured, options, notes, simulated, assumed)
VALUES (
    %(run_id)s::bigint, %(candidates)s::integer, %(measured)s::integer, %(options)s::jsonb, %(notes)s::jsonb,
    %(simulated)s::boolean, %(assumed)s::boolean
)
RETURNING plan_id;

-- name: add_estimate
-- Keep what a plan says of one way of training.
INSERT INTO mmdb.estimate (
    plan_id, rank, strategy, workers, group_size, partitions, batch_size, knobs, chosen,
    t_p10, t_p50, t_p90, lower_bound,
    compute_s, read_s, hop_s, communication_s, validation_s, idle_s,
    bytes_moved, peak_memory, hops, feasible, why_not, executed
)
VALUES (
    %(plan_id)s::bigint, %(rank)s::integer, %(strategy)s::text, %(workers)s::integer, %(group_size)s::integer,
    %(partitions)s::integer, %(batch_size)s::integer, %(knobs)s::jsonb, %(chosen)s::boolean,
    %(t_p10)s::double precision, %(t_p50)s::double precision, %(t_p90)s::double precision,
    %(lower_bound)s::double precision, %(compute_s)s::double precision, %(read_s)s::double precision,
    %(hop_s)s::double precision, %(communication_s)s::double precision, %(validation_s)s::double precision,
    %(idle_s)s::double precision, %(bytes_moved)s::bigint, %(peak_memory)s::bigint, %(hops)s::bigint,
    %(feasible)s::boolean, %(why_not)s::text, %(executed)s::boolean
);

-- name: find_estimates
-- What a plan says, the best first.
SELECT
    e.rank,
    e.strategy,
    e.workers,
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
    e.feasible,
    e.why_not,
    e.executed,
    p.simulated,
    p.assumed,
    e.chosen,
    e.group_size,
    e.knobs::text AS knobs,
    p.notes::text AS notes
FROM mmdb.estimate AS e
INNER JOIN mmdb.plan AS p ON e.plan_id = p.plan_id
WHERE e.plan_id = %(plan_id)s::bigint
ORDER BY e.rank;

-- name: find_outcome
-- What became of a run that was trained, beside what its last plan had said.
SELECT
    o.plan_id,
    o.rank,
    o.strategy,
    o.workers,
    o.group_size,
    o.actual_s,
    o.actual_compute_s,
    o.actual_read_s,
    o.actual_hop_s,
    o.actual_validation_s,
    o.actual_idle_s
FROM mmdb.plan_outcome AS o
WHERE o.run = %(name)s::text;
