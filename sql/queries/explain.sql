-- name: find_run
-- A run with what its candidates are built from.
SELECT
    r.run_id,
    r.name,
    r.epochs,
    r.seed AS run_seed,
    r.strategy AS asked_strategy,
    coalesce(s.strategy, r.strategy) AS strategy,
    s.group_size,
    s.workers,
    r.metric,
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
LEFT JOIN mmdb.run_strategy AS s ON r.run_id = s.run_id
WHERE r.name = %(name)s::text;

-- name: find_candidates
-- The candidates of a run that have not failed, and that nobody has stopped.
SELECT
    c.candidate_id,
    c.ordinal,
    c.config::text AS config,
    c.architecture_hash
FROM mmdb.candidate AS c
WHERE
    c.run_id = %(run_id)s::bigint
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.candidate_event AS e
        WHERE e.candidate_id = c.candidate_id
    )
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.candidate_request AS q
        WHERE
            q.candidate_id = c.candidate_id
            AND q.request = 'stop'
            AND NOT EXISTS (
                SELECT 1 FROM mmdb.candidate_request AS l
                WHERE l.candidate_id = q.candidate_id AND l.request_id > q.request_id
            )
    )
ORDER BY c.ordinal;

-- name: find_progress
-- How far a run is: its hops that were done, and its candidates that may train and have not begun.
WITH done AS (
    SELECT
        h.candidate_id,
        count(*) AS hops
    FROM mmdb.hop AS h
    INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
    WHERE c.run_id = %(run_id)s::bigint
    GROUP BY h.candidate_id
),

member AS (
    SELECT
        c.candidate_id,
        coalesce(d.hops, 0) AS hops,
        coalesce(v.failures, 0) > 0 OR coalesce(q.stopped, 0) > coalesce(q.resumed, 0) AS is_out
    FROM mmdb.candidate AS c
    LEFT JOIN done AS d ON c.candidate_id = d.candidate_id
    LEFT JOIN (
        SELECT
            e.candidate_id,
            count(*) AS failures
        FROM mmdb.candidate_event AS e
        GROUP BY e.candidate_id
    ) AS v ON c.candidate_id = v.candidate_id
    LEFT JOIN (
        SELECT
            r.candidate_id,
            max(r.request_id) FILTER (WHERE r.request = 'stop') AS stopped,
            max(r.request_id) FILTER (WHERE r.request = 'resume') AS resumed
        FROM mmdb.candidate_request AS r
        GROUP BY r.candidate_id
    ) AS q ON c.candidate_id = q.candidate_id
    WHERE c.run_id = %(run_id)s::bigint
)

SELECT
    count(*) AS candidates,
    count(*) FILTER (WHERE m.is_out) AS left_out,
    count(*) FILTER (WHERE NOT m.is_out AND m.hops = 0) AS untouched,
    coalesce(sum(m.hops), 0)::bigint AS hops
FROM member AS m;

-- name: find_measured
-- Hops that candidates with the architectures of a run have done on a node as it is, the last ones first.
SELECT
    c.architecture_hash,
    c.config::text AS config,
    h.candidate_id,
    h.part_id,
    h.epoch,
    h.ordinal,
    h.group_size,
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
    CASE
        WHEN coalesce(k.strategy, r.strategy) IN ('model_average', 'data_parallel') THEN s.workers
        WHEN s.workers < s.candidates THEN s.workers
        ELSE s.candidates
    END AS workers,
    s.candidates,
    s.starts,
    r.options ->> 'stack' AS stack,
    coalesce(k.strategy, CASE WHEN r.strategy = 'auto' THEN 'mop' ELSE r.strategy END) AS strategy,
    u.choice AS feature_choice
