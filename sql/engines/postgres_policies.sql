-- Which rows each role reads and writes in a database with teams; run after postgres_teams.sql.

-- A share of kind past says that a role has had something of another team's, on which what it made may rest. Before there
-- were teams, whoever saved a model shared its tensors with all others.
DO $$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM pg_catalog.pg_constraint AS c
        WHERE c.conrelid = 'mmdb.share'::regclass AND c.conname = 'share_past_check'
    ) THEN
        ALTER TABLE mmdb.share DROP CONSTRAINT share_kind_check;
        ALTER TABLE mmdb.share ADD CONSTRAINT share_past_check CHECK (kind IN ('dataset', 'run', 'model', 'past'));
        INSERT INTO mmdb.share (kind, object_id, role)
        SELECT 'past', 0, coalesce(o.owner, 'public')
        FROM (SELECT m.owner FROM mmdb.model AS m UNION SELECT r.owner FROM mmdb.run AS r) AS o
        ON CONFLICT DO NOTHING;
    END IF;
END
$$;

-- One line a table: who reads a row and who writes it, after the row that it hangs on. In the texts
--   [X.owner]  the row is the caller's or its team's, or nobody's; [X.owner|] not nobody's; [kind X.id] it is shared with the caller
-- An UPDATE of what is only read fails; to lock such a row is allowed. A DELETE of it finds nothing.
DO $$
DECLARE
    own CONSTANT text := 'mmdb.sees(coalesce(\1, ''public''))';
    own_alone CONSTANT text := 'mmdb.sees(\1)';
    -- No team is everybody: what is new there would count for nobody's limits.
    own_name CONSTANT text := 'coalesce(T.owner, ''public'') NOT IN'
    || ' (''public'', ''mmdb_predictor'', ''mmdb_reader'', ''mmdb_trainer'', ''mmdb_worker'', ''mmdb_admin'', ''mmdb_system'', ''mmdb_system_admin'')';
    others CONSTANT text := 'pg_catalog.current_setting(''mmdb_call.reads_others'')::boolean';
    shared CONSTANT text := '(' || others || ' AND EXISTS (SELECT 1 FROM mmdb.share AS s'
    || ' WHERE s.kind = ''\1'' AND s.object_id = \2 AND mmdb.sees(s.role)))';
    run_reads CONSTANT text := 'EXISTS (SELECT 1 FROM mmdb.run AS r WHERE r.run_id = T.run_id)';
    run_writes CONSTANT text := 'EXISTS (SELECT 1 FROM mmdb.run AS r WHERE r.run_id = T.run_id AND [r.owner])';
    candidate_reads CONSTANT text := 'EXISTS (SELECT 1 FROM mmdb.candidate AS c WHERE c.candidate_id = T.candidate_id)';
    candidate_writes CONSTANT text := 'EXISTS (SELECT 1 FROM mmdb.candidate AS c INNER JOIN mmdb.run AS r'
    || ' ON c.run_id = r.run_id WHERE c.candidate_id = T.candidate_id AND [r.owner])';
    dataset_reads CONSTANT text := 'EXISTS (SELECT 1 FROM mmdb.dataset AS d WHERE d.dataset_id = T.dataset_id)';
    dataset_writes CONSTANT text := 'EXISTS (SELECT 1 FROM mmdb.dataset AS d WHERE d.dataset_id = T.dataset_id AND [d.owner])';
    rows_read CONSTANT text := 'EXISTS (SELECT 1 FROM mmdb.dataset AS d WHERE d.dataset_id = T.dataset_id'
    || ' AND ([d.owner] OR [dataset d.dataset_id] OR [dataset d.origin_id]))';
    model_reads CONSTANT text := 'EXISTS (SELECT 1 FROM mmdb.model AS m WHERE m.model_id = T.model_id)';
    model_writes CONSTANT text := 'EXISTS (SELECT 1 FROM mmdb.model AS m WHERE m.model_id = T.model_id AND [m.owner])';
    tensor_reads CONSTANT text := 'EXISTS (SELECT 1 FROM mmdb.tensor AS t WHERE t.tensor_id = T.tensor_id)';
    tensor_writes CONSTANT text := 'EXISTS (SELECT 1 FROM mmdb.tensor AS t WHERE t.tensor_id = T.tensor_id'
    || ' AND ([t.owner|] OR t.owner = ''''))';
    features_own CONSTANT text := '([T.owner|] OR T.owner = '''') AND ' || rows_read;
    feature_has CONSTANT text := 'EXISTS (SELECT 1 FROM mmdb.feature AS f WHERE f.feature_id = T.feature_id)';
    nobody CONSTANT text := 'FALSE';
    guarded record;
    policy text[];
    made text;
