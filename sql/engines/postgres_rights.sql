-- Who may do what; run at each install, after the functions and views.
--   mmdb_reader   selects from the views, and nothing else
--   mmdb_trainer  also registers datasets, creates runs, trains, saves and predicts
-- The owner of the schema alone registers factories and trainers, changes settings and collects garbage.

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
mmdb.dataset_overview, mmdb.partition_overview, mmdb.dataset_lineage,
mmdb.model_overview, mmdb.model_lineage, mmdb.tensor_storage,
mmdb.model_alias, mmdb.alias_history, mmdb.tag_overview, mmdb.metric_overview, mmdb.note_overview
TO mmdb_reader;

GRANT SELECT ON
mmdb.migration, mmdb.setting, mmdb.factory, mmdb.trainer,
mmdb.dataset, mmdb.dataset_column, mmdb.dataset_source, mmdb.partition, mmdb.block,
mmdb.run, mmdb.run_event, mmdb.candidate, mmdb.candidate_event, mmdb.hop,
mmdb.checkpoint, mmdb.checkpoint_chunk, mmdb.state_chunk,
mmdb.tensor, mmdb.encoding, mmdb.tensor_chunk,
mmdb.environment, mmdb.architecture, mmdb.architecture_node, mmdb.architecture_edge, mmdb.architecture_prefix, mmdb.definition,
mmdb.manifest, mmdb.manifest_tensor, mmdb.model, mmdb.model_change, mmdb.recipe, mmdb.recipe_tensor,
mmdb.alias_event, mmdb.model_tag, mmdb.model_metric, mmdb.model_note, mmdb.probe
TO mmdb_trainer;
GRANT INSERT ON
mmdb.dataset, mmdb.dataset_column, mmdb.dataset_source, mmdb.partition, mmdb.block,
mmdb.run, mmdb.run_event, mmdb.candidate, mmdb.candidate_event, mmdb.hop,
mmdb.checkpoint, mmdb.checkpoint_chunk, mmdb.state_chunk,
mmdb.tensor, mmdb.encoding, mmdb.tensor_chunk,
mmdb.environment, mmdb.architecture, mmdb.architecture_node, mmdb.architecture_edge, mmdb.architecture_prefix, mmdb.definition,
mmdb.manifest, mmdb.manifest_tensor, mmdb.model, mmdb.model_change, mmdb.recipe, mmdb.recipe_tensor,
mmdb.model_tag, mmdb.model_metric, mmdb.probe
TO mmdb_trainer;
-- Who moved an alias or wrote a note is the session's user, and when is now: nobody may say otherwise.
GRANT INSERT (model, alias, version) ON mmdb.alias_event TO mmdb_trainer;
GRANT INSERT (model_id, note) ON mmdb.model_note TO mmdb_trainer;
GRANT UPDATE (dropped_at) ON mmdb.dataset, mmdb.model TO mmdb_trainer;
GRANT UPDATE (value, created_at) ON mmdb.model_tag, mmdb.model_metric TO mmdb_trainer;
GRANT UPDATE (replayed_s) ON mmdb.recipe TO mmdb_trainer;
GRANT DELETE ON mmdb.block, mmdb.checkpoint, mmdb.checkpoint_chunk, mmdb.state_chunk, mmdb.model_tag TO mmdb_trainer;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA mmdb TO mmdb_trainer;
GRANT EXECUTE ON ALL PROCEDURES IN SCHEMA mmdb TO mmdb_trainer;
REVOKE ALL ON FUNCTION mmdb.register_factory(text, text) FROM mmdb_trainer;
REVOKE ALL ON FUNCTION mmdb.register_trainer(text, text) FROM mmdb_trainer;