FROM mmdb.hop AS h
INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id
INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
LEFT JOIN mmdb.run_strategy AS k ON c.run_id = k.run_id
LEFT JOIN mmdb.candidate_feature AS f ON c.candidate_id = f.candidate_id
LEFT JOIN mmdb.run_feature AS u ON f.run_id = u.run_id AND f.feature_id = u.feature_id
LEFT JOIN (
    SELECT
        e.run_id,
        count(*) AS starts,
        max(e.workers) AS workers,
        max(n.candidates) AS candidates
    FROM mmdb.run_event AS e
    INNER JOIN (
        SELECT
            d.run_id,
            count(*) AS candidates
        FROM mmdb.candidate AS d
        GROUP BY d.run_id
    ) AS n ON e.run_id = n.run_id
    WHERE e.event = 'started'
    GROUP BY e.run_id
) AS s ON c.run_id = s.run_id
WHERE
    p.dataset_id = %(dataset_id)s::bigint
    AND h.node = %(node)s::text
    AND h.device = %(device)s::text
    AND h.environment LIKE %(environment)s::text
    AND c.architecture_hash IN (
        SELECT o.architecture_hash FROM mmdb.candidate AS o
        WHERE o.run_id = %(run_id)s::bigint
    )
ORDER BY h.finished_at DESC
LIMIT %(most)s::integer;

-- name: find_turns
-- What the last runs' workers did on a node as it is: from when to when, and in how many hops; runs that were
-- trained by hopping, and were not interrupted. Between hops nothing but hops was prepared: no features were made.
SELECT
    s.run_id,
    s.workers,
    h.worker,
    count(*) AS hops,
    sum(h.total_s) AS busy_s,
    extract(EPOCH FROM min(h.started_at))::double precision AS began,
    extract(EPOCH FROM max(h.finished_at))::double precision AS ended
FROM (
    SELECT
        e.run_id,
        max(e.workers) AS workers
    FROM mmdb.run_event AS e
    INNER JOIN mmdb.run AS r ON e.run_id = r.run_id
    LEFT JOIN mmdb.run_strategy AS k ON e.run_id = k.run_id
    WHERE
        e.event = 'started'
        AND coalesce(k.strategy, CASE WHEN r.strategy = 'auto' THEN 'mop' ELSE r.strategy END) IN ('mop', 'task')
        AND NOT EXISTS (
            SELECT 1 FROM mmdb.run_feature AS u
            WHERE u.run_id = e.run_id AND u.choice IN ('stored', 'memory')
        )
    GROUP BY e.run_id
    HAVING count(*) = 1
    ORDER BY e.run_id DESC
    LIMIT %(most)s::integer
) AS s
INNER JOIN mmdb.candidate AS c ON s.run_id = c.run_id
INNER JOIN mmdb.hop AS h ON c.candidate_id = h.candidate_id
WHERE
    h.node = %(node)s::text
    AND h.device = %(device)s::text
    AND h.environment LIKE %(environment)s::text
GROUP BY s.run_id, s.workers, h.worker
ORDER BY s.run_id, h.worker;

-- name: find_paces
-- What steps of the last runs' candidates took on a node as it is, and how many workers were busy.
SELECT
    c.run_id,
    c.architecture_hash,
    c.config::text AS config,
    g.dataset_id,
    g.workers,
    g.row_count,
    g.steps,
    g.compute_s,
    g.hops,
    q.options ->> 'stack' AS stack,
    u.choice AS feature_choice
