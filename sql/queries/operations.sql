-- name: find_roles
-- The roles of mmdb that the server has, and whether each has the one below it.
SELECT
    r.rolname AS name,
    r.rolsuper OR r.rolcreaterole OR r.rolbypassrls AS is_mighty,
    CASE r.rolname
        WHEN 'mmdb_trainer' THEN pg_catalog.pg_has_role(r.oid, v.oid, 'USAGE')
        WHEN 'mmdb_system' THEN pg_catalog.pg_has_role(r.oid, v.oid, 'USAGE')
        WHEN 'mmdb_reader' THEN TRUE
        ELSE pg_catalog.pg_has_role(r.oid, t.oid, 'USAGE')
    END AS has_lower
FROM pg_catalog.pg_roles AS r
LEFT JOIN pg_catalog.pg_roles AS v ON v.rolname = 'mmdb_reader'
LEFT JOIN pg_catalog.pg_roles AS t ON t.rolname = 'mmdb_trainer'
WHERE r.rolname IN ('mmdb_reader', 'mmdb_trainer', 'mmdb_admin', 'mmdb_worker', 'mmdb_system')
ORDER BY r.rolname;

-- name: find_team_policies
-- A row if the database has teams; every login may ask.
SELECT p.polname::text AS name
FROM pg_catalog.pg_policy AS p
WHERE p.polrelid = to_regclass('mmdb.model')::oid AND p.polname = 'team_reads';

-- name: find_open_views
-- The views of a database with teams that do not ask mmdb's functions for the rows of the caller's team.
SELECT c.relname::text AS name
FROM pg_catalog.pg_class AS c
WHERE
    c.relnamespace = 'mmdb'::regnamespace::oid AND c.relkind = 'v'
    AND NOT EXISTS (
        SELECT 1
        FROM pg_catalog.pg_rewrite AS r
        INNER JOIN pg_catalog.pg_depend AS d ON d.classid = 'pg_rewrite'::regclass::oid AND r.oid = d.objid
        INNER JOIN pg_catalog.pg_proc AS f ON d.refclassid = 'pg_proc'::regclass::oid AND d.refobjid = f.oid
        WHERE
            c.oid = r.ev_class AND f.pronamespace = to_regnamespace('mmdb_call')::oid
            AND f.proname::text = 'view_' || c.relname::text AND f.prosecdef
    )
    AND EXISTS (
        SELECT 1
        FROM pg_catalog.pg_rewrite AS r
        INNER JOIN pg_catalog.pg_depend AS d ON d.classid = 'pg_rewrite'::regclass::oid AND r.oid = d.objid
        INNER JOIN pg_catalog.pg_class AS t ON d.refclassid = 'pg_class'::regclass::oid AND d.refobjid = t.oid
        WHERE
            c.oid = r.ev_class AND c.oid <> t.oid
            AND t.relnamespace IN ('mmdb'::regnamespace::oid, to_regnamespace('mmdb_view')::oid)
    )
UNION
SELECT c.relname::text AS name
FROM pg_catalog.pg_class AS c
WHERE
    c.relnamespace = to_regnamespace('mmdb_view')::oid AND c.relkind = 'v'
    AND pg_catalog.pg_get_userbyid(c.relowner)::text <> 'mmdb_system'
ORDER BY name;

-- name: find_table_rights
-- Rights on mmdb's tables that somebody has beside the owner and the roles of mmdb's own functions.
SELECT DISTINCT
    c.relname::text AS name,
    coalesce(g.rolname::text, 'public') AS role
FROM pg_catalog.pg_class AS c
CROSS JOIN LATERAL aclexplode(c.relacl) AS x
LEFT JOIN pg_catalog.pg_roles AS g ON x.grantee = g.oid
WHERE
    c.relnamespace = 'mmdb'::regnamespace::oid AND c.relkind IN ('r', 'p', 'S') AND c.relname::text <> 'migration'
    AND x.grantee <> c.relowner AND coalesce(g.rolname::text, 'public') NOT IN ('mmdb_system', 'mmdb_system_admin')
ORDER BY name, role;

-- name: probe_worker_login
-- Open the workers' login from inside the server, and leave what was found in a setting.
DO LANGUAGE plpython3u $$
import json

