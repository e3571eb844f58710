-- name: own_pid
-- The server's process of this session.
SELECT pg_catalog.pg_backend_pid() AS pid;

-- name: sessions
-- The sessions of this database: the processes that serve them, and what they call themselves.
SELECT
    a.pid,
    a.application_name AS name
FROM pg_catalog.pg_stat_activity AS a
WHERE a.datname = pg_catalog.current_database() AND a.backend_type = 'client backend'
ORDER BY a.pid;

-- name: hops_done
-- How many hops a bench's runs have done.
SELECT count(*) AS hops
FROM mmdb.hop AS h
INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
WHERE r.name = %(run)s::text;

-- name: read_models
-- The first page of the models.
SELECT
    m.model,
    m.version,
    m.dataset,
    m.run,
    m.byte_count,
    m.stored_bytes,
    m.created_at
FROM mmdb.model_overview AS m
ORDER BY m.created_at DESC
LIMIT 100;

-- name: read_datasets
-- The first page of the datasets.
SELECT
    d.name,
    d.partitions,
    d.row_count,
    d.byte_count
FROM mmdb.dataset_overview AS d
ORDER BY d.name
LIMIT 100;
