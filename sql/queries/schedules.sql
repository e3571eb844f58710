-- name: find_role
-- The role that this session acts as, and whether it may log in.
SELECT
    r.rolname::text AS role,
    r.rolcanlogin AS logs_in
FROM pg_catalog.pg_roles AS r
WHERE r.rolname = coalesce(nullif(current_setting('role'), 'none'), session_user);

-- name: find_login
-- The role that this session is logged in as.
SELECT session_user::text AS role;

-- name: find_path
-- Where this session looks up names.
SELECT current_setting('search_path') AS search_path;

-- name: use_path
-- Look up names there for the rest of the transaction, or of the session.
SELECT set_config('search_path', %(search_path)s::text, %(is_local)s::boolean);

-- name: find_moment
-- A moment, in seconds since 1970.
SELECT extract(EPOCH FROM m.moment)::double precision AS seconds
FROM (SELECT %(moment)s::timestamptz AS moment) AS m;

-- name: find_now
-- This moment of the server's clock, in seconds since 1970.
SELECT extract(EPOCH FROM clock_timestamp())::double precision AS seconds;

-- name: lock_schedule
-- Lock a schedule for the rest of the session, or say that it is locked.
SELECT pg_try_advisory_lock(1835889767, %(key)s::integer) AS locked;

-- name: unlock_schedule
-- Release a schedule's lock.
SELECT pg_advisory_unlock(1835889767, %(key)s::integer);

-- name: add_schedule
-- Store a schedule, unless its name is taken.
INSERT INTO mmdb.schedule (name, statement, search_path, every_s, starts_at, is_outside)
VALUES (
    %(name)s::text,
    %(statement)s::text,
    %(search_path)s::text,
    %(every_s)s::double precision,
    to_timestamp(%(starts_s)s::double precision),
    %(is_outside)s::boolean
)
ON CONFLICT (name) DO NOTHING
RETURNING schedule_id;

-- name: find_schedule
-- A schedule that this role may drop.
SELECT s.schedule_id
FROM mmdb.schedule AS s
WHERE s.name = %(name)s::text;

-- name: delete_runs
-- Delete the runs of a schedule.
DELETE FROM mmdb.schedule_run
WHERE schedule_id = %(schedule_id)s::bigint;

-- name: delete_schedule
-- Delete a schedule, and say so.
DELETE FROM mmdb.schedule
WHERE schedule_id = %(schedule_id)s::bigint
RETURNING schedule_id;

-- name: find_schedules
-- A role's schedules, or one of them, each with its last run.
SELECT
    s.schedule_id,
    s.name,
    s.statement,
    s.search_path,
    s.every_s,
    extract(EPOCH FROM s.starts_at)::double precision AS starts_s,
    s.is_outside,
    extract(EPOCH FROM r.due_at)::double precision AS due_s,
    r.outcome,
    r.failures,
    extract(EPOCH FROM r.retry_at)::double precision AS retry_s
FROM mmdb.schedule AS s
LEFT JOIN (
    SELECT
        l.schedule_id,
        max(l.due_at) AS due_at
    FROM mmdb.schedule_run AS l
    GROUP BY l.schedule_id
) AS latest ON s.schedule_id = latest.schedule_id
LEFT JOIN mmdb.schedule_run AS r ON latest.schedule_id = r.schedule_id AND latest.due_at = r.due_at
WHERE
    (s.owner IS NULL OR s.owner = %(role)s::text)
    AND (%(schedule_id)s::bigint IS NULL OR s.schedule_id = %(schedule_id)s::bigint)
ORDER BY s.schedule_id;

-- name: begin_run
-- Begin a run of a due time, or try it again, unless it is done.
INSERT INTO mmdb.schedule_run (schedule_id, due_at, failures, retry_at, started_at)
VALUES (
    %(schedule_id)s::bigint,
    to_timestamp(%(due_s)s::double precision),
    %(failures)s::integer,
    to_timestamp(%(retry_s)s::double precision),
    to_timestamp(%(now_s)s::double precision)
)
ON CONFLICT (schedule_id, due_at) DO UPDATE
    SET
        tries = schedule_run.tries + 1,
        failures = excluded.failures,
        retry_at = excluded.retry_at,
        started_at = excluded.started_at,
        ended_at = NULL,
        outcome = NULL,
        sqlstate = NULL,
        message = NULL
    WHERE schedule_run.outcome IS NULL OR schedule_run.outcome <> 'done'
RETURNING schedule_run_id, tries;

-- name: finish_run
-- Write how a try of a run ended, unless that stands there or another try has begun.
UPDATE mmdb.schedule_run
SET
    outcome = %(outcome)s::text,
    ended_at = to_timestamp(%(now_s)s::double precision),
    failures = %(failures)s::integer,
    retry_at = to_timestamp(%(retry_s)s::double precision),
    sqlstate = %(sqlstate)s::text,
    message = %(message)s::text
WHERE schedule_run_id = %(schedule_run_id)s::bigint AND tries = %(tries)s::integer AND outcome IS NULL
RETURNING schedule_run_id;
