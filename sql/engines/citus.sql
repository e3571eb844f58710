-- Where the tables lie in a Citus database; run at each install, before the views. What is done already stays as it is.
--   by part_id       blocks, those of features too, hops, checkpoints and states on their way: those of a partition lie on
--                    one node
--   by tensor_id     the bytes of tensors
--   everywhere       what is written before a run begins: a node reads its own copy, but every node must be there to be written to
--   the coordinator  all the rest, which nodes can read and write as well: a node that is gone stops none of it;
--                    but for those of worker processes, which no node needs

-- A distributed table has no triggers: those of a database that was on one server.
DO $$
DECLARE
    placed record;
BEGIN
    FOR placed IN
        SELECT
            t.tgname,
            t.tgrelid::regclass AS relation
        FROM pg_catalog.pg_trigger AS t
        INNER JOIN pg_catalog.pg_class AS c ON t.tgrelid = c.oid
        WHERE c.relnamespace = 'mmdb'::regnamespace AND t.tgname LIKE '%\_on\_own\_partition' AND t.tgparentid = 0
    LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', placed.tgname, placed.relation);
    END LOOP;
END
$$;

-- A key of a distributed table must hold what it is distributed by: locks that hold for all nodes keep the ordinals unique.
-- A distributed table cannot refer to rows of the coordinator's, and where it refers to one that lies everywhere, no
-- transaction may write to both after it has used several shards at once: gc and doctor look for rows that refer to nothing.
DO $$
DECLARE
    everywhere CONSTANT text[] := ARRAY[
        'setting', 'factory', 'trainer', 'function', 'dataset', 'dataset_column', 'transform', 'partition', 'shared_block', 'run'
    ];
    by_part CONSTANT text[] := ARRAY['block', 'hop', 'checkpoint', 'checkpoint_chunk', 'state_chunk', 'feature_block'];
    at_home CONSTANT text[] := ARRAY['worker', 'worker_beat', 'assignment'];
    spread CONSTANT text[] := by_part || ARRAY['tensor_chunk'];
    known CONSTANT regclass[] := ARRAY(SELECT p.logicalrelid FROM pg_catalog.pg_dist_partition AS p);
    is_first CONSTANT boolean := 'mmdb.hop'::regclass <> ALL (known);
    storage jsonb := '{}'; -- options of the tables to be spread, which shards get by ALTER TABLE alone
    named text;
    found regclass;
    numbered record;
    last bigint;
BEGIN
    SELECT coalesce(jsonb_object_agg(o.relname, o.options), '{}') INTO storage
    FROM (
        SELECT
            regexp_replace(c.relname, '^tensor_chunk_0$', 'tensor_chunk') AS relname,
            string_agg(o.option, ', ') AS options
        FROM pg_catalog.pg_class AS c
        LEFT JOIN pg_catalog.pg_class AS t ON c.reltoastrelid = t.oid
        CROSS JOIN LATERAL (
            SELECT unnest(c.reloptions) AS option
            UNION ALL
            SELECT 'toast.' || unnest(t.reloptions)
        ) AS o
        WHERE
            c.relnamespace = 'mmdb'::regnamespace AND c.oid <> ALL (known)
            AND c.relname = ANY (spread || ARRAY['tensor_chunk_0'])
        GROUP BY c.relname
    ) AS o;
    IF is_first THEN
        DROP INDEX IF EXISTS mmdb.hop_candidate_ordinal_key;
        CREATE INDEX hop_candidate_ordinal_idx ON mmdb.hop (candidate_id, ordinal);
        ALTER TABLE mmdb.hop DROP CONSTRAINT IF EXISTS hop_candidate_fkey, DROP CONSTRAINT IF EXISTS hop_partition_fkey;
        ALTER TABLE mmdb.block DROP CONSTRAINT IF EXISTS block_partition_fkey;

        -- Citus refuses a policy that reads another table; postgres_rights.sql makes those that can be anew.
        FOR named, found IN
            SELECT
                p.polname,
                p.polrelid
            FROM pg_catalog.pg_policy AS p
            INNER JOIN pg_catalog.pg_class AS c ON p.polrelid = c.oid
            WHERE c.relnamespace = 'mmdb'::regnamespace
        LOOP
            EXECUTE format('DROP POLICY %I ON %s', named, found);
        END LOOP;

        -- One table of native partitions would be shards times partitions.
        CREATE TABLE mmdb.whole (LIKE mmdb.tensor_chunk INCLUDING ALL);
        INSERT INTO mmdb.whole SELECT c.* FROM mmdb.tensor_chunk AS c;
        DROP TABLE mmdb.tensor_chunk;
        ALTER TABLE mmdb.whole RENAME TO tensor_chunk;
        ALTER INDEX mmdb.whole_pkey RENAME TO tensor_chunk_pkey;
    END IF;

    FOREACH named IN ARRAY everywhere
    LOOP
        found := ('mmdb.' || quote_ident(named))::regclass;
        IF found <> ALL (known) THEN
            PERFORM pg_catalog.create_reference_table(found);
        END IF;
    END LOOP;
    FOR named IN
        SELECT c.relname
        FROM pg_catalog.pg_class AS c
        WHERE
            c.relnamespace = 'mmdb'::regnamespace AND c.relkind = 'r'
            AND c.relname <> ALL (everywhere || spread || at_home)
        ORDER BY c.relname
    LOOP
        -- Those that refer to each other are added together, by which they become other relations of the same names; they are
        -- kept even if they no longer do.
        found := ('mmdb.' || quote_ident(named))::regclass;
        PERFORM pg_catalog.citus_add_local_table_to_metadata(found, cascade_via_foreign_keys => TRUE)
        WHERE NOT EXISTS (
            SELECT 1 FROM pg_catalog.pg_dist_partition AS p WHERE p.logicalrelid = found AND NOT p.autoconverted
        );
    END LOOP;
    FOREACH named IN ARRAY spread
    LOOP
        found := ('mmdb.' || quote_ident(named))::regclass;
        CONTINUE WHEN found = ANY (known);
        PERFORM pg_catalog.create_distributed_table(
            found,
            CASE WHEN named = 'tensor_chunk' THEN 'tensor_id' ELSE 'part_id' END,
            colocate_with => CASE WHEN named IN ('block', 'tensor_chunk') THEN 'none' ELSE 'mmdb.block' END
        );
        IF storage ? named THEN
            EXECUTE format('ALTER TABLE %s SET (%s)', found, storage ->> named);
        END IF;
    END LOOP;

    -- Of a table that had rows before, Citus begins its numbers anew.
    FOR numbered IN
        SELECT
            a.attrelid::regclass AS name,
            a.attname,
            pg_get_serial_sequence(a.attrelid::regclass::text, a.attname) AS numbers
        FROM pg_catalog.pg_attribute AS a
        INNER JOIN pg_catalog.pg_class AS c ON a.attrelid = c.oid
        WHERE is_first AND c.relnamespace = 'mmdb'::regnamespace AND c.relkind = 'r' AND a.attidentity <> ''
    LOOP
        EXECUTE format('SELECT max(%I) FROM %s', numbered.attname, numbered.name) INTO last;
        PERFORM setval(numbered.numbers, last) WHERE last IS NOT NULL;
    END LOOP;
END
$$;
