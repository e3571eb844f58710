-- name: lock_service
-- Become the leader of this database for the rest of the session, or say that another is.
SELECT pg_try_advisory_lock(1835889765, 0) AS locked;

-- name: lock_worker_name
-- Take the name of a worker process for the rest of the session, or say that another has it.
SELECT pg_try_advisory_lock(1835889766, hashtext(%(name)s::text)) AS locked;

-- name: listen_assignments
-- Hear of assignments that are given or given up.
LISTEN mmdb_assignment;

-- name: listen_outcomes
-- Hear of assignments that are finished.
LISTEN mmdb_outcome;

-- name: add_worker
-- Register a slot.
INSERT INTO mmdb.worker (name, process, node, device, mode)
VALUES (%(name)s::text, %(process)s::text, %(node)s::text, %(device)s::text, %(mode)s::text)
RETURNING worker_id;

-- name: add_beat
-- The first sign of life of a slot.
INSERT INTO mmdb.worker_beat (worker_id) VALUES (%(worker_id)s::bigint);

-- name: beat
-- A sign of life of slots.
UPDATE mmdb.worker_beat SET beat_at = clock_timestamp()
WHERE worker_id = any(%(worker_ids)s::bigint[]);

-- name: stop_workers
-- Give slots up, in order.
UPDATE mmdb.worker_beat SET stopped_at = clock_timestamp()
WHERE worker_id = any(%(worker_ids)s::bigint[]) AND stopped_at IS NULL;

-- name: live_workers
-- The slots that serve, or one of them: not given up, within their lease, and of a process that holds its name.
SELECT
    w.worker_id,
    w.name,
    w.process,
    w.node,
    w.device,
    w.mode
FROM mmdb.worker AS w
INNER JOIN mmdb.worker_beat AS b ON w.worker_id = b.worker_id
WHERE
    (%(worker_id)s::bigint IS NULL OR w.worker_id = %(worker_id)s::bigint)
    AND b.stopped_at IS NULL
    AND b.beat_at > clock_timestamp() - make_interval(secs => %(lease_s)s::double precision)
    AND EXISTS (
        SELECT 1 FROM pg_catalog.pg_locks AS l
        WHERE
            l.locktype = 'advisory'
            AND l.database = (
                SELECT d.oid FROM pg_catalog.pg_database AS d
                WHERE d.datname = current_database()
            )
            AND l.classid = 1835889766
            AND l.objid = (hashtext(w.process)::bigint & 4294967295)::oid
            AND l.objsubid = 2
            AND l.granted
    )
ORDER BY w.worker_id;

-- name: assign
-- Give a slot an order, and wake its process.
WITH given AS (
    INSERT INTO mmdb.assignment (worker_id, candidate_id, epoch, part_id, detail)
    VALUES (
        %(worker_id)s::bigint, %(candidate_id)s::bigint, %(epoch)s::integer, %(part_id)s::bigint,
        %(detail)s::jsonb
    )
    RETURNING assignment_id, worker_id
)

SELECT
    g.assignment_id,
    pg_notify('mmdb_assignment', g.worker_id::text)::text AS notified
FROM given AS g;

-- name: take_assignment
-- Take the oldest assignment of some slots, which no other session can then take.
UPDATE mmdb.assignment SET taken_at = clock_timestamp()
WHERE
    assignment_id = (
        SELECT a.assignment_id
        FROM mmdb.assignment AS a
        WHERE a.worker_id = any(%(worker_ids)s::bigint[]) AND a.taken_at IS NULL AND a.finished_at IS NULL
        ORDER BY a.assignment_id
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    )
RETURNING assignment_id, worker_id, detail::text AS detail;

-- name: finish_assignment
-- Say how an assignment ended, unless it was given up, and wake the leader.
WITH ended AS (
    UPDATE mmdb.assignment
    SET
        finished_at = clock_timestamp(),
        sqlstate = %(sqlstate)s::text,
        message = %(message)s::text,
        hint = %(hint)s::text,
        trace = %(trace)s::text
    WHERE assignment_id = %(assignment_id)s::bigint AND finished_at IS NULL
    RETURNING assignment_id
)

SELECT pg_notify('mmdb_outcome', e.assignment_id::text)::text AS notified
FROM ended AS e;

