-- name: is_spread
-- Whether the tables lie on the nodes of a cluster; where the extension is there.
SELECT count(*) > 0 AS spread
FROM pg_catalog.pg_dist_partition AS p
WHERE p.logicalrelid::oid = 'mmdb.hop'::regclass::oid AND p.partmethod = 'h';

-- name: own_node
-- The node that this session computes on.
SELECT n.nodename || ':' || n.nodeport::text AS node
FROM pg_catalog.pg_dist_local_group AS l
INNER JOIN pg_catalog.pg_dist_node AS n ON l.groupid = n.groupid
WHERE n.noderole = 'primary';

-- name: node_of_part
-- The node of a partition, and whether this session computes there.
SELECT
    n.nodename || ':' || n.nodeport::text AS node,
    p.groupid = l.groupid AS here
FROM pg_catalog.pg_dist_placement AS p
INNER JOIN pg_catalog.pg_dist_node AS n ON p.groupid = n.groupid
CROSS JOIN pg_catalog.pg_dist_local_group AS l
WHERE
    p.shardid = pg_catalog.get_shard_id_for_distribution_column('mmdb.hop', %(part_id)s::bigint)
    AND n.noderole = 'primary';

-- name: place_parts
-- The nodes of partitions.
SELECT
    a.part_id,
    n.nodename || ':' || n.nodeport::text AS node
FROM pg_catalog.unnest(%(part_ids)s::bigint[]) AS a (part_id)
INNER JOIN pg_catalog.pg_dist_placement AS p
    ON p.shardid = pg_catalog.get_shard_id_for_distribution_column('mmdb.hop', a.part_id)
INNER JOIN pg_catalog.pg_dist_node AS n ON p.groupid = n.groupid
WHERE n.noderole = 'primary'
ORDER BY a.part_id;

-- name: find_nodes
-- The nodes that hold shards, each with a number that would be distributed to it: 32 numbers for each shard miss none.
WITH shards AS (
    SELECT count(*) AS shards
    FROM pg_catalog.pg_dist_shard AS d
    WHERE d.logicalrelid::oid = 'mmdb.hop'::regclass::oid
)

SELECT
    n.nodename || ':' || n.nodeport::text AS node,
    min(k.part_id) AS part_id
FROM shards AS s
CROSS JOIN generate_series(1::bigint, greatest(1024::bigint, 32 * s.shards)) AS k (part_id)
INNER JOIN pg_catalog.pg_dist_placement AS p
    ON p.shardid = pg_catalog.get_shard_id_for_distribution_column('mmdb.hop', k.part_id)
INNER JOIN pg_catalog.pg_dist_node AS n ON p.groupid = n.groupid
WHERE n.noderole = 'primary'
GROUP BY n.nodename, n.nodeport
ORDER BY n.nodename, n.nodeport;

-- name: lock_hop
-- Lock a candidate on all nodes for the rest of the transaction: a row of the coordinator's table is selected there.
SELECT pg_try_advisory_xact_lock(1835889762, %(key)s::integer) AS locked
FROM mmdb.migration AS m
WHERE m.number = 0;

-- name: open_transactions
-- Let what is read on other nodes be part of this transaction, with the locks that it takes there.
SELECT set_config('citus.select_opens_transaction_block', 'on', TRUE);

-- name: share_run
-- Keep drivers from a run for the rest of the transaction, or say that one has it: this is tried on the coordinator.
SELECT pg_try_advisory_xact_lock_shared(1835889763, %(key)s::integer) AS shared
FROM mmdb.migration AS m
WHERE m.number = 0;

-- name: hold_session
-- Let other sessions tell that this one is there, by a number that no other has.
SELECT pg_try_advisory_lock_shared(1835889768, %(holder)s::integer) AS held;

-- name: release_session
-- Let nobody take a hop's session for this one any more: its number is another one from now on.
SELECT pg_advisory_unlock_shared(1835889768, %(holder)s::integer) AS released;

