-- Ranges of what rows may hold, run at each install: a row that somebody writes with ill will must not stop a view, a page or
-- a search that other people read. Each column has the rule of its type unless its name or its table says more; a constraint is
-- named TABLE_COLUMN_range, and a migration that drops it lets the next install make it anew by another rule.
-- Rows of older versions that break a rule stay as they are, and `mmdb doctor` names the constraint that they break.
DO $$
DECLARE
    bounded record;
    named text;
BEGIN
    FOR bounded IN
        SELECT
            c.oid::regclass AS relation,
            array_agg(format('%I', x.name) ORDER BY a.attnum) AS names,
            string_agg(format('ADD CONSTRAINT %I CHECK (%s) NOT VALID', x.name, format(x.rule, a.attname)), ', ') AS added,
            string_agg(format('VALIDATE CONSTRAINT %I', x.name), ', ') AS validated,
            array_agg(format('ADD CONSTRAINT %I CHECK (%s)', x.name, format(x.rule, a.attname))) AS one_by_one
        FROM pg_catalog.pg_class AS c
        INNER JOIN pg_catalog.pg_attribute AS a ON c.oid = a.attrelid AND a.attnum > 0 AND NOT a.attisdropped
        CROSS JOIN LATERAL (
            SELECT
                format('%s_%s_range', c.relname, a.attname) AS name,
                CASE format_type(a.atttypid, NULL)
                    WHEN 'double precision' THEN CASE
                        -- Tensors hold what they hold; nothing is added up of it.
                        WHEN c.relname = 'tensor' THEN NULL
                        -- A clock that is set back leaves negative seconds.
                        WHEN a.attname ~ '_s$|^(seconds|lower_bound|t_p\d+)$' THEN 'abs(%1$I) <= ''1e12''::double precision'
                        -- Metrics may be infinite and not a number; squares of all others are summed up.
                        ELSE '%1$I IN (''NaN'', ''Infinity'', ''-Infinity'') OR abs(%1$I) <= ''1e100''::double precision'
                    END
                    WHEN 'integer' THEN CASE
                        WHEN a.attname = 'priority' THEN '%1$I BETWEEN -64 AND 64'
                        WHEN c.relname = 'migration' THEN NULL
                        WHEN a.attname ~ '^(epochs|goal)$' THEN '%1$I >= 0'
                        WHEN a.attname = 'version' THEN '%1$I BETWEEN 0 AND 999999999'
                        -- A candidate that begins with another's weights has its state before any epoch.
                        WHEN a.attname = 'epoch' THEN '%1$I BETWEEN -1 AND 2147483646'
                        -- A negative position says that a node has tensors of the other one.
                        WHEN c.relname = 'architecture_edge' AND a.attname = 'position'
                            THEN '%1$I BETWEEN -2147483647 AND 2147483646'
                        ELSE '%1$I BETWEEN 0 AND 2147483646'
                    END
                    WHEN 'bigint' THEN CASE
                        -- A million of them add up to no more than 64 bits; 8 TiB.
                        WHEN a.attname !~ '_id$|^seed$' THEN '%1$I BETWEEN 0 AND 8796093022208'
                    END
                    WHEN 'timestamp with time zone' THEN '%1$I BETWEEN ''1970-01-01 00:00+00'' AND ''9998-12-31 00:00+00'''
                    WHEN 'text' THEN CASE
                        WHEN a.attname ~ '^(query|note|message|trace|hint|value|error|reason|why_not)$'
                            THEN 'octet_length(%1$I) <= 4194304'
                        -- A row of an index holds 2,700 bytes, of which there may be two texts.
                        WHEN EXISTS (SELECT 1 FROM pg_catalog.pg_index AS i WHERE i.indrelid = c.oid AND a.attnum = ANY (i.indkey))
                            THEN 'octet_length(%1$I) <= 1024'
                        ELSE 'octet_length(%1$I) <= 16384'
                    END
                    WHEN 'bytea' THEN CASE
                        WHEN a.attname !~ '^(data|packed|tensor_hashes|row_hashes)$' THEN 'octet_length(%1$I) <= 64'
                    END
                    WHEN 'jsonb' THEN
                        -- A reader in Python goes no deeper than a few hundred levels.
                        'NOT %1$I @? ''$.**{200}'' AND pg_column_size(%1$I) <= 67108864 AND ' || CASE
                            WHEN a.attname = 'metrics' THEN
                                'jsonb_typeof(%1$I) = ''object'' AND NOT %1$I @? '
                                '''strict $.* ? (@.type() != "number" && @.type() != "null" || @ > 1e100 || @ < -1e100)'''
                            WHEN a.attname = 'notes' THEN
                                'jsonb_typeof(%1$I) = ''array'' AND NOT %1$I @? ''strict $[*] ? (@.type() != "string")'''
                            WHEN a.attname = 'features' THEN
                                'jsonb_typeof(%1$I) = ''array'' AND NOT %1$I @? '
                                '''strict $[*] ? (@.type() != "number" || @ > 1e100 || @ < -1e100)'''
                            WHEN
                                a.attname ~ '^(classes|categories|inputs|targets|parameters|named)$'
                                AND (c.relname, a.attname) != ('transform', 'parameters')
                                THEN 'jsonb_typeof(%1$I) IN (''array'', ''null'')'
                            WHEN a.attname ~ '^(layout|detail)$' THEN 'jsonb_typeof(%1$I) IN (''object'', ''null'')'
                            ELSE 'jsonb_typeof(%1$I) = ''object'''
                        END
                    WHEN 'integer[]' THEN
                        '%1$I = ''{}'' OR array_ndims(%1$I) = 1 AND array_lower(%1$I, 1) = 1 AND cardinality(%1$I) <= '
                        || CASE a.attname WHEN 'masked' THEN 4194304 ELSE 64 END
                        || ' AND array_position(%1$I, NULL) IS NULL AND 0 <= ALL (%1$I)'
                    WHEN 'bigint[]' THEN
                        '%1$I = ''{}'' OR array_ndims(%1$I) = 1 AND array_lower(%1$I, 1) = 1 AND cardinality(%1$I) <= 64 '
                        'AND array_position(%1$I, NULL) IS NULL AND 0 <= ALL (%1$I)'
                END AS rule
        ) AS x
        WHERE
            c.relnamespace = 'mmdb'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND x.rule IS NOT NULL
            -- Totals of finished runs are sums over rows that have ranges of their own.
            AND c.relname NOT LIKE '%\_total'
            AND NOT EXISTS (
                SELECT 1 FROM pg_catalog.pg_constraint AS o WHERE o.conrelid = c.oid AND o.conname = left(x.name, 63)
            )
        GROUP BY c.oid
    LOOP
        IF current_setting('mmdb.engine', TRUE) = 'citus' THEN  -- which takes no list of commands
            FOREACH named IN ARRAY bounded.one_by_one
            LOOP
                EXECUTE format('ALTER TABLE %s %s', bounded.relation, named);
            END LOOP;
            CONTINUE;
        END IF;
        EXECUTE format('ALTER TABLE %s %s', bounded.relation, bounded.added);
        BEGIN
            EXECUTE format('ALTER TABLE %s %s', bounded.relation, bounded.validated);
        EXCEPTION WHEN check_violation THEN
            FOREACH named IN ARRAY bounded.names
            LOOP
                BEGIN
                    EXECUTE format('ALTER TABLE %s VALIDATE CONSTRAINT %s', bounded.relation, named);
                EXCEPTION WHEN check_violation THEN
                    NULL;
                END;
            END LOOP;
        END;
    END LOOP;
