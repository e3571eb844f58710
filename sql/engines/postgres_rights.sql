-- Who may do what; run at each install, after the functions and views.
--   mmdb_predictor  predicts by models, and nothing else
--   mmdb_reader   selects from the views and asks for lineage, and nothing else
--   mmdb_trainer  also registers datasets, creates runs, trains, saves and predicts
--   mmdb_worker   serves the runs of all teams, as the login of workers
--   mmdb_admin    also collects garbage, forgets rows, sets the price of a worker's hour, and registers what the owner has allowed
-- The owner of the schema alone decides which code may be registered, and by which login the server's workers come.

-- Roles belong to the whole server: an install in another database may make them at this moment.
DO $$
DECLARE
    named name;
BEGIN
    FOREACH named IN ARRAY ARRAY['mmdb_predictor', 'mmdb_reader', 'mmdb_trainer', 'mmdb_admin', 'mmdb_worker', 'mmdb_system', 'mmdb_system_admin']
    LOOP
        BEGIN
            IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles AS r WHERE r.rolname = named) THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', named);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;
        END;
    END LOOP;
END
$$;
DO $$
DECLARE
    granted name;
    member name;
BEGIN
    FOR granted, member IN
        VALUES
        ('mmdb_reader', 'mmdb_trainer'),
        ('mmdb_trainer', 'mmdb_admin'),
        ('mmdb_trainer', 'mmdb_worker'),
        ('mmdb_reader', 'mmdb_system'),
        ('mmdb_system', 'mmdb_system_admin'),
        ('mmdb_system_admin', current_user)  -- only a member may give it functions
    LOOP
        IF NOT pg_catalog.pg_has_role(member, granted, 'MEMBER') THEN
            EXECUTE format('GRANT %I TO %I', granted, member);
        END IF;
    END LOOP;
END
$$;

-- Inside mmdb's statements current_user is the system's role: the caller is the session's user unless that has SET ROLE.
-- Where PostgreSQL itself calls somebody's code in a session of more rights (an index's expression under ANALYZE, REINDEX or
-- autovacuum), UNLISTEN is refused, and so is the caller's name; elsewhere this UNLISTEN does nothing and costs as much.
-- What a foreign key deletes or changes in another's table calls that table's triggers as its owner: then the statement of
-- PostgreSQL's, whose text nobody can take out of the context, is among those under way.
CREATE OR REPLACE FUNCTION mmdb.caller() RETURNS name
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    around text;
BEGIN
    UNLISTEN mmdb_caller;
    GET DIAGNOSTICS around = PG_CONTEXT;
    IF around ~ '(DELETE FROM|UPDATE) ONLY .* OPERATOR\(pg_catalog\.' THEN
        RAISE insufficient_privilege USING
            MESSAGE = 'mmdb is not called where a foreign key deletes or changes rows: the caller would be whoever did so to the row that they refer to.';
    END IF;
    RETURN coalesce(nullif(pg_catalog.current_setting('role'), 'none'), session_user)::name;
END
$$;
COMMENT ON FUNCTION mmdb.caller() IS 'The role that calls, whatever function it calls through.';

CREATE OR REPLACE FUNCTION mmdb.caller_owns() RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN pg_catalog.pg_has_role(
        mmdb.caller(), (SELECT n.nspowner FROM pg_catalog.pg_namespace AS n WHERE n.nspname = 'mmdb'), 'USAGE'
    );
END
$$;
COMMENT ON FUNCTION mmdb.caller_owns() IS 'Whether the caller is the owner of mmdb, or a superuser.';

CREATE OR REPLACE FUNCTION mmdb.caller_is(role text) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN pg_catalog.pg_has_role(mmdb.caller(), caller_is.role, 'USAGE') OR mmdb.caller_owns();
END
$$;
COMMENT ON FUNCTION mmdb.caller_is(text) IS 'Whether the caller has the rights of a role, or owns mmdb.';

-- A text of the caller's under a superuser's name would be taken for that one's own.
CREATE OR REPLACE FUNCTION mmdb.new_owner() RETURNS text
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    me CONSTANT name := mmdb.caller();
    team CONSTANT text := coalesce(nullif(pg_catalog.current_setting('mmdb.team', TRUE), ''), me);
BEGIN
    IF team = me OR pg_catalog.pg_has_role(me, pg_catalog.to_regrole(pg_catalog.quote_ident(team)), 'MEMBER')
        OR (mmdb.caller_is('mmdb_worker') OR mmdb.caller_is('mmdb_admin')) AND NOT EXISTS (
            SELECT 1 FROM pg_catalog.pg_roles AS r
            WHERE r.rolname = team AND (r.rolsuper OR pg_catalog.has_schema_privilege(r.oid, 'mmdb', 'CREATE'))
        ) THEN
        RETURN team;
    END IF;
    RAISE insufficient_privilege USING
        MESSAGE = format('Role %I may not act for %I.', me, team);
