-- Row security between teams; run at each install of a database with teams, after the rights.
--   A dataset, run or model belongs to a role, its owner, and to that role's members: a team. What hangs on one belongs with it.
--   A team changes what is its own, and reads besides what was shared with it (mmdb.share) and what is nobody's (owner null).
--   Tensors are stored for each owner apart: nobody learns by a hash, or by naming a number, what another team has.
--   mmdb_admin (who collects garbage) and mmdb_worker (who trains for all) see every row, as the owner of the schema does.

-- The roles whose rows the caller may see: its own, those it is a member of, public; pg_all_teams, which PostgreSQL lets
-- nobody call a role, is every row.
CREATE OR REPLACE FUNCTION mmdb.own_roles() RETURNS text[]
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    me CONSTANT name := mmdb.caller();
BEGIN
    IF pg_catalog.pg_has_role(me, 'mmdb_admin', 'USAGE') OR pg_catalog.pg_has_role(me, 'mmdb_worker', 'USAGE')
        OR mmdb.caller_owns() THEN
        RETURN ARRAY['pg_all_teams'];
    END IF;
    RETURN ARRAY(
        WITH RECURSIVE r (role) AS (
            SELECT pg_catalog.to_regrole(pg_catalog.quote_ident(me))::oid
            UNION
            SELECT m.roleid FROM pg_catalog.pg_auth_members AS m INNER JOIN r ON m.member = r.role
        )

        SELECT pg_catalog.pg_get_userbyid(r.role)::text FROM r
    ) || 'public'::text;
END
$$;
COMMENT ON FUNCTION mmdb.own_roles() IS 'Roles whose rows the caller may see: its own and those it is a member of; pg_all_teams is all.';

-- The policies ask a setting for the caller's roles, which each of mmdb's own statements writes anew before it begins: so
-- a statement takes as long where it meets another team's row as where there is none. Nobody else can read a table, so a
-- setting that somebody wrote by hand is never read. Where nothing of others is or was the caller's to read, no row of theirs
-- is looked at closer.
CREATE OR REPLACE FUNCTION mmdb.know_caller() RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    roles CONSTANT text[] := mmdb.own_roles();
BEGIN
    PERFORM pg_catalog.set_config('mmdb_call.roles', CASE
        WHEN 'pg_all_teams' = ANY (roles) THEN '*'
        ELSE (SELECT ',' || string_agg(quote_literal(r.role), ',') || ',' FROM unnest(roles) AS r (role))
    END, TRUE);
    PERFORM pg_catalog.set_config(
        'mmdb_call.reads_others', EXISTS (SELECT 1 FROM mmdb.share AS s WHERE s.role = ANY (roles))::text, TRUE
    );
END
$$;
COMMENT ON FUNCTION mmdb.know_caller() IS 'Write down, for the policies, which rows the caller may see; for nobody else to call.';

-- Without a setting of its own, so that it becomes part of the policies' plans.
CREATE OR REPLACE FUNCTION mmdb.sees(owner text) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
RETURN pg_catalog.current_setting('mmdb_call.roles') = '*' OR pg_catalog.strpos(
    pg_catalog.current_setting('mmdb_call.roles'), ',' || pg_catalog.quote_literal(owner) || ','
) > 0;
COMMENT ON FUNCTION mmdb.sees(text) IS 'Whether the rows of an owner are the caller''s to see, after know_caller.';

CREATE OR REPLACE FUNCTION mmdb.is_callers(owner text) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN mmdb.own_roles() && ARRAY[coalesce(owner, 'public'), 'pg_all_teams'];
END
$$;
COMMENT ON FUNCTION mmdb.is_callers(text) IS 'Whether the caller is a role or a member of it; null is everybody.';

