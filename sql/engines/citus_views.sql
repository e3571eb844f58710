-- Views that need another form where tables lie on several nodes, and what is there only then.

-- The nodes, and how much of what is trained on lies on each. Whether a node answers, Citus tries at that moment.
CREATE OR REPLACE VIEW mmdb.node_status AS
WITH placed AS (
    SELECT
        pl.groupid,
        count(*) AS partitions
    FROM mmdb.partition AS p
    INNER JOIN mmdb.dataset AS d ON p.dataset_id = d.dataset_id
    INNER JOIN pg_catalog.pg_dist_placement AS pl
        ON pg_catalog.get_shard_id_for_distribution_column('mmdb.hop', p.part_id) = pl.shardid
    WHERE d.dropped_at IS NULL
    GROUP BY pl.groupid
)

SELECT
    n.nodename || ':' || cast(n.nodeport AS text) AS node,
    n.groupid = 0 AS is_coordinator,
    n.isactive AS is_active,
    pg_catalog.citus_check_connection_to_node(n.nodename, n.nodeport) AS answers,
    n.shouldhaveshards AS has_shards,
    coalesce(p.partitions, 0) AS partitions
FROM pg_catalog.pg_dist_node AS n
LEFT JOIN placed AS p ON n.groupid = p.groupid
WHERE n.noderole = 'primary';
COMMENT ON VIEW mmdb.node_status IS 'The nodes of the cluster, whether they answer, and how many partitions each holds.';
COMMENT ON COLUMN mmdb.node_status.node IS 'Host and port, as hops have it.';
COMMENT ON COLUMN mmdb.node_status.is_coordinator IS 'Whether it is the server that clients talk to.';
COMMENT ON COLUMN mmdb.node_status.is_active IS 'Whether Citus uses it.';
COMMENT ON COLUMN mmdb.node_status.answers IS 'Whether the server asked could reach it just now.';
COMMENT ON COLUMN mmdb.node_status.has_shards IS 'Whether it may hold shards.';
COMMENT ON COLUMN mmdb.node_status.partitions IS 'Partitions of datasets in use that lie on it.';

-- What a shard weighs when shards are spread anew: by disk size, one with partitions would go before all others, and all
-- partitions of a small dataset to one node.
CREATE OR REPLACE FUNCTION mmdb.shard_cost(
    shard_id bigint
) RETURNS real
LANGUAGE sql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
SELECT CASE
    WHEN s.logicalrelid::text LIKE 'mmdb.%' THEN 0.001 + (
        SELECT count(*)
        FROM mmdb.partition AS p
        INNER JOIN mmdb.dataset AS d ON p.dataset_id = d.dataset_id
        WHERE
            d.dropped_at IS NULL
            AND pg_catalog.get_shard_id_for_distribution_column('mmdb.block', p.part_id) IN (
                SELECT b.shardid
                FROM pg_catalog.pg_dist_shard AS b
                WHERE
                    b.logicalrelid = 'mmdb.block'::regclass
                    AND b.shardminvalue = s.shardminvalue
                    AND s.logicalrelid <> 'mmdb.tensor_chunk'::regclass
            )
    )
    ELSE pg_catalog.citus_shard_cost_by_disk_size(s.shardid)
END::real
FROM pg_catalog.pg_dist_shard AS s
WHERE s.shardid = shard_cost.shard_id
$$;
COMMENT ON FUNCTION mmdb.shard_cost(bigint) IS 'Partitions in use that lie in a shard: the rebalance strategy by_partition counts them.';
DO $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_dist_rebalance_strategy AS s WHERE s.name = 'by_partition') THEN
        PERFORM pg_catalog.citus_add_rebalance_strategy(
            'by_partition', 'mmdb.shard_cost', 'citus_node_capacity_1', 'citus_shard_allowed_on_node_true',
            default_threshold => 0.1, improvement_threshold => 0.1
        );
    END IF;
END
$$;

-- A view over a distributed table asks all shards, though what it joins with be empty. A function asks when it is called, and
-- only the shards of the run: so finished runs, which have totals, are shown though a node is down, by no query of a node.
CREATE OR REPLACE FUNCTION mmdb.hops_of_run(
    run_id bigint
) RETURNS TABLE ( -- no rows of mmdb.hop: for Citus, what depends on a table depends on the views of the table, too
    part_id bigint, candidate_id bigint, epoch integer, row_count bigint, steps integer, loss double precision, metrics jsonb,
    read_s double precision, load_s double precision, compute_s double precision, total_s double precision, state_bytes bigint,
    worker text, node text, started_at timestamptz, finished_at timestamptz, objective double precision, group_size integer
)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE COST 100000
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    asked text;
BEGIN
    SELECT format(
        'SELECT h.part_id, h.candidate_id, h.epoch, h.row_count, h.steps, h.loss, h.metrics, h.read_s, h.load_s, h.compute_s,'
        ' h.total_s, h.state_bytes, h.worker, h.node, h.started_at, h.finished_at, h.objective, h.group_size FROM mmdb.hop AS h'
        ' WHERE h.part_id = ANY (%L::bigint[]) AND h.candidate_id = ANY (%L::bigint[])',
        ARRAY(SELECT p.part_id FROM mmdb.partition AS p WHERE p.dataset_id = r.dataset_id),
        ARRAY(SELECT c.candidate_id FROM mmdb.candidate AS c WHERE c.run_id = r.run_id)
    ) INTO asked
    FROM mmdb.run AS r
    WHERE
        r.run_id = hops_of_run.run_id
        -- With the first hop of a run it is settled what auto is.
        AND (r.strategy <> 'auto' OR EXISTS (SELECT FROM mmdb.run_strategy AS s WHERE s.run_id = r.run_id));
    IF asked IS NOT NULL THEN
        RETURN QUERY EXECUTE asked;
    END IF;