END
$$;
COMMENT ON FUNCTION mmdb.new_owner() IS 'Whose a new row is: the caller''s, or that of the team which it acts for.';

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA mmdb
FROM public, mmdb_predictor, mmdb_reader, mmdb_trainer, mmdb_worker, mmdb_admin, mmdb_system, mmdb_system_admin;
REVOKE ALL ON ALL PROCEDURES IN SCHEMA mmdb
FROM public, mmdb_predictor, mmdb_reader, mmdb_trainer, mmdb_worker, mmdb_admin, mmdb_system, mmdb_system_admin;
REVOKE ALL ON ALL TABLES IN SCHEMA mmdb
FROM public, mmdb_predictor, mmdb_reader, mmdb_trainer, mmdb_worker, mmdb_admin, mmdb_system, mmdb_system_admin;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA mmdb
FROM public, mmdb_predictor, mmdb_reader, mmdb_trainer, mmdb_worker, mmdb_admin, mmdb_system, mmdb_system_admin;
REVOKE ALL ON SCHEMA mmdb
FROM public, mmdb_predictor, mmdb_reader, mmdb_trainer, mmdb_worker, mmdb_admin, mmdb_system, mmdb_system_admin;

GRANT USAGE ON SCHEMA mmdb TO mmdb_predictor, mmdb_reader;
-- Every view, but for one that showed bytes: those are tensors, states and rows of datasets.
-- A server without PL/Python has no function lineage.
DO $$
DECLARE
    visible regclass;
    askable regprocedure;
BEGIN
    FOR visible IN
        SELECT c.oid
        FROM pg_catalog.pg_class AS c
        WHERE c.relnamespace = 'mmdb'::regnamespace AND c.relkind = 'v'
            AND NOT EXISTS (
                SELECT 1 FROM pg_catalog.pg_attribute AS a
                WHERE a.attrelid = c.oid AND a.atttypid IN ('bytea'::regtype, 'bytea[]'::regtype)
            )
    LOOP
        EXECUTE format('GRANT SELECT ON %s TO mmdb_reader', visible);
    END LOOP;
    FOR askable IN
        SELECT p.oid
        FROM pg_catalog.pg_proc AS p
        WHERE p.pronamespace = 'mmdb'::regnamespace AND p.proname = 'lineage'
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO mmdb_reader', askable);
    END LOOP;
END
$$;

-- What mmdb's statements may do to its tables, and on Citus, where they run as they are, what their callers may.
-- Nobody else has a right on a table.
GRANT SELECT ON mmdb.migration TO mmdb_reader;
DO $$
DECLARE
    trains CONSTANT text := CASE WHEN current_setting('mmdb.engine', TRUE) = 'citus' THEN 'mmdb_trainer' ELSE 'mmdb_system' END;
    keeps CONSTANT text := CASE WHEN current_setting('mmdb.engine', TRUE) = 'citus' THEN 'mmdb_admin' ELSE 'mmdb_system_admin' END;
    granted text;
    member text;
