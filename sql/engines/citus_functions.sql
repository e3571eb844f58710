-- Functions whose first argument is part_id: Citus sends them to the node of the partition. Run at each install, after the rights.
-- Only a call by itself is sent: SELECT * FROM mmdb.train_hop(…), with autocommit.

SELECT pg_catalog.create_distributed_function(p.oid, 'part_id', colocate_with => 'mmdb.block')
FROM pg_catalog.pg_proc AS p
WHERE p.pronamespace = 'mmdb'::regnamespace AND p.proargnames[1] = 'part_id' AND p.proargtypes[0] = 'bigint'::regtype;

-- Where a table is referred to, Citus lets no transaction write to it that has used several shards at once, lest the
-- distributed tables refer to it. None of mmdb's does: citus.sql.
DO $$
DECLARE
    called regprocedure;
BEGIN
    FOR called IN
        SELECT p.oid
        FROM pg_catalog.pg_proc AS p
        WHERE p.pronamespace = 'mmdb'::regnamespace AND p.prokind = 'f'
            AND p.prolang = (SELECT l.oid FROM pg_catalog.pg_language AS l WHERE l.lanname = 'plpython3u')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET citus.enforce_foreign_key_restrictions TO off', called);
    END LOOP;
END
$$;
