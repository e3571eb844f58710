-- Who may do what; run at each install, after the functions and views.
--   mmdb_reader   selects from the views, and nothing else
--   mmdb_trainer  also registers datasets, creates runs, trains, saves and predicts
-- The owner of the schema alone registers factories, trainers and functions, changes settings and collects garbage.

-- Roles belong to the whole server: an install in another database may make them at this moment.
DO $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = 'mmdb_reader') THEN
        CREATE ROLE mmdb_reader NOLOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL;
END
$$;
DO $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = 'mmdb_trainer') THEN
        CREATE ROLE mmdb_trainer NOLOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL;
END
$$;
DO $$
BEGIN
    IF NOT pg_catalog.pg_has_role('mmdb_trainer', 'mmdb_reader', 'MEMBER') THEN
        GRANT mmdb_reader TO mmdb_trainer;
    END IF;
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA mmdb FROM public;
REVOKE ALL ON ALL PROCEDURES IN SCHEMA mmdb FROM public;
REVOKE ALL ON ALL TABLES IN SCHEMA mmdb FROM public, mmdb_reader, mmdb_trainer;

GRANT USAGE ON SCHEMA mmdb TO mmdb_reader;
GRANT SELECT ON
mmdb.run_progress, mmdb.hop_timeline, mmdb.leaderboard,
mmdb.candidate_overview, mmdb.candidate_progress, mmdb.candidate_failures, mmdb.worker_status,
mmdb.dataset_overview, mmdb.partition_overview, mmdb.dataset_lineage,
mmdb.model_overview, mmdb.model_lineage, mmdb.tensor_storage,
mmdb.model_alias, mmdb.alias_history, mmdb.tag_overview, mmdb.metric_overview, mmdb.note_overview,
mmdb.zoo, mmdb.zoo_decisions, mmdb.transfer_map, mmdb.warm_start_overview,
mmdb.profile_overview, mmdb.plan_overview, mmdb.plan_outcome, mmdb.plan_accuracy
TO mmdb_reader;

GRANT SELECT ON
mmdb.migration, mmdb.setting, mmdb.factory, mmdb.trainer, mmdb.function,
mmdb.dataset, mmdb.dataset_column, mmdb.dataset_source, mmdb.partition, mmdb.block,
mmdb.run, mmdb.run_event, mmdb.candidate, mmdb.candidate_event, mmdb.hop,
mmdb.checkpoint, mmdb.checkpoint_chunk, mmdb.state_chunk,
mmdb.merge, mmdb.decision, mmdb.run_request, mmdb.run_outcome, mmdb.candidate_request, mmdb.worker, mmdb.worker_beat, mmdb.assignment,
mmdb.tensor, mmdb.encoding, mmdb.tensor_chunk,
mmdb.environment, mmdb.architecture, mmdb.architecture_node, mmdb.architecture_edge, mmdb.architecture_prefix, mmdb.definition,
mmdb.manifest, mmdb.manifest_tensor, mmdb.model, mmdb.model_change, mmdb.recipe, mmdb.recipe_tensor,
mmdb.outline, mmdb.zoo_event, mmdb.transfer, mmdb.transfer_tensor, mmdb.warm_start,
mmdb.profile, mmdb.plan, mmdb.estimate, mmdb.run_strategy, mmdb.step_time, mmdb.step_prediction,
mmdb.prediction, mmdb.prediction_source, mmdb.model_origin,
mmdb.alias_event, mmdb.model_tag, mmdb.model_metric, mmdb.model_note, mmdb.probe
TO mmdb_trainer;
GRANT INSERT ON
mmdb.dataset, mmdb.dataset_column, mmdb.dataset_source, mmdb.partition, mmdb.block,
mmdb.run, mmdb.run_event, mmdb.candidate, mmdb.candidate_event, mmdb.hop,
mmdb.checkpoint, mmdb.checkpoint_chunk, mmdb.state_chunk,
mmdb.merge, mmdb.decision, mmdb.run_request, mmdb.run_outcome, mmdb.candidate_request, mmdb.worker, mmdb.worker_beat, mmdb.assignment,
mmdb.tensor, mmdb.encoding, mmdb.tensor_chunk,
mmdb.environment, mmdb.architecture, mmdb.architecture_node, mmdb.architecture_edge, mmdb.architecture_prefix, mmdb.definition,
mmdb.manifest, mmdb.manifest_tensor, mmdb.model, mmdb.model_change, mmdb.recipe, mmdb.recipe_tensor,
mmdb.outline, mmdb.zoo_event, mmdb.transfer, mmdb.transfer_tensor, mmdb.warm_start,
mmdb.profile, mmdb.plan, mmdb.estimate, mmdb.run_strategy, mmdb.step_time, mmdb.step_prediction,
mmdb.prediction_source, mmdb.model_origin,
mmdb.model_tag, mmdb.model_metric, mmdb.probe
TO mmdb_trainer;
-- Who moved an alias or wrote a note is the session's user, and when is now: nobody may say otherwise.
GRANT INSERT (model, alias, version) ON mmdb.alias_event TO mmdb_trainer;
GRANT INSERT (model_id, note) ON mmdb.model_note TO mmdb_trainer;
GRANT INSERT (model_id, schema_name, table_name, key_name, query, row_count, seconds) ON mmdb.prediction TO mmdb_trainer;
GRANT UPDATE (dropped_at) ON mmdb.dataset, mmdb.model TO mmdb_trainer;
GRANT UPDATE (value, created_at) ON mmdb.model_tag, mmdb.model_metric TO mmdb_trainer;
GRANT UPDATE (replayed_s) ON mmdb.recipe TO mmdb_trainer;
GRANT UPDATE (beat_at, stopped_at) ON mmdb.worker_beat TO mmdb_trainer;
GRANT UPDATE (taken_at, finished_at, sqlstate, message, hint, trace) ON mmdb.assignment TO mmdb_trainer;
GRANT DELETE ON mmdb.block, mmdb.checkpoint, mmdb.checkpoint_chunk, mmdb.state_chunk, mmdb.model_tag TO mmdb_trainer;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA mmdb TO mmdb_trainer;
GRANT EXECUTE ON ALL PROCEDURES IN SCHEMA mmdb TO mmdb_trainer;
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
    END LOOP;
END
$$;