def probe(dsn):
    import psycopg
    found = {"error": "", "role": ""}
    try:
        with psycopg.connect(dsn, connect_timeout=5, application_name="mmdb doctor") as login:
            row = login.execute(
                "SELECT current_user, r.rolsuper, pg_catalog.current_database(), s.system_identifier,"
                " (SELECT pg_catalog.pg_has_role(r.oid, t.oid, 'USAGE') FROM pg_catalog.pg_roles AS t"
                " WHERE t.rolname = 'mmdb_trainer'),"
                " (SELECT pg_catalog.pg_has_role(r.oid, t.oid, 'USAGE') FROM pg_catalog.pg_roles AS t"
                " WHERE t.rolname = 'mmdb_worker')"
                " FROM pg_catalog.pg_roles AS r, pg_catalog.pg_control_system() AS s"
                " WHERE r.rolname = current_user"
            ).fetchone()
        here = plpy.execute(
            "SELECT pg_catalog.current_database() AS d, s.system_identifier AS i FROM pg_catalog.pg_control_system() AS s"
        )[0]
        found.update(role=row[0], is_superuser=row[1], is_here=(row[2], row[3]) == (here["d"], here["i"]), is_trainer=row[4], is_worker=row[5])
    except Exception as error:
        found["error"] = str(error).strip()
    return found

rows = plpy.execute("SELECT value FROM mmdb.setting WHERE name = 'worker_dsn'")
found = probe(rows[0]["value"]) if rows else None
plan = plpy.prepare("SELECT pg_catalog.set_config('mmdb.doctor', $1, true)", ["text"])
plan.execute([json.dumps(found)])
$$;

-- name: probe_disk
-- Look at the file systems that the server writes to, and leave what was found in a setting.
DO LANGUAGE plpython3u $$
import json, os, tempfile

def space(folder):
    found = os.statvfs(folder)
    return {"folder": folder, "free": found.f_bavail * found.f_frsize, "total": found.f_blocks * found.f_frsize}

data = plpy.execute("SELECT pg_catalog.current_setting('data_directory') AS folder")[0]["folder"]
spaces = plpy.execute("SELECT pg_catalog.pg_tablespace_location(t.oid) AS folder FROM pg_catalog.pg_tablespace AS t")
folders = [data, os.path.join(data, "pg_wal"), os.environ.get("MMDB_CACHE_DIR") or tempfile.gettempdir()]
folders += [row["folder"] for row in spaces if row["folder"]]
found = {os.stat(folder).st_dev: space(folder) for folder in reversed(folders) if os.path.isdir(folder)}
plan = plpy.prepare("SELECT pg_catalog.set_config('mmdb.doctor', $1, true)", ["text"])
plan.execute([json.dumps(list(found.values()))])
$$;

-- name: find_extensions
-- The extensions that mmdb rests on whose objects are older than their files.
SELECT
    e.extname AS name,
    e.extversion AS installed,
    a.default_version AS available
FROM pg_catalog.pg_extension AS e
INNER JOIN pg_catalog.pg_available_extensions AS a ON e.extname = a.name
WHERE e.extname IN ('plpython3u', 'citus', 'citus_columnar') AND e.extversion <> a.default_version;

-- name: find_broken
-- The indexes of mmdb that are not used, and the constraints that not all rows were held against.
SELECT
    'index' AS kind,
    pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) AS name
FROM pg_catalog.pg_index AS i
INNER JOIN pg_catalog.pg_class AS c ON i.indexrelid = c.oid
INNER JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid
WHERE n.nspname IN ('mmdb', 'pg_toast') AND NOT (i.indisvalid AND i.indisready)
UNION ALL
SELECT
    'constraint' AS kind,
    k.conname::text AS name
FROM pg_catalog.pg_constraint AS k
INNER JOIN pg_catalog.pg_namespace AS n ON k.connamespace = n.oid
WHERE n.nspname = 'mmdb' AND NOT k.convalidated
ORDER BY kind, name;

-- name: find_late_sequences
-- The numbers that a table would give a second time: those of the next rows are taken.
SELECT
    s.table_name,
    s.highest,
    s.next_value
FROM (
    SELECT
        c.relname::text AS table_name,
        coalesce(q.last_value + q.increment_by, q.start_value) AS next_value,
        ((pg_catalog.xpath(
            '/row/highest/text()',
            pg_catalog.query_to_xml(
                'SELECT max(' || pg_catalog.quote_ident(a.attname) || ') AS highest FROM mmdb.' || pg_catalog.quote_ident(c.relname),
                FALSE, TRUE, ''
            )
        ))[1])::text::bigint AS highest
    FROM pg_catalog.pg_attribute AS a
    INNER JOIN pg_catalog.pg_class AS c ON a.attrelid = c.oid
    INNER JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid
    INNER JOIN pg_catalog.pg_depend AS d ON c.oid = d.refobjid AND a.attnum = d.refobjsubid AND d.deptype = 'i'
    INNER JOIN pg_catalog.pg_class AS o ON d.objid = o.oid AND o.relkind = 'S'
    INNER JOIN pg_catalog.pg_sequences AS q ON o.relname = q.sequencename AND q.schemaname = 'mmdb'
    WHERE n.nspname = 'mmdb' AND a.attidentity <> ''
) AS s
WHERE s.highest >= s.next_value
ORDER BY s.table_name;