-- name: are_held
-- Whether the coordinator's sessions of some numbers are all there still: this is tried on the coordinator.
SELECT NOT bool_or(pg_try_advisory_xact_lock(1835889768, h.holder)) AS held
FROM mmdb.migration AS m
CROSS JOIN pg_catalog.unnest(%(holders)s::integer[]) AS h (holder)
WHERE m.number = 0;

-- name: find_end
-- Whether a dataset has been dropped; a driver knows itself what has ended a candidate.
SELECT
    d.dropped_at IS NOT NULL AS dropped,
    NULL::text AS error
FROM mmdb.dataset AS d
WHERE d.dataset_id = %(dataset_id)s::bigint;

-- name: share_totals
-- Keep the totals of a run from being written on all nodes for the rest of the transaction.
SELECT pg_advisory_xact_lock_shared(1835889764, %(key)s::integer) IS NULL AS waited
FROM mmdb.migration AS m
WHERE m.number = 0;

-- name: set_session
-- Settings of a session that a node keeps for a worker.
SELECT set_config(s.name, s.value, FALSE) AS value
FROM unnest(%(names)s::text[], %(texts)s::text[]) AS s (name, value);

-- name: find_hops_at
-- A candidate's hops on some partitions from an epoch on, in order.
SELECT
    h.part_id,
    h.epoch,
    h.ordinal,
    h.compute_s,
    h.state_out,
    h.state_bytes,
    h.environment,
    h.group_size
FROM mmdb.hop AS h
WHERE
    h.candidate_id = %(candidate_id)s::bigint
    AND h.epoch >= %(epoch)s::integer
    AND h.part_id = any(%(part_ids)s::bigint[])
ORDER BY h.ordinal;

-- name: last_epoch_at
-- The last epoch in which a candidate has done a hop on some partitions; null if none.
SELECT max(h.epoch) AS epoch
FROM mmdb.hop AS h
WHERE h.candidate_id = %(candidate_id)s::bigint AND h.part_id = any(%(part_ids)s::bigint[]);

-- name: has_checkpoint
-- Whether a state is durable at a partition.
SELECT count(*) > 0 AS found
FROM mmdb.checkpoint AS c
WHERE
    c.part_id = %(part_id)s::bigint
    AND c.candidate_id = %(candidate_id)s::bigint
    AND c.state_hash = %(state_hash)s::bytea;

-- name: read_in_flight
-- The chunks of a state that a hop on a partition has left, from the files of its node, where the function runs.
SELECT s.data
FROM mmdb.hop AS h
CROSS JOIN mmdb.read_state(%(candidate_id)s::bigint, %(state_hash)s::bytea) AS s
WHERE
    h.part_id = %(part_id)s::bigint
    AND h.candidate_id = %(candidate_id)s::bigint
    AND h.state_out = %(state_hash)s::bytea
ORDER BY s.ordinal;

-- name: drop_state
-- Delete a state that a hop on a partition has left, from the files of its node, where the function runs.
SELECT mmdb.drop_state(%(candidate_id)s::bigint, %(state_hash)s::bytea) AS dropped
FROM mmdb.hop AS h
WHERE
    h.part_id = %(part_id)s::bigint
    AND h.candidate_id = %(candidate_id)s::bigint
    AND h.state_out = %(state_hash)s::bytea;

-- name: clear_caches
-- Delete decoded rows from the caches of all nodes, the coordinator's too, by sessions of their own; false: not done.
SELECT
    n.nodename || ':' || n.nodeport::text AS node,
    coalesce(r.success, FALSE) AS is_done,
    coalesce(r.result, 'it is switched off') AS said
FROM pg_catalog.pg_dist_node AS n
LEFT JOIN pg_catalog.run_command_on_all_nodes('SELECT mmdb.clear_cache()') AS r ON n.nodeid = r.nodeid
WHERE n.noderole = 'primary'
ORDER BY is_done, node;

-- name: find_validations_at
-- A candidate's validation metrics on the partitions of its dataset.
SELECT
    h.epoch,
    h.objective,
    h.state_out