END
$$;

-- A candidate's hops, merges and checkpoints lie on partitions of its run's dataset, and on nobody else's.
CREATE OR REPLACE FUNCTION mmdb.on_own_partition() RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NEW.part_id >= 0 AND NOT EXISTS (  -- below zero is what calibrate writes and takes back
        SELECT 1
        FROM mmdb.candidate AS c
        INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
        INNER JOIN mmdb.partition AS p ON r.dataset_id = p.dataset_id
        WHERE c.candidate_id = NEW.candidate_id AND p.part_id = NEW.part_id AND p.role != 'test'
    ) THEN
        RAISE EXCEPTION 'Candidate % has no partition %.', NEW.candidate_id, NEW.part_id USING ERRCODE = 'MM155';
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION mmdb.on_own_partition() IS 'Refuses a row of a candidate on a partition of another dataset.';
-- On Citus a trigger of a distributed table cannot be.
DO $$
DECLARE
    placed text;
BEGIN
    FOREACH placed IN ARRAY ARRAY['hop', 'merge', 'checkpoint']
    LOOP
        EXIT WHEN current_setting('mmdb.engine', TRUE) = 'citus';
        EXECUTE format(
            'CREATE OR REPLACE TRIGGER %I BEFORE INSERT ON mmdb.%I FOR EACH ROW EXECUTE FUNCTION mmdb.on_own_partition()',
            placed || '_on_own_partition', placed
        );
    END LOOP;
END
$$;
