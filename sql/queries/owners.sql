-- name: find_actor
-- For whom new rows are made in this session, as the columns `owner` have it, empty for the role itself; who makes them,
-- and whether that role serves all teams.
SELECT
    coalesce(current_setting('mmdb.team', TRUE), '') AS team,
    mmdb.caller()::text AS caller,
    mmdb.caller_is('mmdb_admin') OR mmdb.caller_is('mmdb_worker') AS serves;

-- name: act_for
-- Make new rows of the transaction for a team.
SELECT set_config('mmdb.team', %(team)s::text, TRUE);

-- name: find_owner
-- Whose a candidate's run is; of what is nobody's, everybody's where this role serves all teams, and else empty.
SELECT
    CASE
        WHEN coalesce(r.owner, 'public') <> 'public' THEN r.owner
        WHEN mmdb.caller_is('mmdb_admin') OR mmdb.caller_is('mmdb_worker') THEN 'public'
        ELSE ''
    END AS owner
FROM mmdb.candidate AS c
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
WHERE c.candidate_id = %(candidate_id)s::bigint;

-- name: find_principal
-- A role for which another may act, as mmdb.new_owner() has it; none if it may not.
SELECT a.rolname::text AS name
FROM pg_catalog.pg_roles AS a
WHERE
    a.rolname = %(owner)s::text
    AND (
        pg_catalog.pg_has_role(%(caller)s::name, a.oid, 'MEMBER')
        OR %(serves)s::boolean AND NOT (a.rolsuper OR pg_catalog.has_schema_privilege(a.oid, 'mmdb', 'CREATE'))
    );

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
    AND NOT coalesce(pg_has_role(mmdb.caller(), to_regrole(quote_ident(r.owner)), 'MEMBER'), FALSE)
    AND NOT mmdb.caller_is('mmdb_admin')
    AND NOT mmdb.caller_is('mmdb_worker');

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

-- name: find_usable
-- Those of some tensors that new rows of this session's team may name: its own, nobody's, and what a model holds that it
-- may read. Whoever serves all teams sees more than that. A row of another team's gets no chunks, so it must have them.
-- Of equal tensors the first is best: one with chunks, then one's own.
WITH team (owner, role) AS (
    SELECT
        o.owner,
        to_regrole(quote_ident(o.owner))::oid
    FROM (SELECT coalesce(nullif(current_setting('mmdb.team', TRUE), ''), mmdb.caller())::text AS owner) AS o
)

SELECT t.tensor_id
FROM mmdb.tensor AS t
CROSS JOIN team AS o
LEFT JOIN mmdb.encoding AS c ON t.tensor_id = c.tensor_id
WHERE
    t.tensor_id = any(%(tensor_ids)s::bigint[])
    AND (
        coalesce(t.owner, '') IN ('', 'public', o.owner)
        OR NOT EXISTS (
            SELECT 1 FROM mmdb.migration AS g
            WHERE g.number = -2
        )
        OR (c.tensor_id IS NOT NULL AND EXISTS (
            SELECT 1
            FROM (
                SELECT h.model_id
                FROM mmdb.manifest_tensor AS e
                INNER JOIN mmdb.model AS h ON e.manifest_id = h.manifest_id
                WHERE e.tensor_id = t.tensor_id
                UNION ALL
                SELECT h.model_id FROM mmdb.model AS h
                WHERE h.pack_id = t.tensor_id
                UNION ALL
                SELECT h.model_id FROM mmdb.model_change AS h
                WHERE h.tensor_id = t.tensor_id
                UNION ALL
                SELECT h.model_id FROM mmdb.recipe_tensor AS h
                WHERE h.tensor_id = t.tensor_id
            ) AS held
            INNER JOIN mmdb.model AS m ON held.model_id = m.model_id
            WHERE
                coalesce(m.owner, 'public') = 'public'
                OR pg_has_role(o.role, to_regrole(quote_ident(m.owner)), 'MEMBER')
                OR EXISTS (
                    SELECT 1 FROM mmdb.share AS s
                    WHERE
                        s.kind = 'model' AND s.object_id = m.model_id
                        AND (s.role = 'public' OR pg_has_role(o.role, to_regrole(quote_ident(s.role)), 'MEMBER'))
                )
        ))
    )
ORDER BY c.tensor_id IS NULL, t.owner IS DISTINCT FROM o.owner, t.tensor_id;

-- name: find_limits
-- The limits of whom new rows are made for, and of the role that makes them, where it has a row of its own: the smaller
-- one holds. None for those who see all teams.
SELECT
    o.owner,
    least(
        (
            SELECT l.bytes FROM mmdb.role_limit AS l
            WHERE l.role IN (o.owner, 'public')
            ORDER BY l.role = 'public'
            LIMIT 1
        ),
        (
            SELECT min(l.bytes) FROM mmdb.role_limit AS l
            WHERE l.role IN (mmdb.caller(), session_user)
        )
    ) AS bytes
FROM (SELECT coalesce(nullif(current_setting('mmdb.team', TRUE), ''), mmdb.caller())::text AS owner) AS o
WHERE NOT mmdb.caller_is('mmdb_admin') AND NOT mmdb.caller_is('mmdb_worker');

