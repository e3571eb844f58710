-- Rights that Citus needs beside those of postgres_rights.sql, after which this is run at each install.

-- A view reads with its owner's rights on the coordinator only; nodes ask for those of whoever selects from it. So readers may
-- select from the tables below the views as well, but for those that hold bytes; of the settings, they see what a view shows.
DO $$
DECLARE
    below regclass;
BEGIN
    FOR below IN
        SELECT DISTINCT c.oid
        FROM pg_catalog.pg_class AS v
        INNER JOIN pg_catalog.pg_rewrite AS r ON v.oid = r.ev_class
        INNER JOIN pg_catalog.pg_depend AS d ON r.oid = d.objid AND d.classid = 'pg_catalog.pg_rewrite'::regclass
        INNER JOIN pg_catalog.pg_class AS c ON d.refobjid = c.oid AND d.refclassid = 'pg_catalog.pg_class'::regclass
        WHERE
            v.relnamespace = 'mmdb'::regnamespace AND v.relkind = 'v'
            AND c.relnamespace = 'mmdb'::regnamespace AND c.relkind = 'r'
            AND c.relname <> ALL (ARRAY['block', 'state_chunk', 'checkpoint_chunk', 'tensor_chunk', 'feature_block'])
    LOOP
        EXECUTE format('GRANT SELECT ON %s TO mmdb_reader', below);
    END LOOP;
END
$$;
GRANT EXECUTE ON FUNCTION mmdb.hops_of_run(bigint), mmdb.checkpoint_bytes() TO mmdb_reader;
ALTER TABLE mmdb.setting ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS setting_read ON mmdb.setting;
CREATE POLICY setting_read ON mmdb.setting FOR SELECT TO mmdb_trainer USING (TRUE);
DROP POLICY IF EXISTS setting_show ON mmdb.setting;
CREATE POLICY setting_show ON mmdb.setting FOR SELECT TO mmdb_reader USING (name = 'price_per_worker_hour');

-- Whoever makes a dataset draws the numbers of its partitions until they are spread over the nodes.
GRANT USAGE ON SEQUENCE mmdb.partition_part_id_seq TO mmdb_trainer;

-- Citus adds the defaults to an INSERT before a node sees it, so a right on some columns is not enough. Who moved an alias,
-- wrote a note or had rows forgotten, and when, is held true by policies in its place.
DO $$
DECLARE
    signed record;
BEGIN
    FOR signed IN
        SELECT * FROM (VALUES
            ('alias_event', 'happened_at', 'mmdb_trainer'), ('model_note', 'created_at', 'mmdb_trainer'),
            ('prediction', 'predicted_at', 'mmdb_trainer'), ('evaluation', 'evaluated_at', 'mmdb_trainer'),
            ('forgetting', 'begun_at', 'mmdb_admin')
        ) AS s (name, moment, writer)
    LOOP
        EXECUTE format('GRANT INSERT ON mmdb.%I TO %I', signed.name, signed.writer);
        EXECUTE format('ALTER TABLE mmdb.%I ENABLE ROW LEVEL SECURITY', signed.name);
        EXECUTE format('DROP POLICY IF EXISTS %I ON mmdb.%I', signed.name || '_read', signed.name);
        EXECUTE format('CREATE POLICY %I ON mmdb.%I FOR SELECT TO mmdb_reader USING (TRUE)', signed.name || '_read', signed.name);
        EXECUTE format('DROP POLICY IF EXISTS %I ON mmdb.%I', signed.name || '_add', signed.name);
        EXECUTE format(
            'CREATE POLICY %I ON mmdb.%I FOR INSERT TO %I WITH CHECK ('
            'author = session_user AND %I BETWEEN now() - interval ''1 minute'' AND now() + interval ''1 minute'')',
            signed.name || '_add', signed.name, signed.writer, signed.moment
        );
    END LOOP;
END
$$;
DROP POLICY IF EXISTS evaluation_clear ON mmdb.evaluation;  -- as forget does
CREATE POLICY evaluation_clear ON mmdb.evaluation FOR UPDATE TO mmdb_admin USING (TRUE) WITH CHECK (figures IS NULL);
-- What drift found is forgotten after a while; by whom it was found.
GRANT INSERT, DELETE ON mmdb.drift_check TO mmdb_trainer;
ALTER TABLE mmdb.drift_check ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS drift_check_read ON mmdb.drift_check;
CREATE POLICY drift_check_read ON mmdb.drift_check FOR SELECT TO mmdb_reader USING (TRUE);
DROP POLICY IF EXISTS drift_check_own ON mmdb.drift_check;
CREATE POLICY drift_check_own ON mmdb.drift_check TO mmdb_trainer USING (author = session_user) WITH CHECK (author = session_user);
-- Statements run as their callers here.
GRANT EXECUTE ON FUNCTION mmdb.caller(), mmdb.caller_owns(), mmdb.caller_is(text) TO mmdb_trainer;
-- A database that was on one server has its statements as functions.
DROP SCHEMA IF EXISTS mmdb_call CASCADE;