-- The functions below look past the policies (SECURITY DEFINER), which could not ask their own tables. Each answers yes
-- or no about the caller.
CREATE OR REPLACE FUNCTION mmdb.reads_model(model_id bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER COST 1000
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (
        SELECT 1 FROM mmdb.model AS m WHERE m.model_id = reads_model.model_id AND (
            mmdb.sees(coalesce(m.owner, 'public')) OR EXISTS (
                SELECT 1 FROM mmdb.share AS s
                WHERE s.kind = 'model' AND s.object_id = m.model_id AND mmdb.sees(s.role)
            )
        )
    );
END
$$;
COMMENT ON FUNCTION mmdb.reads_model(bigint) IS 'Whether the caller may read a model.';

CREATE OR REPLACE FUNCTION mmdb.reads_manifest(manifest_id bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER COST 1000
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (
        SELECT 1 FROM mmdb.model AS m
        WHERE m.manifest_id = reads_manifest.manifest_id AND mmdb.reads_model(m.model_id)
    );
END
$$;
COMMENT ON FUNCTION mmdb.reads_manifest(bigint) IS 'Whether the caller may read a model that has this list of tensors.';

-- A difference is read with its base, which is no difference itself.
CREATE OR REPLACE FUNCTION mmdb.reads_tensor(tensor_id bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER COST 1000
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    held bigint;
BEGIN
    FOR held IN
        SELECT reads_tensor.tensor_id
        UNION ALL
        SELECT e.tensor_id FROM mmdb.encoding AS e WHERE e.base_id = reads_tensor.tensor_id
    LOOP
        IF EXISTS (
            SELECT 1 FROM mmdb.manifest_tensor AS e INNER JOIN mmdb.model AS m ON e.manifest_id = m.manifest_id
            WHERE e.tensor_id = held AND mmdb.reads_model(m.model_id)
        ) OR EXISTS (
            SELECT 1 FROM mmdb.model AS m WHERE m.pack_id = held AND mmdb.reads_model(m.model_id)
        ) OR EXISTS (
            SELECT 1 FROM mmdb.model_change AS c WHERE c.tensor_id = held AND mmdb.reads_model(c.model_id)
        ) OR EXISTS (
            SELECT 1 FROM mmdb.recipe_tensor AS r WHERE r.tensor_id = held AND mmdb.reads_model(r.model_id)
        ) OR EXISTS (
            SELECT 1 FROM mmdb.tensor AS t WHERE t.tensor_id = held AND held <> reads_tensor.tensor_id
                AND t.owner <> '' AND mmdb.sees(t.owner)
        ) THEN
            RETURN TRUE;
        END IF;
    END LOOP;
    RETURN FALSE;
END
$$;
COMMENT ON FUNCTION mmdb.reads_tensor(bigint) IS 'Whether the caller may read a model that holds this tensor, or one that differs from it.';

CREATE OR REPLACE FUNCTION mmdb.shows_dataset(dataset_id bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER COST 1000
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (
        SELECT 1 FROM mmdb.model AS m WHERE m.dataset_id = shows_dataset.dataset_id AND mmdb.reads_model(m.model_id)
    ) OR EXISTS (
        SELECT 1 FROM mmdb.run AS r WHERE r.dataset_id = shows_dataset.dataset_id AND (
            mmdb.sees(coalesce(r.owner, 'public')) OR EXISTS (
                SELECT 1 FROM mmdb.share AS s WHERE s.kind = 'run' AND s.object_id = r.run_id AND mmdb.sees(s.role)
            )
        )
    );
END
$$;
COMMENT ON FUNCTION mmdb.shows_dataset(bigint)
IS 'Whether a model or run that the caller may read was made on a dataset: its columns are shown, its rows are not.';

CREATE OR REPLACE FUNCTION mmdb.owns_candidate(candidate_id bigint) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER COST 1000
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN EXISTS (
        SELECT 1 FROM mmdb.candidate AS c INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
        WHERE c.candidate_id = owns_candidate.candidate_id AND mmdb.sees(coalesce(r.owner, 'public'))
    );
END
$$;
COMMENT ON FUNCTION mmdb.owns_candidate(bigint) IS 'Whether a candidate is of a run of the caller''s.';

CREATE OR REPLACE FUNCTION mmdb.owns_name(model text) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER COST 1000
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN NOT EXISTS (SELECT 1 FROM mmdb.model AS m WHERE m.name = owns_name.model AND NOT mmdb.sees(coalesce(m.owner, 'public')));
END
$$;
COMMENT ON FUNCTION mmdb.owns_name(text) IS 'Whether every version of a model is the caller''s, or there is none.';

-- What a team lets others read. These write mmdb.share in its name, so they look past the policies too.
CREATE OR REPLACE FUNCTION mmdb.share_objects(kind text, object_ids bigint[], role text, shared boolean) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    changed bigint;
BEGIN
    IF share_objects.role IS NULL OR share_objects.role = ''
        OR share_objects.role <> 'public' AND pg_catalog.to_regrole(pg_catalog.quote_ident(share_objects.role)) IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'MM143', MESSAGE = format('There is no role %L.', share_objects.role),
            HINT = 'Name a role of this server, or public for everybody.';
    END IF;
    IF share_objects.shared THEN
        INSERT INTO mmdb.share (kind, object_id, role)
        SELECT share_objects.kind, o.object_id, share_objects.role FROM unnest(object_ids) AS o (object_id)
        ON CONFLICT DO NOTHING;
    ELSE
        INSERT INTO mmdb.share (kind, object_id, role)  -- what was made of it meanwhile rests on it
        SELECT 'past', s.object_id, s.role FROM mmdb.share AS s
        WHERE s.kind = share_objects.kind AND s.object_id = ANY (object_ids) AND s.role = share_objects.role
        ON CONFLICT DO NOTHING;
        DELETE FROM mmdb.share AS s
        WHERE s.kind = share_objects.kind AND s.object_id = ANY (object_ids) AND s.role = share_objects.role;
    END IF;
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN changed;
END
$$;
COMMENT ON FUNCTION mmdb.share_objects(text, bigint[], text, boolean) IS 'What share_model and its like do; for nobody else to call.';

CREATE OR REPLACE FUNCTION mmdb.share_model(model text, role text, shared boolean DEFAULT TRUE) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found CONSTANT bigint[] := ARRAY(
        SELECT m.model_id
        FROM mmdb.model AS m
        WHERE
            (m.dropped_at IS NULL OR NOT share_model.shared) AND mmdb.is_callers(m.owner)
            AND share_model.model IN (m.name, m.name || '@' || m.version::text)
    );
BEGIN
    IF cardinality(found) = 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'MM156', MESSAGE = format('There is no model %L of yours.', share_model.model),
            HINT = 'Its owner shares it: SELECT name, owner FROM mmdb.model.';
    END IF;
    RETURN mmdb.share_objects('model', found, share_model.role, share_model.shared);
END
$$;
COMMENT ON FUNCTION mmdb.share_model(text, text, boolean)
IS 'Let a role read name@version, or every version that name has by now; false takes it back. Returns how many changed.';

CREATE OR REPLACE FUNCTION mmdb.share_dataset(dataset text, role text, shared boolean DEFAULT TRUE) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found CONSTANT bigint[] := ARRAY(
        SELECT d.dataset_id
        FROM mmdb.dataset AS d
        WHERE
            d.name = share_dataset.dataset AND (d.dropped_at IS NULL OR NOT share_dataset.shared)
            AND mmdb.is_callers(d.owner)
    );
BEGIN
    IF cardinality(found) = 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'MM151', MESSAGE = format('There is no dataset %L of yours.', share_dataset.dataset),
            HINT = 'Its owner shares it: SELECT name, owner FROM mmdb.dataset.';
    END IF;
    RETURN mmdb.share_objects('dataset', found, share_dataset.role, share_dataset.shared);
END
$$;
COMMENT ON FUNCTION mmdb.share_dataset(text, text, boolean)
IS 'Let a role read a dataset''s rows and train on them; false takes it back. Returns how many changed.';

CREATE OR REPLACE FUNCTION mmdb.share_run(run text, role text, shared boolean DEFAULT TRUE) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found CONSTANT bigint[] := ARRAY(
        SELECT r.run_id
        FROM mmdb.run AS r
        WHERE r.name = share_run.run AND mmdb.is_callers(r.owner)
    );
BEGIN
    IF cardinality(found) = 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'MM153', MESSAGE = format('There is no run %L of yours.', share_run.run),
            HINT = 'Its owner shares it: SELECT name, owner FROM mmdb.run.';
    END IF;
    RETURN mmdb.share_objects('run', found, share_run.role, share_run.shared);
END
$$;
COMMENT ON FUNCTION mmdb.share_run(text, text, boolean)
IS 'Let a role see a run, its candidates and hops; false takes it back. Returns how many changed.';

-- What is given to another team rests on tensors and datasets of the one that had it.
CREATE OR REPLACE FUNCTION mmdb.note_past_owner() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO mmdb.share (kind, object_id, role) VALUES ('past', 0, coalesce(new.owner, 'public')) ON CONFLICT DO NOTHING;
    RETURN new;
END
$$;
COMMENT ON FUNCTION mmdb.note_past_owner() IS 'Write down that a role has what came from another team; for its triggers.';
CREATE OR REPLACE TRIGGER model_given AFTER UPDATE OF owner ON mmdb.model
FOR EACH ROW EXECUTE FUNCTION mmdb.note_past_owner();
CREATE OR REPLACE TRIGGER run_given AFTER UPDATE OF owner ON mmdb.run
FOR EACH ROW EXECUTE FUNCTION mmdb.note_past_owner();

REVOKE ALL ON FUNCTION
mmdb.own_roles(), mmdb.know_caller(), mmdb.note_past_owner(), mmdb.sees(text), mmdb.is_callers(text), mmdb.reads_model(bigint),
mmdb.reads_manifest(bigint), mmdb.reads_tensor(bigint), mmdb.shows_dataset(bigint), mmdb.owns_candidate(bigint), mmdb.owns_name(text),
mmdb.share_model(text, text, boolean), mmdb.share_dataset(text, text, boolean), mmdb.share_run(text, text, boolean),
mmdb.share_objects(text, bigint[], text, boolean)
FROM public, mmdb_trainer, mmdb_system;
-- As the policies ask them, and nobody else.
GRANT EXECUTE ON FUNCTION
mmdb.own_roles(), mmdb.know_caller(), mmdb.sees(text), mmdb.is_callers(text), mmdb.reads_model(bigint), mmdb.reads_manifest(bigint),
mmdb.reads_tensor(bigint), mmdb.shows_dataset(bigint), mmdb.owns_candidate(bigint), mmdb.owns_name(text)
TO mmdb_system;
GRANT EXECUTE ON FUNCTION
mmdb.share_model(text, text, boolean), mmdb.share_dataset(text, text, boolean), mmdb.share_run(text, text, boolean)
TO mmdb_trainer;
