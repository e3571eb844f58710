-- What the columns of features mean: BI tools show it.

COMMENT ON COLUMN mmdb.feature_overview.feature_id IS 'Number of the features, unique in the database.';
COMMENT ON COLUMN mmdb.feature_overview.dataset IS 'Name of the dataset.';
COMMENT ON COLUMN mmdb.feature_overview.layer IS 'The cut: path of the module whose outputs they are.';
COMMENT ON COLUMN mmdb.feature_overview.pool IS 'mean: over positions; flatten: a vector of each row; none: as the layer gave them.';
COMMENT ON COLUMN mmdb.feature_overview.backbone IS 'name@version of the model whose layers are frozen; null where a seed drew them.';
COMMENT ON COLUMN mmdb.feature_overview.seed IS 'Seed of the frozen tensors; null where they are of a model.';
COMMENT ON COLUMN mmdb.feature_overview.storage IS 'float32, float16 or int8.';
COMMENT ON COLUMN mmdb.feature_overview.shape IS 'Shape of one row.';
COMMENT ON COLUMN mmdb.feature_overview.row_bytes IS 'Bytes of one row as it is stored.';
COMMENT ON COLUMN mmdb.feature_overview.max_error
IS 'Largest error of the storage, as a share of the largest magnitude; null where none was computed.';
COMMENT ON COLUMN mmdb.feature_overview.mean_error IS 'Mean error of the storage, as max_error.';
COMMENT ON COLUMN mmdb.feature_overview.partitions IS 'Partitions of the dataset, the validation slice included.';
COMMENT ON COLUMN mmdb.feature_overview.stored_partitions IS 'Partitions of which they are stored.';
COMMENT ON COLUMN mmdb.feature_overview.byte_count IS 'Bytes that are stored.';
COMMENT ON COLUMN mmdb.feature_overview.runs IS 'Runs that have used them.';
COMMENT ON COLUMN mmdb.feature_overview.candidates IS 'Candidates of those runs that train on them.';
COMMENT ON COLUMN mmdb.feature_overview.created_at IS 'When they were first asked for.';
COMMENT ON COLUMN mmdb.feature_overview.used_at IS 'When a run last began to use them.';
COMMENT ON COLUMN mmdb.feature_overview.dropped_at IS 'When the dataset was dropped, and what was stored with it.';

COMMENT ON COLUMN mmdb.run_features.run IS 'Name of the run.';
COMMENT ON COLUMN mmdb.run_features.feature_id IS 'Number of the features.';
COMMENT ON COLUMN mmdb.run_features.layer IS 'The cut: path of the module whose outputs they are.';
COMMENT ON COLUMN mmdb.run_features.pool IS 'mean, flatten or none.';
COMMENT ON COLUMN mmdb.run_features.backbone IS 'name@version of the model whose layers are frozen; null where a seed drew them.';
COMMENT ON COLUMN mmdb.run_features.storage IS 'float32, float16 or int8.';
COMMENT ON COLUMN mmdb.run_features.shape IS 'Shape of one row.';
COMMENT ON COLUMN mmdb.run_features.choice
IS 'stored: as blocks; memory: on the nodes; recomputed: for each hop; streamed: with each batch; whole: not shared.';
COMMENT ON COLUMN mmdb.run_features.reason IS 'Why, as a sentence.';
COMMENT ON COLUMN mmdb.run_features.candidates IS 'Candidates that train on them.';
COMMENT ON COLUMN mmdb.run_features.uses IS 'Hops that were to read a partition of them.';
COMMENT ON COLUMN mmdb.run_features.hops IS 'Hops of their candidates that were done.';
COMMENT ON COLUMN mmdb.run_features.byte_count IS 'Bytes that they take where they are kept; 0 where they are not.';
COMMENT ON COLUMN mmdb.run_features.compute_s IS 'Seconds that computed them in the run, outside of hops.';
COMMENT ON COLUMN mmdb.run_features.store_s IS 'Seconds that stored them.';
COMMENT ON COLUMN mmdb.run_features.read_s IS 'Seconds that read what was stored.';
COMMENT ON COLUMN mmdb.run_features.saved_s IS 'Seconds of work that sharing them was to save.';
COMMENT ON COLUMN mmdb.run_features.planned_s
IS 'Seconds of all workers that computing, writing and reading them was to take.';
COMMENT ON COLUMN mmdb.run_features.created_at IS 'When the run first chose.';