-- name: give_up
-- End assignments that nobody waits for any more, and wake the slots that may be at work on them.
WITH ended AS (
    UPDATE mmdb.assignment
    SET
        finished_at = clock_timestamp(),
        sqlstate = 'MM410',
        message = %(message)s::text
    WHERE
        finished_at IS NULL
        AND (%(assignment_id)s::bigint IS NULL OR assignment_id = %(assignment_id)s::bigint)
    RETURNING worker_id
)

SELECT pg_notify('mmdb_assignment', e.worker_id::text)::text AS notified
FROM ended AS e;

-- name: find_assignment
-- How an assignment stands.
SELECT
    a.taken_at IS NOT NULL AS taken,
    a.finished_at IS NOT NULL AS finished,
    a.sqlstate,
    a.message,
    a.hint,
    a.trace
FROM mmdb.assignment AS a
WHERE a.assignment_id = %(assignment_id)s::bigint;

-- name: find_given_up
-- Of assignments, those that have ended.
SELECT a.assignment_id
FROM mmdb.assignment AS a
WHERE a.assignment_id = any(%(assignment_ids)s::bigint[]) AND a.finished_at IS NOT NULL;

-- name: add_request
-- Hand a run to the worker processes, or take it back.
INSERT INTO mmdb.run_request (run_id, request, priority)
VALUES (%(run_id)s::bigint, %(request)s::text, %(priority)s::integer)
RETURNING request_id;

-- name: find_requested_run
-- A run with its last request, how that ended, and how far it is.
SELECT
    r.run_id,
    r.name AS run,
    r.options::text AS options,
    q.request_id,
    q.request,
    q.priority,
    o.request_id IS NOT NULL AS ended,
    o.sqlstate,
    o.message,
    p.status,
    p.hops_done::bigint AS hops_done,
    p.hops_total::bigint AS hops_total
FROM mmdb.run AS r
INNER JOIN mmdb.run_progress AS p ON r.name = p.run
LEFT JOIN (
    SELECT
        l.run_id,
        max(l.request_id) AS request_id
    FROM mmdb.run_request AS l
    GROUP BY l.run_id
) AS latest ON r.run_id = latest.run_id
LEFT JOIN mmdb.run_request AS q ON latest.request_id = q.request_id
LEFT JOIN mmdb.run_outcome AS o ON q.request_id = o.request_id
WHERE r.name = %(run)s::text AND r.dropped_at IS NULL;

-- name: find_open_requests
-- The runs that the worker processes are to train, the oldest request first.
SELECT
    q.request_id,
    q.request,
    q.priority,
    r.run_id,
    r.name AS run
FROM mmdb.run_request AS q
INNER JOIN mmdb.run AS r ON q.run_id = r.run_id
LEFT JOIN mmdb.run_outcome AS o ON q.request_id = o.request_id
WHERE
    q.request IN ('submit', 'resume')
    AND o.request_id IS NULL
    AND r.dropped_at IS NULL
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.run_request AS l
        WHERE l.run_id = q.run_id AND l.request_id > q.request_id
    )
ORDER BY q.request_id;

-- name: requests_since
-- What was asked of runs after a request, in order.
SELECT
    q.request_id,
    q.request,
    q.priority,
    r.run_id,
    r.name AS run
FROM mmdb.run_request AS q
INNER JOIN mmdb.run AS r ON q.run_id = r.run_id
WHERE q.request_id > %(request_id)s::bigint
ORDER BY q.request_id;

-- name: last_request
-- The last request of all, 0 if there was none.
SELECT coalesce(max(q.request_id), 0) AS request_id
FROM mmdb.run_request AS q;

-- name: find_priority
-- The priority that a run was last asked for with.
SELECT q.priority
FROM mmdb.run_request AS q
WHERE q.run_id = %(run_id)s::bigint AND q.request IN ('submit', 'resume')
ORDER BY q.request_id DESC
LIMIT 1;

-- name: add_outcome
-- Say how what was asked of a run ended.
INSERT INTO mmdb.run_outcome (request_id, run_id, sqlstate, message)
VALUES (%(request_id)s::bigint, %(run_id)s::bigint, %(sqlstate)s::text, %(message)s::text)
ON CONFLICT (request_id) DO NOTHING;