BEGIN
    FOR granted, member IN
        VALUES
        ('SELECT ON
            mmdb.migration, mmdb.setting, mmdb.factory, mmdb.trainer, mmdb.function, mmdb.prediction, mmdb.evaluation,
            mmdb.alias_event, mmdb.model_note, mmdb.drift_check, mmdb.share, mmdb.role_limit', trains),
        ('SELECT, INSERT ON
            mmdb.dataset, mmdb.dataset_column, mmdb.transform, mmdb.dataset_source, mmdb.partition, mmdb.block,
            mmdb.shared_block,
            mmdb.run, mmdb.run_event, mmdb.candidate, mmdb.candidate_event, mmdb.hop,
            mmdb.checkpoint, mmdb.checkpoint_chunk, mmdb.state_chunk, mmdb.merge, mmdb.decision,
            mmdb.run_request, mmdb.run_outcome, mmdb.candidate_request, mmdb.worker, mmdb.worker_beat, mmdb.assignment,
            mmdb.tensor, mmdb.encoding, mmdb.tensor_chunk, mmdb.environment,
            mmdb.architecture, mmdb.architecture_node, mmdb.architecture_edge, mmdb.architecture_prefix, mmdb.definition,
            mmdb.manifest, mmdb.manifest_tensor, mmdb.model, mmdb.model_change, mmdb.model_member, mmdb.recipe, mmdb.recipe_tensor,
            mmdb.outline, mmdb.zoo_event, mmdb.transfer, mmdb.transfer_tensor, mmdb.warm_start,
            mmdb.profile, mmdb.plan, mmdb.estimate, mmdb.run_strategy, mmdb.step_time, mmdb.step_prediction,
            mmdb.prediction_source, mmdb.evaluation_metric, mmdb.evaluation_source, mmdb.model_origin,
            mmdb.run_total, mmdb.candidate_total, mmdb.epoch_total, mmdb.hour_total,
            mmdb.feature, mmdb.feature_part, mmdb.feature_block, mmdb.run_feature, mmdb.candidate_feature,
            mmdb.model_tag, mmdb.model_metric, mmdb.probe, mmdb.retraining', trains),
        ('SELECT, DELETE ON mmdb.schedule, mmdb.schedule_run, mmdb.scoring, mmdb.scoring_failure', trains),
        ('INSERT (schema_name, table_name, column_name, key_name, model, embedding) ON mmdb.scoring', trains),
        ('INSERT (scoring_id, row_count, row_key, sqlstate, message) ON mmdb.scoring_failure', trains),
        -- Whose a schedule is nobody may say, and what it runs is never changed.
        ('INSERT (name, statement, search_path, every_s, starts_at, is_outside) ON mmdb.schedule', trains),
        ('INSERT (schedule_id, due_at, failures, retry_at, started_at) ON mmdb.schedule_run', trains),
        ('UPDATE (tries, failures, retry_at, started_at, ended_at, outcome, sqlstate, message) ON mmdb.schedule_run', trains),
        -- Who moved an alias or wrote a note is the session's user, and when is now: nobody may say otherwise.
        ('INSERT (model, alias, version) ON mmdb.alias_event', trains),
        ('INSERT (model_id, note) ON mmdb.model_note', trains),
        (
            'INSERT (model_id, schema_name, table_name, key_name, query, row_count, seconds, embedding) ON mmdb.prediction',
            trains
        ),
        ('INSERT (model_id, dataset_id, slice, query, row_count, seconds, figures) ON mmdb.evaluation', trains),
        ('INSERT (model_id, checked_at, ordinal, column_name, role, row_count, psi, distance, p_value, nulls_before, nulls_now,
            unseen, value_before, value_now, drifted) ON mmdb.drift_check', trains),
        ('DELETE ON mmdb.drift_check', trains),
        ('UPDATE (dropped_at) ON mmdb.dataset, mmdb.model', trains),
        ('UPDATE (parent_id, definition_id, architecture_id, dataset_id, reason) ON mmdb.model', trains),
        ('UPDATE (name, dropped_at) ON mmdb.run', trains),
        ('UPDATE (value, created_at) ON mmdb.model_tag, mmdb.model_metric', trains),
        ('UPDATE (replayed_s) ON mmdb.recipe', trains),
        ('UPDATE (new_model_id, metric, old_value, new_value, chance, passed, alias, reason, ended_at) ON mmdb.retraining', trains),
        ('UPDATE (beat_at, stopped_at) ON mmdb.worker_beat', trains),
        ('UPDATE (taken_at, finished_at, sqlstate, message, hint, trace) ON mmdb.assignment', trains),
        ('UPDATE (used_at, max_error, mean_error) ON mmdb.feature', trains),
        ('UPDATE (choice, reason, candidates, uses, byte_count, compute_s, store_s, read_s, saved_s, planned_s)
            ON mmdb.run_feature', trains),
        ('DELETE ON
            mmdb.block, mmdb.shared_block, mmdb.checkpoint, mmdb.checkpoint_chunk, mmdb.state_chunk, mmdb.model_tag,
            mmdb.run_total, mmdb.candidate_total, mmdb.epoch_total, mmdb.hour_total,
            mmdb.feature_part, mmdb.feature_block', trains),
        -- What gc takes; to lock a row takes the right to change one of its columns.
        ('UPDATE (manifest_id, pack_id, architecture_id) ON mmdb.model', keeps),
        ('UPDATE (created_at) ON mmdb.tensor, mmdb.manifest', keeps),
        ('UPDATE (is_traced) ON mmdb.architecture', keeps),
        ('UPDATE (parameter_bytes) ON mmdb.architecture_prefix', keeps),
        ('DELETE ON
            mmdb.tensor, mmdb.encoding, mmdb.tensor_chunk,
            mmdb.manifest, mmdb.manifest_tensor, mmdb.model_change, mmdb.recipe_tensor, mmdb.outline,
            mmdb.architecture, mmdb.architecture_node, mmdb.architecture_edge, mmdb.architecture_prefix', keeps),
        -- What forget changes, and what it records: who called it is the session's user.
        ('UPDATE (row_count, digest, data, row_hashes) ON mmdb.block', keeps),
        ('UPDATE (masked) ON mmdb.shared_block', keeps),
        ('UPDATE (ordinal, row_count, byte_count, content_hash) ON mmdb.partition', keeps),
        ('UPDATE (partitions, validation, row_count, byte_count, content_hash, class_counts) ON mmdb.dataset', keeps),
        ('UPDATE (categories) ON mmdb.transform', keeps),
        ('UPDATE (figures) ON mmdb.evaluation', keeps),
        ('DELETE ON mmdb.evaluation_metric', keeps),
        ('SELECT ON mmdb.forgetting, mmdb.forgetting_step', trains),
        ('INSERT (dataset_id, row_count, note) ON mmdb.forgetting', keeps),
        ('INSERT ON mmdb.forgetting_step', keeps),
        ('UPDATE (action, after_hash, new_model_id, reason, done_at) ON mmdb.forgetting_step', keeps),
        ('INSERT (name, target) ON mmdb.factory, mmdb.trainer', keeps),
        ('INSERT (name, kind, target) ON mmdb.function', keeps),
        ('INSERT (name, kind, definition) ON mmdb.function', trains)
    LOOP
        EXECUTE format('GRANT %s TO %I', granted, member);
    END LOOP;
END
$$;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA mmdb TO mmdb_trainer, mmdb_system;
REVOKE EXECUTE ON FUNCTION mmdb.caller(), mmdb.caller_owns(), mmdb.caller_is(text) FROM mmdb_trainer;
GRANT EXECUTE ON ALL PROCEDURES IN SCHEMA mmdb TO mmdb_trainer;
GRANT EXECUTE ON FUNCTION mmdb.too_long(integer) TO mmdb_predictor;  -- which domain mmdb.numbers asks
-- A predictor may not read what a model is made of, so that predict and generate read it with the system's rights. They
-- take a row or a text and no query. On Citus statements run with their caller's rights, and predictors have none.
DO $$
DECLARE
    predicts record;
BEGIN
    FOR predicts IN
        SELECT p.oid::regprocedure AS called, l.lanname = 'plpython3u' AS reads
        FROM pg_catalog.pg_proc AS p
        INNER JOIN pg_catalog.pg_language AS l ON p.prolang = l.oid
        WHERE p.pronamespace = 'mmdb'::regnamespace AND p.proname IN ('predict', 'generate')
            AND current_setting('mmdb.engine', TRUE) IS DISTINCT FROM 'citus'
    LOOP
        IF predicts.reads THEN
            EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER', predicts.called);
            EXECUTE format('ALTER FUNCTION %s OWNER TO mmdb_system', predicts.called);
        END IF;
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO mmdb_predictor', predicts.called);
    END LOOP;
END
$$;
-- Those that bring in code; a server without PL/Python has none of them.
DO $$
DECLARE
    brings_code regprocedure;
BEGIN
    FOR brings_code IN
        SELECT p.oid
        FROM pg_catalog.pg_proc AS p
        WHERE p.pronamespace = 'mmdb'::regnamespace AND p.proname LIKE 'register\_%'
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM mmdb_trainer', brings_code);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO mmdb_admin', brings_code);
    END LOOP;
END
$$;

-- Code: an admin registers what the owner has named in setting 'admin_targets', a list with commas of
-- package, package.module or package.module:callable. Row security holds for plain INSERTs, too.
DO $$
DECLARE
    allowing text;
BEGIN
    FOREACH allowing IN ARRAY ARRAY['factory', 'trainer', 'function']
    LOOP
        EXECUTE format('ALTER TABLE mmdb.%I ENABLE ROW LEVEL SECURITY', allowing);
        EXECUTE format('DROP POLICY IF EXISTS %I ON mmdb.%I', allowing || '_read', allowing);
        EXECUTE format(
            'CREATE POLICY %I ON mmdb.%I FOR SELECT TO public USING (true)',
            allowing || '_read', allowing
        );
        EXECUTE format('DROP POLICY IF EXISTS %I ON mmdb.%I', allowing || '_add', allowing);
        -- Citus refuses a policy that reads another table: there, only the owner registers code.
        CONTINUE WHEN current_setting('mmdb.engine', TRUE) = 'citus';
        EXECUTE format(
            'CREATE POLICY %1$I ON mmdb.%2$I FOR INSERT TO public WITH CHECK (mmdb.caller_owns() OR mmdb.caller_is(''mmdb_admin'') AND EXISTS ('
            'SELECT 1 FROM mmdb.setting AS s'
            ' CROSS JOIN LATERAL regexp_split_to_table(btrim(s.value), ''\s*,\s*'') AS a (allowed)'
            ' WHERE s.name = ''admin_targets'' AND (%2$I.target = a.allowed'
            ' OR starts_with(%2$I.target, a.allowed || ''.'')'
            ' OR starts_with(%2$I.target, a.allowed || '':''))))',
            allowing || '_add', allowing
        );
    END LOOP;
    -- The text of a tokenizer.json is data: a check holds that its target names no code.
    DROP POLICY IF EXISTS function_add_text ON mmdb.function;
    CREATE POLICY function_add_text ON mmdb.function FOR INSERT TO public WITH CHECK (definition IS NOT NULL);
END
$$;

-- A schedule's statement runs with the rights of its owner: the login that stored it, which no setting changes. Others,
-- but for members of that role and admins, neither see it nor drop it, with teams and without. On Citus there are none.
GRANT EXECUTE ON FUNCTION mmdb.keeps(text) TO mmdb_reader;
DO $$
DECLARE
    own CONSTANT text := 'mmdb.keeps(owner)';
    scored CONSTANT text := 'EXISTS (SELECT 1 FROM mmdb.scoring AS s WHERE s.scoring_id = scoring_failure.scoring_id)';
    of_own CONSTANT text := 'EXISTS (SELECT 1 FROM mmdb.schedule AS s WHERE s.schedule_id = schedule_run.schedule_id)';
    guarded text[];
BEGIN
    IF current_setting('mmdb.engine', TRUE) = 'citus' THEN
        RETURN;
    END IF;
    ALTER TABLE mmdb.schedule ALTER COLUMN owner SET DEFAULT mmdb.caller();
    ALTER TABLE mmdb.scoring ALTER COLUMN owner SET DEFAULT mmdb.caller();
    FOREACH guarded SLICE 1 IN ARRAY ARRAY[
        ['schedule', own, 'owner = mmdb.caller()'],
        ['schedule_run', of_own, replace(of_own, 's.schedule_id =', 's.owner = mmdb.caller() AND s.schedule_id =')],
        ['scoring', own, 'owner = mmdb.caller()'],
        ['scoring_failure', scored, 'TRUE']  -- it is whoever inserts that meets it
    ]
    LOOP
        EXECUTE format('ALTER TABLE mmdb.%I ENABLE ROW LEVEL SECURITY', guarded[1]);
        EXECUTE format('DROP POLICY IF EXISTS %I ON mmdb.%I', guarded[1] || '_keeps', guarded[1]);
        EXECUTE format('CREATE POLICY %I ON mmdb.%I FOR ALL TO public USING (%s) WITH CHECK (%s)', guarded[1] || '_keeps', guarded[1], guarded[2], guarded[3]);
    END LOOP;
END
$$;

-- The one setting that is not the owner's alone.
CREATE OR REPLACE FUNCTION mmdb.set_price(per_worker_hour double precision) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF per_worker_hour IS NOT NULL AND NOT (per_worker_hour >= 0 AND per_worker_hour <= 1e9) THEN
        RAISE EXCEPTION USING ERRCODE = 'MM143', MESSAGE = format('A price of %s is none.', per_worker_hour),
            HINT = 'Give a number from 0 to 1e9, or NULL for no price.';
    END IF;
    DELETE FROM mmdb.setting WHERE name = 'price_per_worker_hour';
    IF per_worker_hour IS NOT NULL THEN
        INSERT INTO mmdb.setting (name, value) VALUES ('price_per_worker_hour', round(per_worker_hour::numeric, 9)::text);
    END IF;
END
$$;
COMMENT ON FUNCTION mmdb.set_price(double precision)
IS 'Set what an hour of a worker costs, for run_cost; NULL is no price.';
REVOKE ALL ON FUNCTION mmdb.set_price(double precision) FROM public, mmdb_trainer, mmdb_system;
GRANT EXECUTE ON FUNCTION mmdb.set_price(double precision) TO mmdb_admin;

-- Whose a new row is: the caller's, or by ALTER ROLE ... SET mmdb.team its team's. With teams, policies hold it true.
DO $$
DECLARE
    owned text;
BEGIN
    FOREACH owned IN ARRAY ARRAY['dataset', 'run', 'manifest', 'model']
    LOOP
        EXIT WHEN current_setting('mmdb.engine', TRUE) = 'citus';
        EXECUTE format(
            'ALTER TABLE mmdb.%I ALTER COLUMN owner SET DEFAULT mmdb.new_owner()',
            owned
        );
    END LOOP;
END
$$;