FROM (
    SELECT
        h.candidate_id,
        max(s.dataset_id) AS dataset_id,
        max(CASE WHEN s.workers < s.candidates THEN s.workers ELSE s.candidates END) AS workers,
        sum(h.row_count)::double precision AS row_count,
        sum(h.steps)::double precision AS steps,
        sum(h.compute_s) AS compute_s,
        count(*) AS hops
    FROM (
        SELECT
            e.run_id,
            max(r.dataset_id) AS dataset_id,
            max(e.workers) AS workers,
            max(n.candidates) AS candidates
        FROM mmdb.run_event AS e
        INNER JOIN mmdb.run AS r ON e.run_id = r.run_id
        INNER JOIN (
            SELECT
                d.run_id,
                count(*) AS candidates
            FROM mmdb.candidate AS d
            GROUP BY d.run_id
        ) AS n ON e.run_id = n.run_id
        LEFT JOIN mmdb.run_strategy AS k ON e.run_id = k.run_id
        WHERE
            e.event = 'started'
            AND coalesce(k.strategy, CASE WHEN r.strategy = 'auto' THEN 'mop' ELSE r.strategy END) IN ('mop', 'task')
        GROUP BY e.run_id
        HAVING count(*) = 1
        ORDER BY e.run_id DESC
        LIMIT %(most)s::integer
    ) AS s
    INNER JOIN mmdb.candidate AS m ON s.run_id = m.run_id
    INNER JOIN mmdb.hop AS h ON m.candidate_id = h.candidate_id
    WHERE
        h.steps > 0
        AND h.compute_s > 0
        AND h.node = %(node)s::text
        AND h.device = %(device)s::text
        AND h.environment LIKE %(environment)s::text
    GROUP BY h.candidate_id
) AS g
INNER JOIN mmdb.candidate AS c ON g.candidate_id = c.candidate_id
INNER JOIN mmdb.run AS q ON c.run_id = q.run_id
LEFT JOIN mmdb.candidate_feature AS f ON c.candidate_id = f.candidate_id
LEFT JOIN mmdb.run_feature AS u ON f.run_id = u.run_id AND f.feature_id = u.feature_id;

-- name: find_timed
-- Steps of candidates with the architectures of a run that plans have measured on a node, as hops.
SELECT
    c.run_id,
    c.architecture_hash,
    c.config::text AS config,
    'steps' AS role,
    t.row_count,
    t.steps,
    0::double precision AS read_s,
    0::double precision AS load_s,
    t.seconds AS compute_s,
    t.seconds AS total_s,
    t.state_bytes,
    NULL::integer AS group_size,
    1 AS workers,
    r.options ->> 'stack' AS stack,
    u.choice AS feature_choice
FROM mmdb.step_time AS t
INNER JOIN mmdb.candidate AS c ON t.candidate_id = c.candidate_id
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
LEFT JOIN mmdb.candidate_feature AS f ON c.candidate_id = f.candidate_id
LEFT JOIN mmdb.run_feature AS u ON f.run_id = u.run_id AND f.feature_id = u.feature_id
WHERE
    r.dataset_id = %(dataset_id)s::bigint
    AND t.node = %(node)s::text
    AND t.device = %(device)s::text
    AND t.environment LIKE %(environment)s::text
    AND c.architecture_hash IN (
        SELECT o.architecture_hash FROM mmdb.candidate AS o
        WHERE o.run_id = %(run_id)s::bigint
    )
ORDER BY t.measured_at DESC
LIMIT 1000;

-- name: find_errors
-- What the last runs took on a node as it is, over what was said of them before they began, where all candidates
-- had been measured and everything was done as it was planned.
WITH foreseen AS (
    SELECT
        p.run_id,
        max(b.workers) AS workers,
        max(p.plan_id) AS plan_id
    FROM mmdb.plan AS p
    INNER JOIN (
        SELECT
            e.run_id,
            max(e.workers) AS workers,
            min(e.happened_at) FILTER (WHERE e.event = 'started') AS started_at
        FROM mmdb.run_event AS e
        GROUP BY e.run_id
        HAVING
            count(*) FILTER (WHERE e.event = 'started') = 1
            AND count(*) FILTER (WHERE e.event = 'finished') = 1
    ) AS b ON p.run_id = b.run_id
    WHERE NOT p.simulated AND NOT p.assumed AND p.measured = p.candidates AND p.planned_at <= b.started_at
    GROUP BY p.run_id
    ORDER BY max(p.plan_id) DESC
    LIMIT %(most)s::integer
),