-- name: find_orphans
-- Rows that others should stand beside, of tables that no foreign key holds together on every engine.
SELECT
    'tensors without all of their chunks' AS what,
    count(*) AS items
FROM mmdb.encoding AS e
LEFT JOIN mmdb.tensor_chunk AS c ON e.tensor_id = c.tensor_id AND c.ordinal = e.chunks - 1
WHERE e.chunks > 0 AND c.tensor_id IS NULL
UNION ALL
SELECT
    'chunks of no tensor' AS what,
    count(*) AS items
FROM mmdb.tensor_chunk AS c
LEFT JOIN mmdb.encoding AS e ON c.tensor_id = e.tensor_id
WHERE c.ordinal = 0 AND e.tensor_id IS NULL
UNION ALL
SELECT
    'partitions without blocks' AS what,
    count(*) AS items
FROM mmdb.partition AS p
INNER JOIN mmdb.dataset AS d ON p.dataset_id = d.dataset_id
LEFT JOIN mmdb.block AS b ON p.part_id = b.part_id AND b.ordinal = 0
WHERE d.dropped_at IS NULL AND p.row_count > 0 AND b.part_id IS NULL
UNION ALL
SELECT
    'blocks of no partition' AS what,
    count(*) AS items
FROM mmdb.block AS b
LEFT JOIN mmdb.partition AS p ON b.part_id = p.part_id
WHERE b.ordinal = 0 AND p.part_id IS NULL
UNION ALL
SELECT
    'checkpoints without chunks' AS what,
    count(*) AS items
FROM mmdb.checkpoint AS c
LEFT JOIN mmdb.checkpoint_chunk AS k
    ON c.part_id = k.part_id AND c.candidate_id = k.candidate_id AND c.state_hash = k.state_hash AND k.ordinal = 0
WHERE k.part_id IS NULL
UNION ALL
SELECT
    'chunks of no checkpoint' AS what,
    count(*) AS items
FROM mmdb.checkpoint_chunk AS k
LEFT JOIN mmdb.checkpoint AS c
    ON k.part_id = c.part_id AND k.candidate_id = c.candidate_id AND k.state_hash = c.state_hash
WHERE k.ordinal = 0 AND c.part_id IS NULL
UNION ALL
SELECT
    'features without blocks' AS what,
    count(*) AS items
FROM mmdb.feature_part AS p
LEFT JOIN mmdb.feature_block AS b ON p.feature_id = b.feature_id AND p.part_id = b.part_id AND b.ordinal = 0
WHERE p.blocks > 0 AND b.part_id IS NULL
UNION ALL
SELECT
    'blocks of no features' AS what,
    count(*) AS items
FROM mmdb.feature_block AS b
LEFT JOIN mmdb.feature_part AS p ON b.feature_id = p.feature_id AND b.part_id = p.part_id
WHERE b.ordinal = 0 AND p.part_id IS NULL
UNION ALL
SELECT
    'hops of no candidate' AS what,
    count(*) AS items
FROM mmdb.hop AS h
LEFT JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
WHERE c.candidate_id IS NULL
UNION ALL
SELECT
    'hops of no partition' AS what,
    count(*) AS items
FROM mmdb.hop AS h
LEFT JOIN mmdb.partition AS p ON h.part_id = p.part_id
WHERE p.part_id IS NULL;

-- name: read_settings
-- Settings that a database's safety and speed rest on, and whether the server is a replica.
SELECT
    pg_catalog.current_setting('fsync')::boolean AS fsync,
    pg_catalog.current_setting('full_page_writes')::boolean AS full_page_writes,
    pg_catalog.current_setting('data_checksums')::boolean AS data_checksums,
    pg_catalog.current_setting('autovacuum')::boolean AS autovacuum,
    pg_catalog.current_setting('track_counts')::boolean AS track_counts,
    pg_catalog.current_setting('hot_standby_feedback')::boolean AS hot_standby_feedback,
    pg_catalog.current_setting('archive_mode') AS archive_mode,
    pg_catalog.current_setting('max_connections')::integer AS max_connections,
    pg_catalog.pg_is_in_recovery() AS is_replica;

