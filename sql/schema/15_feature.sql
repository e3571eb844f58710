-- Features: what frozen layers make of a dataset's rows, computed once and shared by candidates and runs.
-- What is stored of them can go at any time and be computed again; the rows that say what they were stay as lineage.

CREATE TABLE mmdb.feature (
    feature_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    feature_key bytea NOT NULL,
    dataset_id bigint NOT NULL,
    owner text NOT NULL DEFAULT '',
    prefix_key bytea NOT NULL,
    layer text NOT NULL,
    pool text NOT NULL,
    storage text NOT NULL,
    shape integer[] NOT NULL,
    architecture_hash bytea NOT NULL,
    tensors_hash bytea NOT NULL,
    network_hash bytea NOT NULL,
    depth integer NOT NULL,
    backbone text,
    model_id bigint,
    seed bigint,
    row_bytes bigint NOT NULL,
    max_error double precision,
    mean_error double precision,
    created_at timestamptz NOT NULL DEFAULT now(),
    used_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT feature_pkey PRIMARY KEY (feature_id),
    CONSTRAINT feature_key_key UNIQUE (feature_key, dataset_id, owner),
    CONSTRAINT feature_dataset_fkey FOREIGN KEY (dataset_id) REFERENCES mmdb.dataset (dataset_id),
    CONSTRAINT feature_pool_check CHECK (pool IN ('mean', 'flatten', 'none')),
    CONSTRAINT feature_storage_check CHECK (storage IN ('float32', 'float16', 'int8'))
);
COMMENT ON TABLE mmdb.feature IS 'Outputs of frozen layers for the rows of a dataset.';
COMMENT ON COLUMN mmdb.feature.feature_key
IS 'BLAKE3-256 over the dataset''s content, the prefix and the storage: what is equal has an equal one.';
COMMENT ON COLUMN mmdb.feature.owner IS 'The role whose team computed them; empty without teams, when all share them.';
COMMENT ON COLUMN mmdb.feature.prefix_key IS 'BLAKE3-256 over the frozen layers up to the cut, the pooling and their tensors.';
COMMENT ON COLUMN mmdb.feature.layer IS 'The cut: path of the module whose outputs they are.';
COMMENT ON COLUMN mmdb.feature.pool IS 'mean: over positions; flatten: a vector of each row; none: as the layer gave them.';
COMMENT ON COLUMN mmdb.feature.shape IS 'Of one row, pooled.';
COMMENT ON COLUMN mmdb.feature.architecture_hash IS 'BLAKE3-256 of the frozen layers up to the cut, with the pooling.';
COMMENT ON COLUMN mmdb.feature.tensors_hash IS 'BLAKE3-256 over the hashes of the frozen layers'' tensors.';
COMMENT ON COLUMN mmdb.feature.network_hash
IS 'Names the network that the layers were found in first: architecture, arguments and where its tensors are from.';
COMMENT ON COLUMN mmdb.feature.depth IS 'Place of the layer in the order in which that network runs.';
COMMENT ON COLUMN mmdb.feature.backbone IS 'name@version of the model that the tensors are of; null where a seed drew them.';
COMMENT ON COLUMN mmdb.feature.model_id IS 'Number of that model, whatever became of it.';
COMMENT ON COLUMN mmdb.feature.seed IS 'Of the frozen tensors, where no model gave them.';
COMMENT ON COLUMN mmdb.feature.row_bytes IS 'Bytes of one row as it is stored.';
COMMENT ON COLUMN mmdb.feature.max_error IS 'Largest error of the storage, as a share of the largest magnitude; of the worst partition.';
COMMENT ON COLUMN mmdb.feature.mean_error IS 'Mean error of the storage, as max_error.';
COMMENT ON COLUMN mmdb.feature.used_at IS 'When a run last began to use them.';

CREATE TABLE mmdb.feature_part (
    feature_id bigint NOT NULL,
    part_id bigint NOT NULL,
    row_count bigint NOT NULL,
    byte_count bigint NOT NULL,
    blocks integer NOT NULL,
    digest bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT feature_part_pkey PRIMARY KEY (feature_id, part_id),
    CONSTRAINT feature_part_feature_fkey FOREIGN KEY (feature_id) REFERENCES mmdb.feature (feature_id)
);
COMMENT ON TABLE mmdb.feature_part IS 'Partitions whose features are stored, whole.';
COMMENT ON COLUMN mmdb.feature_part.byte_count IS 'Bytes of its blocks.';
COMMENT ON COLUMN mmdb.feature_part.digest IS 'BLAKE3-256 over the digests of its blocks.';