visit AS (
    SELECT
        f.run_id,
        h.started_at,
        h.finished_at
    FROM foreseen AS f
    INNER JOIN mmdb.candidate AS c ON f.run_id = c.run_id
    INNER JOIN mmdb.hop AS h ON c.candidate_id = h.candidate_id
    WHERE
        h.node = %(node)s::text
        AND h.device = %(device)s::text
        AND h.environment LIKE %(environment)s::text
    UNION ALL
    SELECT
        f.run_id,
        m.started_at,
        m.finished_at
    FROM foreseen AS f
    INNER JOIN mmdb.candidate AS c ON f.run_id = c.run_id
    INNER JOIN mmdb.merge AS m ON c.candidate_id = m.candidate_id
),

spent AS (
    SELECT
        v.run_id,
        count(*) AS hops,
        extract(EPOCH FROM max(v.finished_at)) - extract(EPOCH FROM min(v.started_at)) AS seconds
    FROM visit AS v
    GROUP BY v.run_id
)

SELECT
    e.strategy,
    s.seconds::double precision AS took_s,
    e.t_p50 AS said_s
FROM spent AS s
INNER JOIN foreseen AS f ON s.run_id = f.run_id
INNER JOIN mmdb.estimate AS e ON f.plan_id = e.plan_id
WHERE e.chosen AND e.t_p50 > 0 AND s.seconds > 0 AND e.hops = s.hops AND e.workers <= f.workers
ORDER BY f.plan_id;

-- name: find_reached
-- After how many epochs runs of the same models, on the same rows and by the same metric, had reached a value of it.
SELECT
    r.run_id,
    coalesce(k.strategy, CASE WHEN r.strategy = 'auto' THEN 'mop' ELSE r.strategy END) AS strategy,
    min(
        CASE
            WHEN r.maximize AND h.objective >= %(target)s::double precision THEN h.epoch + 1
            WHEN NOT r.maximize AND h.objective <= %(target)s::double precision THEN h.epoch + 1
        END
    ) AS epochs
FROM mmdb.run AS r
INNER JOIN mmdb.run AS o
    ON r.dataset_id = o.dataset_id AND r.metric = o.metric AND r.maximize = o.maximize
LEFT JOIN mmdb.run_strategy AS k ON r.run_id = k.run_id
INNER JOIN mmdb.candidate AS c ON r.run_id = c.run_id
INNER JOIN mmdb.hop AS h ON c.candidate_id = h.candidate_id
WHERE
    o.run_id = %(run_id)s::bigint
    AND r.dataset_id = %(dataset_id)s::bigint
    AND r.warm_start = 'off'
    AND h.objective IS NOT NULL
    AND c.architecture_hash IN (
        SELECT m.architecture_hash FROM mmdb.candidate AS m
        WHERE m.run_id = %(run_id)s::bigint
    )
GROUP BY r.run_id, coalesce(k.strategy, CASE WHEN r.strategy = 'auto' THEN 'mop' ELSE r.strategy END);

-- name: add_step_time
-- Keep what steps of a candidate took.
INSERT INTO mmdb.step_time (
    candidate_id, node, device, environment, row_count, steps, seconds, state_bytes
)
VALUES (
    %(candidate_id)s::bigint, %(node)s::text, %(device)s::text, %(environment)s::text,
    %(row_count)s::bigint, %(steps)s::integer, %(seconds)s::double precision, %(state_bytes)s::bigint
);

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

-- name: find_last_plan
-- The plan of a run that was made last.
SELECT max(p.plan_id) AS plan_id
FROM mmdb.plan AS p
WHERE p.run_id = %(run_id)s::bigint;

-- name: find_notes
-- What whoever reads a plan should know.
SELECT p.notes::text AS notes
FROM mmdb.plan AS p
WHERE p.plan_id = %(plan_id)s::bigint;

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
    p.candidates,
    p.measured,
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
    o.hops,
    o.actual_hops,
    o.is_comparable,
    o.actual_s,
    o.actual_compute_s,
    o.actual_read_s,
    o.actual_hop_s,
    o.actual_validation_s,
    o.actual_idle_s,
    r.run_id
FROM mmdb.plan_outcome AS o
INNER JOIN mmdb.run AS r ON o.run = r.name
WHERE o.run = %(name)s::text;