FROM mmdb.hop AS h
WHERE
    h.candidate_id = %(candidate_id)s::bigint
    AND h.part_id = any(%(part_ids)s::bigint[])
    AND h.objective IS NOT NULL
ORDER BY h.epoch;

-- name: find_checkpoints_at
-- A candidate's durable states at some partitions.
SELECT
    c.part_id,
    c.state_hash,
    c.epoch
FROM mmdb.checkpoint AS c
WHERE c.candidate_id = %(candidate_id)s::bigint AND c.part_id = any(%(part_ids)s::bigint[])
ORDER BY c.epoch;

-- name: find_block_nodes
-- The nodes of a cluster that hold blocks; none where the tables lie on one server.
SELECT DISTINCT n.nodename || ':' || n.nodeport::text AS node
FROM pg_catalog.pg_dist_shard AS s
INNER JOIN pg_catalog.pg_dist_placement AS p ON s.shardid = p.shardid
INNER JOIN pg_catalog.pg_dist_node AS n ON p.groupid = n.groupid
WHERE s.logicalrelid::oid = 'mmdb.block'::regclass::oid AND n.noderole = 'primary';

-- name: draw_part_ids
-- New numbers of partitions, and the node and shard where the blocks of each would lie.
SELECT
    k.part_id,
    k.shard,
    n.nodename || ':' || n.nodeport::text AS node
FROM (
    SELECT
        d.part_id,
        pg_catalog.get_shard_id_for_distribution_column('mmdb.block', d.part_id) AS shard
    FROM (
        SELECT pg_catalog.nextval('mmdb.partition_part_id_seq'::regclass) AS part_id
        FROM generate_series(1, %(numbers)s::integer)
    ) AS d
) AS k
INNER JOIN pg_catalog.pg_dist_placement AS p ON k.shard = p.shardid
INNER JOIN pg_catalog.pg_dist_node AS n ON p.groupid = n.groupid
WHERE n.noderole = 'primary'
ORDER BY k.part_id;

-- name: find_predicting
-- A model, and whether nodes see it: those of the caller's own transaction they do not.
SELECT
    m.model_id,
    m.name || '@' || m.version::text AS reference,
    m.dataset_id,
    pg_catalog.now()::text AS now,
    pg_catalog.age(m.xmin) > 0 AS is_known
FROM mmdb.model AS m
WHERE m.model_id = %(model_id)s::bigint;

-- name: find_distributed
-- A table whose rows lie by one of its columns, where the caller may read that.
SELECT
    pg_catalog.quote_ident(n.nspname::text) || '.' || pg_catalog.quote_ident(c.relname::text) AS table_sql,
    a.attname::text AS column_name
FROM pg_catalog.pg_dist_partition AS p
INNER JOIN pg_catalog.pg_class AS c ON p.logicalrelid = c.oid
INNER JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid
INNER JOIN pg_catalog.pg_attribute AS a ON c.oid = a.attrelid
WHERE
    p.partmethod = 'h' AND n.nspname = %(schema)s::text AND c.relname = %(table)s::text
    AND a.attname = %(column)s::text
    AND a.attname = pg_catalog.column_to_column_name(p.logicalrelid, p.partkey)
    AND pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT');

-- name: distribute_like
-- Spread a new table over the nodes by its key, as another table is.
SELECT pg_catalog.create_distributed_table(
    %(target)s::text::regclass, %(key)s::text, colocate_with => %(home)s::text
) IS NULL AS done;

-- name: find_coordinator
-- How this node's session reaches the coordinator, as whom it runs; nothing there itself.
SELECT
    n.nodename AS host,
    n.nodeport AS port,
    current_database() AS dbname,
    current_user AS login,
    (
        SELECT s.setting
        FROM pg_catalog.pg_settings AS s
        WHERE s.name = 'citus.node_conninfo' -- which superusers alone see
    ) AS conninfo
FROM pg_catalog.pg_dist_node AS n
CROSS JOIN pg_catalog.pg_dist_local_group AS l
WHERE n.groupid = 0 AND l.groupid <> 0;
