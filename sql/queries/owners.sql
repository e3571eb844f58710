-- name: find_team
-- For whom new rows are made in this session, as the columns `owner` have it; empty for the role itself.
SELECT coalesce(current_setting('mmdb.team', TRUE), '') AS team;

-- name: act_for
-- Make new rows of the transaction for a team.
SELECT set_config('mmdb.team', %(team)s::text, TRUE);

-- name: find_owner
-- Whose a candidate's run is.
SELECT coalesce(r.owner, 'public') AS owner
FROM mmdb.candidate AS c
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
WHERE c.candidate_id = %(candidate_id)s::bigint;

-- name: find_foreign
-- A run that this role may read and not change, as it is another team's.
SELECT r.owner
FROM mmdb.run AS r
WHERE
    r.name = %(run)s::text
    AND EXISTS (
        SELECT 1 FROM mmdb.migration AS m
        WHERE m.number = -2
    )
    AND coalesce(r.owner, 'public') <> 'public'
    AND NOT coalesce(pg_has_role(to_regrole(quote_ident(r.owner)), 'MEMBER'), FALSE)
    AND NOT pg_has_role('mmdb_admin', 'USAGE')
    AND NOT pg_has_role('mmdb_worker', 'USAGE');

-- name: find_readable
-- Those of some models that the team of this session may read; all of them where there are no teams.
WITH team (role) AS (
    SELECT to_regrole(quote_ident(nullif(current_setting('mmdb.team', TRUE), '')))::oid
)

SELECT m.model_id
FROM mmdb.model AS m
CROSS JOIN team AS t
WHERE
    m.model_id = any(%(model_ids)s::bigint[])
    AND (
        nullif(current_setting('mmdb.team', TRUE), '') IS NULL
        OR NOT EXISTS (
            SELECT 1 FROM mmdb.migration AS g
            WHERE g.number = -2
        )
        OR coalesce(m.owner, 'public') = 'public'
        OR pg_has_role(t.role, to_regrole(quote_ident(m.owner)), 'MEMBER')
        OR EXISTS (
            SELECT 1 FROM mmdb.share AS s
            WHERE
                s.kind = 'model' AND s.object_id = m.model_id
                AND (s.role = 'public' OR pg_has_role(t.role, to_regrole(quote_ident(s.role)), 'MEMBER'))
        )
    );

-- name: find_limits
-- The limits of whom new rows are made for; none for those who see all teams.
SELECT
    o.owner,
    l.bytes
FROM (SELECT coalesce(nullif(current_setting('mmdb.team', TRUE), ''), current_user)::text AS owner) AS o
INNER JOIN mmdb.role_limit AS l ON l.role IN (o.owner, 'public')
WHERE NOT pg_has_role('mmdb_admin', 'USAGE') AND NOT pg_has_role('mmdb_worker', 'USAGE')
ORDER BY l.role <> o.owner
LIMIT 1;

-- name: measure_bytes
-- Bytes that an owner keeps: blocks of datasets and what saving its models added.
SELECT (
    coalesce((
        SELECT sum(d.byte_count) FROM mmdb.dataset AS d
        WHERE d.owner = %(owner)s::text AND d.dropped_at IS NULL
    ), 0)
    + coalesce((
        SELECT sum(m.stored_bytes) FROM mmdb.model AS m
        WHERE m.owner = %(owner)s::text AND m.dropped_at IS NULL
    ), 0)
)::bigint AS bytes;

-- name: find_run_limits
-- The limits of a run's owner.
SELECT
    r.owner,
    l.workers,
    l.bytes,
    l.seconds
FROM mmdb.run AS r
INNER JOIN mmdb.role_limit AS l ON l.role IN (r.owner, 'public')
WHERE
    r.run_id = %(run_id)s::bigint
    AND NOT coalesce(pg_has_role(to_regrole(quote_ident(r.owner)), 'mmdb_worker', 'USAGE'), FALSE)
ORDER BY l.role = 'public'
LIMIT 1;

-- name: measure_workers
-- Workers of an owner's other runs that are being trained.
SELECT coalesce(sum(e.workers), 0)::bigint AS workers
FROM mmdb.run AS r
CROSS JOIN
    LATERAL (
        SELECT
            v.event,
            v.workers
        FROM mmdb.run_event AS v
        WHERE v.run_id = r.run_id
        ORDER BY v.happened_at DESC
        LIMIT 1
    ) AS e
WHERE
    r.owner = %(owner)s::text AND r.run_id <> %(run_id)s::bigint AND e.event = 'started'
    -- A driver that died wrote no end, and holds no lock.
    AND EXISTS (
        SELECT 1 FROM pg_catalog.pg_locks AS k
        WHERE
            k.locktype = 'advisory' AND k.classid = 1835889763 AND k.objid = mod(r.run_id, 2147483648)::oid
            AND k.database = (
                SELECT d.oid FROM pg_catalog.pg_database AS d
                WHERE d.datname = current_database()
            )
    );

-- name: measure_seconds
-- Seconds of hops of an owner's runs within 24 hours.
SELECT coalesce(sum(h.total_s), 0)::double precision AS seconds
FROM mmdb.run AS r
INNER JOIN mmdb.candidate AS c ON r.run_id = c.run_id
INNER JOIN mmdb.hop AS h ON c.candidate_id = h.candidate_id
WHERE r.owner = %(owner)s::text AND h.finished_at > now() - interval '24 hours';

-- name: share_model
-- Let a role read a model, or no longer.
SELECT mmdb.share_model(%(name)s::text, %(role)s::text, %(shared)s::boolean) AS changed;

-- name: share_dataset
-- Let a role read a dataset, or no longer.
SELECT mmdb.share_dataset(%(name)s::text, %(role)s::text, %(shared)s::boolean) AS changed;

-- name: share_run
-- Let a role see a run, or no longer.
SELECT mmdb.share_run(%(name)s::text, %(role)s::text, %(shared)s::boolean) AS changed;