-- name: find_memory
-- Bytes that one call may take: the least that the owner has set for all, for whom new rows are made for, and for the role
-- that makes them: a team that it is no member of plays no part. Those who see all teams have the first limit alone.
SELECT
    least(
        (
            SELECT s.value::bigint FROM mmdb.setting AS s
            WHERE s.name = 'memory_bytes' AND s.value ~ '^[0-9]{1,18}$'
        ),
        CASE
            WHEN NOT mmdb.caller_is('mmdb_admin') AND NOT mmdb.caller_is('mmdb_worker') THEN least(
                (
                    SELECT l.memory_bytes FROM mmdb.role_limit AS l
                    WHERE l.role IN (o.owner, 'public')
                    ORDER BY l.role = 'public'
                    LIMIT 1
                ),
                (
                    SELECT min(l.memory_bytes) FROM mmdb.role_limit AS l
                    WHERE l.role IN (mmdb.caller(), session_user)
                )
            )
        END
    ) AS bytes
FROM (
    SELECT
        CASE
            WHEN pg_has_role(mmdb.caller(), to_regrole(quote_ident(t.team)), 'MEMBER') THEN t.team
            ELSE mmdb.caller()::text
        END AS owner
    FROM (SELECT nullif(current_setting('mmdb.team', TRUE), '') AS team) AS t
) AS o;

-- name: find_predict_rows
-- When this statement began, in microseconds from 2000 on, and the rows that it may predict: of the session's user and of
-- the role that it has taken, each by its row or else by public's, the fewer. A setting that the role may change plays no part.
SELECT
    ((extract(EPOCH FROM statement_timestamp()) - 946684800) * 1000000)::bigint AS started,
    (
        SELECT min(l.predict_rows)
        FROM (
            SELECT session_user::text AS role
            UNION
            SELECT coalesce(nullif(current_setting('role'), 'none'), session_user)
        ) AS w
        CROSS JOIN
            LATERAL (
                SELECT k.predict_rows FROM mmdb.role_limit AS k
                WHERE k.role IN (w.role, 'public')
                ORDER BY k.role = 'public'
                LIMIT 1
            ) AS l
        WHERE NOT EXISTS (
            SELECT 1 FROM pg_catalog.pg_namespace AS n
            WHERE n.nspname = 'mmdb' AND (
                pg_has_role(w.role, n.nspowner, 'USAGE')
                OR pg_has_role(w.role, 'mmdb_admin', 'USAGE')
                OR pg_has_role(w.role, 'mmdb_worker', 'USAGE')
            )
        )
    ) AS predict_rows;

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
    AND NOT coalesce(pg_has_role(to_regrole(quote_ident(r.owner)), 'mmdb_admin', 'USAGE'), FALSE)
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
        WHERE v.run_id = r.run_id AND v.event <> 'replanned'
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

-- name: may_replace
-- Whether this session's role may delete a tensor's chunks, so that they can be stored anew.
SELECT pg_has_role('mmdb_admin'::name, 'USAGE'::text) OR has_table_privilege('mmdb.tensor_chunk', 'DELETE') AS may;

-- name: find_others
-- Those of some datasets, runs or models that are another role's: this role is no member of it, no admin, and no owner of mmdb.
SELECT
    o.object_id,
    o.owner
FROM (
    SELECT
        'dataset' AS kind,
        d.dataset_id AS object_id,
        d.owner
    FROM mmdb.dataset AS d
    UNION ALL
    SELECT
        'run' AS kind,
        r.run_id AS object_id,
        r.owner
    FROM mmdb.run AS r
    UNION ALL
    SELECT
        'model' AS kind,
        m.model_id AS object_id,
        m.owner
    FROM mmdb.model AS m
) AS o
WHERE
    o.kind = %(kind)s::text AND o.object_id = any(%(object_ids)s::bigint[])
    AND coalesce(o.owner, 'public') <> 'public'
    AND NOT coalesce(pg_has_role(mmdb.caller(), to_regrole(quote_ident(o.owner)), 'MEMBER'), FALSE)
    AND NOT mmdb.caller_is('mmdb_admin')
    AND NOT has_schema_privilege('mmdb', 'CREATE');

-- name: find_author
-- Whose a dataset's query is, and who asks, where it is not the caller's, everybody's, or of the team that the caller acts for.
SELECT
    d.owner AS author,
    mmdb.caller()::text AS caller
FROM mmdb.dataset AS d
WHERE
    d.dataset_id = %(dataset_id)s::bigint
    AND coalesce(d.owner, 'public') NOT IN ('public', mmdb.caller()::text, coalesce(current_setting('mmdb.team', TRUE), ''));

-- name: find_stranger
-- An author whose query is not the caller's to run: it would read and do whatever the caller may. A superuser, who is a member
-- of every role, runs its own; those of superusers and of the owner of schema mmdb, who may do more than the caller, everybody
-- does. No table of mmdb is in it: Citus sends such a statement on as text in which the view is the table that none may read.
SELECT r.rolname::text AS name
FROM pg_catalog.pg_roles AS r
LEFT JOIN pg_catalog.pg_roles AS a ON a.rolname = %(author)s::text
WHERE
    r.rolname = %(caller)s::text
    AND (r.rolsuper OR a.oid IS NULL OR NOT pg_catalog.pg_has_role(r.oid, a.oid, 'MEMBER'))
    AND (a.oid IS NULL OR NOT (a.rolsuper OR pg_catalog.has_schema_privilege(a.oid, 'mmdb', 'CREATE')));