END
$$;
COMMENT ON FUNCTION mmdb.hops_of_run(bigint) IS 'The hops of a run, from the nodes that its partitions lie on.';
CREATE OR REPLACE FUNCTION mmdb.checkpoint_bytes() RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT coalesce(sum(c.byte_count), 0) FROM mmdb.checkpoint AS c);
EXCEPTION
    WHEN connection_exception OR connection_does_not_exist OR connection_failure THEN RETURN NULL;
END
$$;
COMMENT ON FUNCTION mmdb.checkpoint_bytes() IS 'Bytes of durable states on all nodes; null while one does not answer.';
DO $$
DECLARE
    open_hops CONSTANT text := '\(mmdb\.hop h\s+JOIN mmdb\.candidate (\w+) ON \(\(h\.candidate_id = \1\.candidate_id\)\)\)'
    '\s+JOIN mmdb\.open_run (\w+) ON \(\(\1\.run_id = \2\.run_id\)\)';
    asked CONSTANT text := '(mmdb.open_run \2 CROSS JOIN LATERAL mmdb.hops_of_run(\2.run_id) h)'
    ' JOIN mmdb.candidate \1 ON h.candidate_id = \1.candidate_id';
    -- On Citus no hop is of a group. Where no candidate has a parent, the hops of open runs need not be looked at.
    epochs CONSTANT text := '(SELECT t.candidate_id, t.epoch, t.objective, t.steps, 1 AS group_size FROM mmdb.epoch_total AS t'
    ' UNION ALL SELECT o.candidate_id, o.epoch, o.objective, o.steps, o.group_size FROM mmdb.open_run AS n'
    ' CROSS JOIN LATERAL mmdb.hops_of_run(n.run_id) AS o'
    ' WHERE EXISTS (SELECT FROM mmdb.warm_start AS b WHERE b.state_hash IS NOT NULL)) h';
    -- Citus has no subquery for each row over a distributed table: what parents left is gathered first, of all parents.
    known CONSTANT text := 'WITH parent AS ('
    'SELECT c.parent_id AS candidate_id FROM mmdb.candidate AS c WHERE c.parent_id IS NOT NULL'
    ' UNION SELECT t.parent_candidate_id FROM mmdb.transfer AS t WHERE t.parent_candidate_id IS NOT NULL'
    '), left_state AS ('
    'SELECT h.candidate_id, h.state_out AS state_hash, h.epoch, 1 AS place FROM mmdb.hop AS h'
    ' WHERE h.candidate_id IN (SELECT p.candidate_id FROM parent AS p)'
    ' UNION ALL SELECT m.candidate_id, m.state_out, m.epoch, 2 FROM mmdb.merge AS m'
    ' UNION ALL SELECT k.candidate_id, k.state_hash, k.epoch, 3 FROM mmdb.checkpoint AS k'
    ' WHERE k.candidate_id IN (SELECT p.candidate_id FROM parent AS p)'
    '), known AS ('
    'SELECT s.candidate_id, s.state_hash, coalesce('
    'max(s.epoch) FILTER (WHERE s.place = 1), max(s.epoch) FILTER (WHERE s.place = 2), max(s.epoch)) AS epoch'
    ' FROM left_state AS s GROUP BY s.candidate_id, s.state_hash'
    ') \1 (SELECT k.epoch FROM known AS k WHERE p.parent_id = k.candidate_id AND p.parent_state = k.state_hash) AS epoch';
    changed text[];
    written text;
    asking regprocedure;
BEGIN
    -- They run on the coordinator alone, where the tables of runs and datasets are read.
    FOREACH asking IN ARRAY ARRAY['mmdb.hops_of_run(bigint)', 'mmdb.checkpoint_bytes()']
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET citus.allow_nested_distributed_execution TO on', asking);
    END LOOP;
    FOREACH changed SLICE 1 IN ARRAY ARRAY[
        ['open_candidate', open_hops, asked], ['candidate_progress', open_hops, asked], ['run_progress', open_hops, asked],
        ['run_time', open_hops, asked], ['hops_per_hour', open_hops, asked], ['warm_start_overview', 'mmdb\.hop h', epochs],
        ['lineage_state_edge', '^(.*)COALESCE\(\(\s*SELECT max\(h\.epoch\).*\) AS epoch', known],
        [
            'metric',
            '\(COALESCE\(sum\(c\.byte_count\), \(0\)::numeric\)\)::double precision AS value\s+FROM mmdb\.checkpoint c',
            'mmdb.checkpoint_bytes()::double precision AS value'
        ]
    ]
    LOOP
        written := pg_get_viewdef(('mmdb.' || changed[1])::regclass);
        ASSERT written ~ changed[2], format('mmdb.%s reads no %s', changed[1], changed[2]);
        written := regexp_replace(written, changed[2], changed[3], 'g');
        EXECUTE format('CREATE OR REPLACE VIEW mmdb.%I AS %s', changed[1], written);
    END LOOP;
END
$$;