-- name: find_unvacuumed
-- The tables of mmdb that autovacuum leaves alone, or is far behind with; values count as the pieces that they lie in.
SELECT
    s.table_name,
    s.dead_rows,
    s.live_rows,
    s.is_off
FROM (
    SELECT
        c.relname::text AS table_name,
        t.n_dead_tup + coalesce(p.n_dead_tup, 0) AS dead_rows,
        t.n_live_tup + coalesce(p.n_live_tup, 0) AS live_rows,
        coalesce('autovacuum_enabled=false' = any(c.reloptions), FALSE)
        OR coalesce('autovacuum_enabled=off' = any(c.reloptions), FALSE) AS is_off
    FROM pg_catalog.pg_class AS c
    INNER JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid
    INNER JOIN pg_catalog.pg_stat_all_tables AS t ON c.oid = t.relid
    LEFT JOIN pg_catalog.pg_stat_all_tables AS p ON c.reltoastrelid = p.relid
    WHERE n.nspname = 'mmdb' AND c.relkind = 'r'
) AS s
WHERE s.is_off OR (s.dead_rows > %(dead_rows)s::bigint AND s.dead_rows > s.live_rows)
ORDER BY s.table_name;

-- name: read_transaction_age
-- How many transactions the database has until it must be frozen.
SELECT greatest(pg_catalog.age(d.datfrozenxid), pg_catalog.mxid_age(d.datminmxid)) AS age
FROM pg_catalog.pg_database AS d
WHERE d.datname = pg_catalog.current_database();

-- name: find_long_transactions
-- The sessions of this database whose transaction is old: vacuum frees nothing that they may still see.
SELECT
    a.pid,
    a.usename::text AS role,
    a.application_name AS application,
    coalesce(a.state, 'unknown') AS state,
    extract(EPOCH FROM pg_catalog.clock_timestamp() - a.xact_start)::bigint AS seconds
FROM pg_catalog.pg_stat_activity AS a
WHERE
    a.datname = pg_catalog.current_database() AND a.backend_type = 'client backend'
    AND a.xact_start < pg_catalog.clock_timestamp() - %(age)s::interval
ORDER BY a.xact_start;

-- name: find_prepared
-- The transactions in two phases that wait for their second one.
SELECT
    x.gid,
    x.owner::text AS role,
    extract(EPOCH FROM pg_catalog.clock_timestamp() - x.prepared)::bigint AS seconds
FROM pg_catalog.pg_prepared_xacts AS x
WHERE x.database = pg_catalog.current_database() AND x.prepared < pg_catalog.clock_timestamp() - %(age)s::interval
ORDER BY x.prepared;

-- name: count_sessions
-- How many of the server's sessions are in use.
SELECT count(*) AS sessions
FROM pg_catalog.pg_stat_activity AS a
WHERE a.backend_type = 'client backend';

-- name: find_replicas
-- The replicas that this server feeds, and how far behind each is.
SELECT
    coalesce(nullif(r.application_name, ''), r.client_addr::text, r.pid::text) AS name,
    r.state,
    pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), r.replay_lsn)::bigint AS behind
FROM pg_catalog.pg_stat_replication AS r
WHERE r.state <> 'backup';

-- name: find_slots
-- The replication slots that nobody reads from, and the log that is kept for them.
SELECT
    s.slot_name::text AS name,
    coalesce(s.wal_status, 'unreserved') AS status,
    coalesce(pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), s.restart_lsn), 0)::bigint AS kept
FROM pg_catalog.pg_replication_slots AS s
WHERE NOT s.active AND NOT s.temporary;

-- name: read_replica
-- How far this replica is behind what it has received, and whether it receives.
SELECT
    pg_catalog.pg_is_wal_replay_paused() AS is_paused,
    w.pid IS NOT NULL AS is_receiving,
    CASE
        WHEN pg_catalog.pg_last_wal_replay_lsn() >= pg_catalog.pg_last_wal_receive_lsn() THEN 0
        ELSE extract(EPOCH FROM pg_catalog.clock_timestamp() - pg_catalog.pg_last_xact_replay_timestamp())::bigint
    END AS seconds
FROM pg_catalog.pg_database AS d
LEFT JOIN pg_catalog.pg_stat_wal_receiver AS w ON d.oid IS NOT NULL
WHERE d.datname = pg_catalog.current_database();

-- name: read_archiver
-- Whether the log is archived.
SELECT
    a.failed_count,
    a.last_archived_time,
    a.last_failed_time,
    a.last_failed_wal,
    coalesce(a.last_failed_time > a.last_archived_time, a.last_failed_time IS NOT NULL) AS is_failing
FROM pg_catalog.pg_stat_archiver AS a;
