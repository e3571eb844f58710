-- Functions whose first argument is part_id: Citus sends them to the node of the partition. Run at each install, after the rights.
-- Only a call by itself is sent: SELECT * FROM mmdb.train_hop(…), with autocommit.

SELECT pg_catalog.create_distributed_function(p.oid, 'part_id', colocate_with => 'mmdb.block')
FROM pg_catalog.pg_proc AS p
WHERE p.pronamespace = 'mmdb'::regnamespace AND p.proargnames[1] = 'part_id' AND p.proargtypes[0] = 'bigint'::regtype;

-- Where a table is referred to, Citus lets no transaction write to it that has used several shards at once, lest the
-- distributed tables refer to it. None of mmdb's does: citus.sql. And what only reads, such as predict, may read models and
-- datasets on a node, where Citus calls it for the rows of a distributed table: it does not see what the caller writes meanwhile.
DO $$
DECLARE
    called regprocedure;
    reads boolean;
BEGIN
    FOR called, reads IN
        SELECT
            p.oid,
            p.provolatile = 's'
        FROM pg_catalog.pg_proc AS p
        WHERE p.pronamespace = 'mmdb'::regnamespace AND p.prokind = 'f'
            AND p.prolang = (SELECT l.oid FROM pg_catalog.pg_language AS l WHERE l.lanname = 'plpython3u')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET citus.enforce_foreign_key_restrictions TO off', called);
        IF reads THEN
            EXECUTE format('ALTER FUNCTION %s SET citus.allow_nested_distributed_execution TO on', called);
        END IF;
    END LOOP;
    -- One session of each node makes the shards of the table and predicts: each would load the model.
    ALTER FUNCTION mmdb.predict_into(text, text, text, text, boolean) SET citus.multi_shard_modify_mode TO sequential;
END
$$;