BEGIN
    FOR guarded IN
        SELECT g.*
        FROM (
            VALUES
            ('dataset', '[T.owner] OR [dataset T.dataset_id] OR [dataset T.origin_id] OR ' || others || ' AND mmdb.shows_dataset(T.dataset_id)', '[T.owner]'),
            ('dataset_column', dataset_reads, dataset_writes),
            ('transform', dataset_reads, dataset_writes),
            ('dataset_source', dataset_reads, dataset_writes),
            ('partition', dataset_reads, dataset_writes),
            (
                'block',
                replace('EXISTS (SELECT 1 FROM mmdb.partition AS p WHERE p.part_id = T.part_id AND ' || rows_read || ')', 'd.dataset_id = T.', 'd.dataset_id = p.'),
                replace('EXISTS (SELECT 1 FROM mmdb.partition AS p WHERE p.part_id = T.part_id AND ' || dataset_writes || ')', 'd.dataset_id = T.', 'd.dataset_id = p.')
            ),
            (
                'shared_block',
                replace('EXISTS (SELECT 1 FROM mmdb.partition AS p WHERE p.part_id = T.part_id AND ' || rows_read || ')', 'd.dataset_id = T.', 'd.dataset_id = p.'),
                replace('EXISTS (SELECT 1 FROM mmdb.partition AS p WHERE p.part_id = T.part_id AND ' || dataset_writes || ')', 'd.dataset_id = T.', 'd.dataset_id = p.')
            ),

            -- Whoever may train on a dataset may compute features of it, for its own team: those of another team's are never
            -- trained on, as whoever made them may have made them up.
            ('feature', features_own, features_own),
            ('feature_part', feature_has, feature_has),
            ('feature_block', feature_has, feature_has),

            ('run', '[T.owner] OR [run T.run_id]', '[T.owner] AND ' || rows_read),
            ('run_event', run_reads, run_writes),
            ('run_request', run_reads, run_writes),
            ('run_outcome', run_reads, run_writes),
            ('run_strategy', run_reads, run_writes),
            ('run_total', run_reads, run_writes),
            ('candidate_total', run_reads, run_writes),
            ('epoch_total', run_reads, run_writes),
            ('hour_total', run_reads, run_writes),
            ('decision', run_reads, run_writes),
            ('plan', run_reads, run_writes),
            (
                'estimate',
                'EXISTS (SELECT 1 FROM mmdb.plan AS p WHERE p.plan_id = T.plan_id)',
                'EXISTS (SELECT 1 FROM mmdb.plan AS p INNER JOIN mmdb.run AS r ON p.run_id = r.run_id WHERE p.plan_id = T.plan_id AND [r.owner])'
            ),
            ('candidate', run_reads, run_writes || ' AND (T.parent_id IS NULL OR mmdb.owns_candidate(T.parent_id))'),
            ('candidate_event', candidate_reads, candidate_writes),
            ('candidate_request', candidate_reads, candidate_writes),
            ('hop', candidate_reads, candidate_writes),
            ('merge', candidate_reads, candidate_writes),
            ('checkpoint', candidate_reads, candidate_writes),
            -- A run that is shared is there to look at: weights are read where the run or a model is one's own.
            ('checkpoint_chunk', candidate_writes, candidate_writes),
            ('state_chunk', candidate_writes, candidate_writes),
            ('step_time', candidate_reads, candidate_writes),
            ('run_feature', run_reads, run_writes || ' AND ' || feature_has),
            ('candidate_feature', candidate_reads, candidate_writes || ' AND ' || feature_has),
            ('step_prediction', candidate_reads, candidate_writes),
            (
                'warm_start', candidate_reads,
                candidate_writes || ' AND (T.transfer_id IS NULL OR EXISTS (SELECT 1 FROM mmdb.transfer AS f WHERE f.transfer_id = T.transfer_id))'
            ),
            ('assignment', candidate_reads, nobody),
            ('worker', 'TRUE', nobody),
            ('worker_beat', 'TRUE', nobody),

            (
                'model', '[T.owner] OR [model T.model_id]',
                '[T.owner] AND mmdb.owns_name(T.name)'
                || ' AND (T.parent_id IS NULL OR mmdb.reads_model(T.parent_id))'
                || ' AND (T.manifest_id IS NULL OR EXISTS (SELECT 1 FROM mmdb.manifest AS l WHERE l.manifest_id = T.manifest_id))'
                || ' AND (T.pack_id IS NULL OR EXISTS (SELECT 1 FROM mmdb.tensor AS t WHERE t.tensor_id = T.pack_id))'
                || ' AND (T.dataset_id IS NULL OR ' || dataset_reads || ')'
                || ' AND (T.candidate_id IS NULL OR mmdb.owns_candidate(T.candidate_id))'
            ),
            ('model_change', model_reads, model_writes || ' AND ' || tensor_reads),
            ('model_member', model_reads, model_writes || ' AND mmdb.owns_candidate(T.candidate_id)'),
            ('recipe', model_reads, model_writes),
            ('recipe_tensor', model_reads, model_writes || ' AND ' || tensor_reads),
            ('model_tag', model_reads, model_writes),
            ('model_metric', model_reads, model_writes),
            ('retraining', run_reads, run_writes),
            ('forgetting', dataset_reads, dataset_writes),
            (
                'forgetting_step', 'EXISTS (SELECT 1 FROM mmdb.forgetting AS f WHERE f.forgetting_id = T.forgetting_id)',
                'EXISTS (SELECT 1 FROM mmdb.forgetting AS f WHERE f.forgetting_id = T.forgetting_id)'
            ),
            ('model_note', model_reads, model_writes),
            ('model_origin', model_reads, model_writes),
            ('probe', 'T.model_id IS NULL OR ' || model_reads, 'T.model_id IS NULL OR ' || model_reads),
            ('zoo_event', model_reads, model_writes || ' OR T.event = ''hit'' AND ' || model_reads),
            (
                'alias_event',
                'EXISTS (SELECT 1 FROM mmdb.model AS m WHERE m.name = T.model AND m.version = coalesce(T.version, m.version))',
                'EXISTS (SELECT 1 FROM mmdb.model AS m WHERE m.name = T.model AND [m.owner]) AND mmdb.owns_name(T.model)'
            ),
            ('prediction', 'T.author = session_user OR [T.author] OR ' || model_writes, model_reads),
            (
                'prediction_source', 'EXISTS (SELECT 1 FROM mmdb.prediction AS p WHERE p.prediction_id = T.prediction_id)',
                'EXISTS (SELECT 1 FROM mmdb.prediction AS p WHERE p.prediction_id = T.prediction_id AND p.author = session_user)'
            ),
            ('evaluation', 'T.author = session_user OR [T.author] OR ' || model_writes, model_reads),
            (
                'evaluation_metric', 'EXISTS (SELECT 1 FROM mmdb.evaluation AS e WHERE e.evaluation_id = T.evaluation_id)',
                'EXISTS (SELECT 1 FROM mmdb.evaluation AS e WHERE e.evaluation_id = T.evaluation_id AND e.author = session_user)'
            ),
            (
                'evaluation_source', 'EXISTS (SELECT 1 FROM mmdb.evaluation AS e WHERE e.evaluation_id = T.evaluation_id)',
                'EXISTS (SELECT 1 FROM mmdb.evaluation AS e WHERE e.evaluation_id = T.evaluation_id AND e.author = session_user)'
            ),
            ('drift_check', 'T.author = session_user OR [T.author] OR ' || model_writes, model_reads),
            (
                'transfer',
                'T.model_id IS NOT NULL AND ' || model_reads || ' OR T.candidate_id IS NOT NULL AND ' || candidate_reads,
                '(T.parent_id IS NULL OR mmdb.reads_model(T.parent_id))'
                || ' AND (T.parent_candidate_id IS NULL OR mmdb.owns_candidate(T.parent_candidate_id))'
                || ' AND (T.model_id IS NULL OR ' || model_writes || ') AND (T.candidate_id IS NULL OR ' || candidate_writes || ')'
            ),
            (
                'transfer_tensor', 'EXISTS (SELECT 1 FROM mmdb.transfer AS f WHERE f.transfer_id = T.transfer_id)',
                'EXISTS (SELECT 1 FROM mmdb.transfer AS f WHERE f.transfer_id = T.transfer_id)'
            ),

            ('manifest', '[T.owner|] OR (T.owner IS NULL OR ' || others || ') AND mmdb.reads_manifest(T.manifest_id)', '[T.owner|]'),
            (
                'manifest_tensor', 'EXISTS (SELECT 1 FROM mmdb.manifest AS l WHERE l.manifest_id = T.manifest_id)',
                'EXISTS (SELECT 1 FROM mmdb.manifest AS l WHERE l.manifest_id = T.manifest_id AND [l.owner|]) AND ' || tensor_reads
            ),
            ('tensor', '[T.owner|] OR (T.owner = '''' OR ' || others || ') AND mmdb.reads_tensor(T.tensor_id)', '[T.owner|]'),
            (
                'encoding', tensor_reads,
                tensor_writes || ' AND (T.base_id IS NULL OR EXISTS (SELECT 1 FROM mmdb.tensor AS b WHERE b.tensor_id = T.base_id))'
            ),
            -- A tensor that has its chunks gets no more of them.
            (
                'tensor_chunk', tensor_reads,
                tensor_writes || ' AND NOT EXISTS (SELECT 1 FROM mmdb.encoding AS e WHERE e.tensor_id = T.tensor_id)'
            )
        ) AS g (name, reads, writes)
    LOOP
        FOREACH policy SLICE 1 IN ARRAY ARRAY[
            ['reads', 'FOR SELECT TO public USING (%1$s)'],
            ['adds', 'FOR INSERT TO public WITH CHECK ((%2$s)%3$s)'],
            ['changes', 'FOR UPDATE TO public USING (%1$s) WITH CHECK (%2$s)'],
            ['removes', 'FOR DELETE TO public USING (%2$s)'],
            ['serves', 'FOR ALL TO public USING (pg_catalog.current_setting(''mmdb_call.roles'') = ''*'') WITH CHECK (pg_catalog.current_setting(''mmdb_call.roles'') = ''*'')']
        ]
        LOOP
            made := format(
                policy[2], guarded.reads, guarded.writes,
                CASE WHEN guarded.name IN ('dataset', 'run', 'model', 'manifest', 'tensor') THEN ' AND ' || own_name END
            );
            made := regexp_replace(made, '\[(\w+\.\w+)\]', own, 'g');
            made := regexp_replace(made, '\[(\w+\.\w+)\|\]', own_alone, 'g');
            made := regexp_replace(made, '\[(\w+) (\w+\.\w+)\]', shared, 'g');
            made := regexp_replace(made, '\mT\.', quote_ident(guarded.name) || '.', 'g');
            EXECUTE format('DROP POLICY IF EXISTS %I ON mmdb.%I', 'team_' || policy[1], guarded.name);
            EXECUTE format('CREATE POLICY %I ON mmdb.%I %s', 'team_' || policy[1], guarded.name, made);
        END LOOP;
        EXECUTE format('ALTER TABLE mmdb.%I ENABLE ROW LEVEL SECURITY', guarded.name);
    END LOOP;
END
$$;

-- Each owner stores its own tensors from now on.
ALTER TABLE mmdb.tensor ALTER COLUMN owner
SET DEFAULT coalesce(nullif(current_setting('mmdb.team', TRUE), ''), mmdb.caller());
DO $$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM pg_catalog.pg_constraint AS c
        WHERE c.conrelid = 'mmdb.tensor'::regclass AND c.conname = 'tensor_hash_key' AND cardinality(c.conkey) = 2
    ) THEN
        ALTER TABLE mmdb.tensor DROP CONSTRAINT tensor_hash_key;
        ALTER TABLE mmdb.tensor ADD CONSTRAINT tensor_hash_key UNIQUE (tensor_hash, owner);
    END IF;
END
$$;