CREATE TABLE mmdb.feature_block (
    feature_id bigint NOT NULL,
    part_id bigint NOT NULL,
    ordinal integer NOT NULL,
    row_count integer NOT NULL,
    digest bytea NOT NULL,
    data bytea NOT NULL,
    CONSTRAINT feature_block_pkey PRIMARY KEY (feature_id, part_id, ordinal)
);
COMMENT ON TABLE mmdb.feature_block IS 'Packed runs of a partition''s features.';
COMMENT ON COLUMN mmdb.feature_block.digest IS 'BLAKE3-256 of data.';
COMMENT ON COLUMN mmdb.feature_block.data IS 'Rows as the feature''s storage says: mmdb/data/feature_files.py.';

CREATE TABLE mmdb.run_feature (
    run_id bigint NOT NULL,
    feature_id bigint NOT NULL,
    choice text NOT NULL,
    reason text NOT NULL,
    candidates integer NOT NULL,
    uses bigint NOT NULL,
    byte_count bigint NOT NULL,
    compute_s double precision NOT NULL DEFAULT 0,
    store_s double precision NOT NULL DEFAULT 0,
    read_s double precision NOT NULL DEFAULT 0,
    saved_s double precision NOT NULL DEFAULT 0,
    planned_s double precision NOT NULL DEFAULT 0,
    layer text NOT NULL,
    network_hash bytea NOT NULL,
    depth integer NOT NULL,
    backbone text,
    model_id bigint,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT run_feature_pkey PRIMARY KEY (run_id, feature_id),
    CONSTRAINT run_feature_run_fkey FOREIGN KEY (run_id) REFERENCES mmdb.run (run_id),
    CONSTRAINT run_feature_feature_fkey FOREIGN KEY (feature_id) REFERENCES mmdb.feature (feature_id),
    CONSTRAINT run_feature_choice_check CHECK (choice IN ('stored', 'memory', 'recomputed', 'streamed', 'whole'))
);
COMMENT ON TABLE mmdb.run_feature IS 'Where each of a run''s features comes from, and what that cost.';
COMMENT ON COLUMN mmdb.run_feature.choice
IS 'stored: as blocks; memory: on the nodes; recomputed: for each hop; streamed: with each batch; whole: not shared at all.';
COMMENT ON COLUMN mmdb.run_feature.reason IS 'Why, as a sentence.';
COMMENT ON COLUMN mmdb.run_feature.candidates IS 'Candidates that train on them.';
COMMENT ON COLUMN mmdb.run_feature.uses IS 'Hops that were to read a partition of them.';
COMMENT ON COLUMN mmdb.run_feature.byte_count IS 'Bytes that they take where they are kept; 0 where they are not.';
COMMENT ON COLUMN mmdb.run_feature.compute_s IS 'Seconds that computed them in this run, outside of hops.';
COMMENT ON COLUMN mmdb.run_feature.store_s IS 'Seconds that stored them.';
COMMENT ON COLUMN mmdb.run_feature.read_s IS 'Seconds that read what was stored.';
COMMENT ON COLUMN mmdb.run_feature.saved_s IS 'Seconds of work that sharing them was to save.';
COMMENT ON COLUMN mmdb.run_feature.planned_s IS 'Seconds of all workers that computing, writing and reading them was to take in this run.';
COMMENT ON COLUMN mmdb.run_feature.layer IS 'Path of the cut in this run''s network; another run may find the same features elsewhere.';
COMMENT ON COLUMN mmdb.run_feature.network_hash IS 'Names that network: architecture, arguments and where its tensors are from.';
COMMENT ON COLUMN mmdb.run_feature.depth IS 'Place of the layer in the order in which that network runs.';
COMMENT ON COLUMN mmdb.run_feature.backbone IS 'name@version of the model whose layers this run freezes; null: drawn from its seed.';
COMMENT ON COLUMN mmdb.run_feature.model_id IS 'Number of that model, which may have been dropped.';

CREATE TABLE mmdb.candidate_feature (
    candidate_id bigint NOT NULL,
    run_id bigint NOT NULL,
    feature_id bigint NOT NULL,
    CONSTRAINT candidate_feature_pkey PRIMARY KEY (candidate_id),
    CONSTRAINT candidate_feature_candidate_fkey FOREIGN KEY (candidate_id) REFERENCES mmdb.candidate (candidate_id),
    CONSTRAINT candidate_feature_feature_fkey FOREIGN KEY (feature_id) REFERENCES mmdb.feature (feature_id)
);
COMMENT ON TABLE mmdb.candidate_feature IS 'The features that a candidate trains on.';
COMMENT ON COLUMN mmdb.candidate_feature.run_id IS 'The candidate''s run.';
