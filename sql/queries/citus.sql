-- name: find_extension
-- Whether this database has the extension Citus.
SELECT e.extversion AS version
FROM pg_catalog.pg_extension AS e
WHERE e.extname = 'citus';

-- name: find_cluster
-- What this server is to the cluster, and which nodes hold shards.
SELECT
    l.groupid = 0 AS is_coordinator,
    (
        SELECT count(*)
        FROM pg_catalog.pg_dist_node AS n
        WHERE n.groupid = 0
    ) > 0 AS is_known,
    (
        SELECT count(*)
        FROM pg_catalog.pg_dist_node AS n
        WHERE n.shouldhaveshards AND n.noderole = 'primary'
    ) AS nodes
FROM pg_catalog.pg_dist_local_group AS l;

-- name: change_one_by_one
-- Change shards one after the other: what else the transaction changes must see them.
SELECT set_config('citus.multi_shard_modify_mode', 'sequential', TRUE);

-- name: name_engine
-- Tell the files of this transaction that the database is spread over nodes.
SELECT set_config('mmdb.engine', 'citus', TRUE);

-- name: find_misplaced
-- Tables that do not lie where sql/engines/citus.sql puts them: a newer version added them, or somebody moved them.
SELECT c.relname::text AS name
FROM pg_catalog.pg_class AS c
LEFT JOIN pg_catalog.pg_dist_partition AS p ON c.oid = p.logicalrelid
WHERE
    c.relnamespace = 'mmdb'::regnamespace AND c.relkind IN ('r', 'p')
    AND CASE
        WHEN c.relname = any(ARRAY['worker', 'worker_beat', 'assignment']) THEN p.logicalrelid IS NOT NULL
        WHEN c.relname = any(ARRAY['block', 'hop', 'checkpoint', 'checkpoint_chunk', 'state_chunk', 'feature_block'])
            THEN p.partmethod IS DISTINCT FROM 'h' OR p.colocationid <> (
                SELECT b.colocationid
                FROM pg_catalog.pg_dist_partition AS b
                WHERE b.logicalrelid::oid = 'mmdb.block'::regclass::oid
            )
        WHEN c.relname = 'tensor_chunk' THEN p.partmethod IS DISTINCT FROM 'h'
        ELSE p.partmethod IS DISTINCT FROM 'n'
    END
ORDER BY c.relname;

-- name: find_undelegated
-- Functions that Citus does not send to the node of their partition though it should.
SELECT f.oid::regprocedure::text AS name
FROM pg_catalog.pg_proc AS f
LEFT JOIN pg_catalog.pg_dist_object AS o ON f.oid = o.objid AND o.classid = 'pg_catalog.pg_proc'::regclass::oid
WHERE
    f.pronamespace = 'mmdb'::regnamespace
    AND f.proargnames[1] = 'part_id' AND f.proargtypes[0] = 'bigint'::regtype
    AND o.distribution_argument_index IS NULL;

-- name: find_nodes
-- The nodes, whether they answer, and the shards of blocks that each holds.
SELECT
    s.node,
    s.is_active,
    s.answers,
    s.has_shards,
    s.partitions,
    (
        SELECT count(*)
        FROM pg_catalog.pg_dist_shard AS b
        INNER JOIN pg_catalog.pg_dist_placement AS p ON b.shardid = p.shardid
        INNER JOIN pg_catalog.pg_dist_node AS n ON p.groupid = n.groupid
        WHERE b.logicalrelid::oid = 'mmdb.block'::regclass::oid AND n.nodename || ':' || n.nodeport::text = s.node
    ) AS shards
FROM mmdb.node_status AS s
WHERE NOT s.is_coordinator
ORDER BY s.node;

-- name: probe_nodes
-- What each node says of itself as a server: its version, whether it can commit with others, and its Python.
SELECT
    n.nodename || ':' || n.nodeport::text AS node,
    r.success AS answered,
    r.result
FROM pg_catalog.run_command_on_workers(%(command)s::text) AS r
INNER JOIN pg_catalog.pg_dist_node AS n ON r.nodename = n.nodename AND r.nodeport = n.nodeport
ORDER BY node;

-- name: count_doubled
-- Hops that have the place of another hop of their candidate, which locks prevent.
SELECT count(*) AS items
FROM (
    SELECT
        h.candidate_id,
        h.ordinal
    FROM mmdb.hop AS h
    GROUP BY h.candidate_id, h.ordinal
    HAVING count(*) > 1
) AS d;

-- name: add_up_shards
-- Bytes of the shards of the store's tables, with their indexes and what is free in them.
SELECT coalesce(sum(pg_catalog.citus_total_relation_size(p.logicalrelid, fail_on_error => FALSE)), 0)::bigint AS bytes
FROM pg_catalog.pg_dist_partition AS p
INNER JOIN pg_catalog.pg_class AS c ON p.logicalrelid = c.oid
WHERE
    c.relnamespace = 'mmdb'::regnamespace
    AND (
        c.relname LIKE 'tensor%' OR c.relname LIKE 'checkpoint%' OR c.relname LIKE 'feature%'
        OR c.relname IN ('encoding', 'manifest_tensor')
    );
