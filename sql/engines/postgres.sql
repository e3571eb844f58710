-- What is physical, or PostgreSQL's own. Run after sql/schema in a fresh database.

-- Packed bytes do not compress; skip the attempt and keep substrings cheap.
ALTER TABLE mmdb.block ALTER COLUMN data SET STORAGE EXTERNAL;
ALTER TABLE mmdb.checkpoint_chunk ALTER COLUMN data SET STORAGE EXTERNAL;
ALTER TABLE mmdb.feature_block ALTER COLUMN data SET STORAGE EXTERNAL;

-- A value of 1 MiB is 526 rows of its TOAST table: by default a fifth of them may be dead before anything is reused.
ALTER TABLE mmdb.block SET (autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE mmdb.feature_block SET (autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
-- Each epoch replaces states: a vacuum that rests between pages does not keep up with one that trains (measured at 40 MB/s
-- of states: 528 MiB for 96 MiB in use; so 146).
ALTER TABLE mmdb.checkpoint_chunk SET (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 64,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0,
    toast.autovacuum_vacuum_threshold = 4096,
    toast.autovacuum_vacuum_cost_delay = 0
);

CREATE UNIQUE INDEX dataset_name_key ON mmdb.dataset (name) WHERE dropped_at IS NULL;
CREATE INDEX partition_dataset_idx ON mmdb.partition (dataset_id);
CREATE INDEX run_event_run_idx ON mmdb.run_event (run_id);
CREATE INDEX candidate_architecture_idx ON mmdb.candidate (architecture_hash);
CREATE INDEX candidate_event_candidate_idx ON mmdb.candidate_event (candidate_id);
CREATE UNIQUE INDEX hop_candidate_ordinal_key ON mmdb.hop (candidate_id, ordinal);
CREATE INDEX hop_objective_idx ON mmdb.hop (candidate_id, epoch, objective) WHERE objective IS NOT NULL;
CREATE INDEX checkpoint_candidate_idx ON mmdb.checkpoint (candidate_id);
CREATE INDEX run_request_run_idx ON mmdb.run_request (run_id);
CREATE INDEX candidate_request_candidate_idx ON mmdb.candidate_request (candidate_id);
CREATE INDEX assignment_worker_idx ON mmdb.assignment (worker_id) WHERE finished_at IS NULL;
CREATE INDEX encoding_base_idx ON mmdb.encoding (base_id) WHERE base_id IS NOT NULL;
CREATE INDEX tensor_size_idx ON mmdb.tensor (byte_count);
CREATE INDEX manifest_tensor_tensor_idx ON mmdb.manifest_tensor (tensor_id);
CREATE INDEX model_change_tensor_idx ON mmdb.model_change (tensor_id);
CREATE INDEX model_member_candidate_idx ON mmdb.model_member (candidate_id);
CREATE INDEX recipe_tensor_tensor_idx ON mmdb.recipe_tensor (tensor_id);
CREATE INDEX model_parent_idx ON mmdb.model (parent_id);
CREATE INDEX model_manifest_idx ON mmdb.model (manifest_id);
CREATE INDEX model_pack_idx ON mmdb.model (pack_id);
CREATE INDEX model_architecture_idx ON mmdb.model (architecture_id);
CREATE INDEX model_candidate_idx ON mmdb.model (candidate_id);
CREATE INDEX model_weights_idx ON mmdb.model (weights_hash);
CREATE INDEX architecture_node_prefix_idx ON mmdb.architecture_node (prefix_hash, architecture_id);
CREATE INDEX alias_event_alias_idx ON mmdb.alias_event (model, alias, event_id);
CREATE INDEX model_tag_key_idx ON mmdb.model_tag (key, value);
CREATE INDEX model_metric_value_idx ON mmdb.model_metric (metric, value);
CREATE INDEX model_note_model_idx ON mmdb.model_note (model_id);
CREATE INDEX model_dataset_idx ON mmdb.model (dataset_id);
CREATE INDEX zoo_event_model_idx ON mmdb.zoo_event (model_id, event_id);
CREATE INDEX transfer_parent_idx ON mmdb.transfer (parent_id);
CREATE INDEX transfer_candidate_idx ON mmdb.transfer (candidate_id);
CREATE INDEX transfer_model_idx ON mmdb.transfer (model_id);
CREATE INDEX dataset_source_column_idx ON mmdb.dataset_source (table_name, column_name);
CREATE INDEX prediction_model_idx ON mmdb.prediction (model_id);
CREATE INDEX prediction_table_idx ON mmdb.prediction (table_name);
CREATE INDEX prediction_source_column_idx ON mmdb.prediction_source (table_name, column_name);
CREATE INDEX evaluation_model_idx ON mmdb.evaluation (model_id);
CREATE INDEX evaluation_dataset_idx ON mmdb.evaluation (dataset_id);
CREATE INDEX feature_dataset_idx ON mmdb.feature (dataset_id);
CREATE INDEX feature_model_idx ON mmdb.feature (model_id);
CREATE INDEX feature_part_part_idx ON mmdb.feature_part (part_id);
CREATE INDEX run_feature_feature_idx ON mmdb.run_feature (feature_id);
CREATE INDEX candidate_feature_feature_idx ON mmdb.candidate_feature (feature_id);
CREATE INDEX candidate_feature_run_idx ON mmdb.candidate_feature (run_id);

-- Who moved an alias or wrote a note: nobody may say otherwise, see postgres_rights.sql.
ALTER TABLE mmdb.alias_event ALTER COLUMN author SET DEFAULT session_user;
ALTER TABLE mmdb.model_note ALTER COLUMN author SET DEFAULT session_user;
ALTER TABLE mmdb.prediction ALTER COLUMN author SET DEFAULT session_user;
ALTER TABLE mmdb.evaluation ALTER COLUMN author SET DEFAULT session_user;
ALTER TABLE mmdb.forgetting ALTER COLUMN author SET DEFAULT session_user;
ALTER TABLE mmdb.drift_check ALTER COLUMN author SET DEFAULT session_user;

-- Whose a new row is: the role's, or by ALTER ROLE ... SET mmdb.team its team's. With teams, policies hold it true.
ALTER TABLE mmdb.dataset ALTER COLUMN owner SET DEFAULT coalesce(nullif(current_setting('mmdb.team', TRUE), ''), current_user);
ALTER TABLE mmdb.run ALTER COLUMN owner SET DEFAULT coalesce(nullif(current_setting('mmdb.team', TRUE), ''), current_user);
ALTER TABLE mmdb.manifest ALTER COLUMN owner SET DEFAULT coalesce(nullif(current_setting('mmdb.team', TRUE), ''), current_user);
ALTER TABLE mmdb.model ALTER COLUMN owner SET DEFAULT coalesce(nullif(current_setting('mmdb.team', TRUE), ''), current_user);
ALTER TABLE mmdb.share ALTER COLUMN author SET DEFAULT session_user;

-- The login of the server's workers: its password is kept by the server's user, docs/running.md.
ALTER TABLE mmdb.setting
ADD CONSTRAINT setting_password_check CHECK (name <> 'worker_dsn' OR value !~* 'password\s*=|://[^/@]*:[^/@]*@');

-- One TOAST table and one index for all tensors of a large zoo would slow down and could not be
-- vacuumed in parts.
CREATE TABLE mmdb.tensor_chunk (
    tensor_id bigint NOT NULL,
    ordinal integer NOT NULL,
    codec integer NOT NULL,
    digest bytea NOT NULL,
    data bytea NOT NULL,
    CONSTRAINT tensor_chunk_pkey PRIMARY KEY (tensor_id, ordinal)
) PARTITION BY HASH (tensor_id);
ALTER TABLE mmdb.tensor_chunk ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE TABLE mmdb.tensor_chunk_0 PARTITION OF mmdb.tensor_chunk FOR VALUES WITH (MODULUS 8, REMAINDER 0);
CREATE TABLE mmdb.tensor_chunk_1 PARTITION OF mmdb.tensor_chunk FOR VALUES WITH (MODULUS 8, REMAINDER 1);
CREATE TABLE mmdb.tensor_chunk_2 PARTITION OF mmdb.tensor_chunk FOR VALUES WITH (MODULUS 8, REMAINDER 2);
CREATE TABLE mmdb.tensor_chunk_3 PARTITION OF mmdb.tensor_chunk FOR VALUES WITH (MODULUS 8, REMAINDER 3);
CREATE TABLE mmdb.tensor_chunk_4 PARTITION OF mmdb.tensor_chunk FOR VALUES WITH (MODULUS 8, REMAINDER 4);
CREATE TABLE mmdb.tensor_chunk_5 PARTITION OF mmdb.tensor_chunk FOR VALUES WITH (MODULUS 8, REMAINDER 5);
CREATE TABLE mmdb.tensor_chunk_6 PARTITION OF mmdb.tensor_chunk FOR VALUES WITH (MODULUS 8, REMAINDER 6);
CREATE TABLE mmdb.tensor_chunk_7 PARTITION OF mmdb.tensor_chunk FOR VALUES WITH (MODULUS 8, REMAINDER 7);
ALTER TABLE mmdb.tensor_chunk_0 SET (autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE mmdb.tensor_chunk_1 SET (autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE mmdb.tensor_chunk_2 SET (autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE mmdb.tensor_chunk_3 SET (autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE mmdb.tensor_chunk_4 SET (autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE mmdb.tensor_chunk_5 SET (autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE mmdb.tensor_chunk_6 SET (autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE mmdb.tensor_chunk_7 SET (autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
COMMENT ON TABLE mmdb.tensor_chunk IS 'The bytes of tensors, each chunk encoded by itself.';
COMMENT ON COLUMN mmdb.tensor_chunk.codec IS 'How the chunk is encoded: mmdb/store/tensors/codec.py.';
COMMENT ON COLUMN mmdb.tensor_chunk.digest IS 'The first 16 bytes of the BLAKE3 of its place and data.';

-- States on their way from one session to another. A crash empties an unlogged
-- table; the hops since the last checkpoint are then replayed.
CREATE UNLOGGED TABLE mmdb.state_chunk (
    part_id bigint NOT NULL,
    candidate_id bigint NOT NULL,
    state_hash bytea NOT NULL,
    ordinal integer NOT NULL,
    data bytea NOT NULL,
    CONSTRAINT state_chunk_pkey PRIMARY KEY (part_id, candidate_id, state_hash, ordinal)
) WITH (
    -- Every hop inserts a state and deletes the one before: reuse the space at once.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 64,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0,
    toast.autovacuum_vacuum_threshold = 4096,
    toast.autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE mmdb.state_chunk ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE INDEX state_chunk_candidate_idx ON mmdb.state_chunk (candidate_id);
COMMENT ON TABLE mmdb.state_chunk IS 'States between two hops, in chunks of 1 MiB; unlogged.';

-- What functions return where an argument has the name of a column: PostgreSQL
-- keeps both in one namespace, except in a composite type.
-- Arrays become Python's lists, of 32 bytes a number, before a function can say no: so their types say it.
CREATE FUNCTION mmdb.too_long(numbers integer) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION 'An argument has % numbers.', numbers
    USING ERRCODE = 'MM176', HINT = 'It may have 16,777,216 for a model, and 1,000,000 for anything else.';
END
$$;
COMMENT ON FUNCTION mmdb.too_long(integer) IS 'Says that an array is longer than an argument may be.';
CREATE DOMAIN mmdb.numbers AS real[] CHECK (cardinality(value) <= 16777216 OR mmdb.too_long(cardinality(value)));
COMMENT ON DOMAIN mmdb.numbers IS 'The numbers of one row that a model takes.';
CREATE DOMAIN mmdb.sizes AS integer[] CHECK (cardinality(value) <= 1000000 OR mmdb.too_long(cardinality(value)));
COMMENT ON DOMAIN mmdb.sizes IS 'The shape of a model''s input.';
CREATE DOMAIN mmdb.ids AS bigint[] CHECK (cardinality(value) <= 1000000 OR mmdb.too_long(cardinality(value)));
COMMENT ON DOMAIN mmdb.ids IS 'Numbers of partitions or of candidates.';

CREATE TYPE mmdb.dataset_row AS (
    dataset_id bigint,
    name text,
    rows bigint,
    partitions integer,
    bytes bigint,
    content_hash text
);
COMMENT ON TYPE mmdb.dataset_row IS 'What create_dataset returns; bytes are those of the blocks.';

CREATE TYPE mmdb.hop_row AS (
    candidate_id bigint,
    epoch integer,
    part_id bigint,
    rows bigint,
    steps integer,
    loss double precision,
    metrics jsonb,
    read_s double precision,
    load_s double precision,
    compute_s double precision,
    store_s double precision,
    total_s double precision,
    state_in text,
    state_out text,
    node text,
    device text,
    objective double precision,
    state_bytes bigint,
    group_size integer
);
COMMENT ON TYPE mmdb.hop_row IS 'What train_hop returns; states are named by their BLAKE3-256 in hex.';

CREATE TYPE mmdb.merge_row AS (
    candidate_id bigint,
    epoch integer,
    part_id bigint,
    state_out text,
    total_s double precision
);
COMMENT ON TYPE mmdb.merge_row IS 'What merge_epoch returns; the state is named by its BLAKE3-256 in hex.';

CREATE TYPE mmdb.warm_start_row AS (
    candidate_id bigint,
    parent text,
    similarity double precision,
    coverage double precision,
    reason text,
    state text
);
COMMENT ON TYPE mmdb.warm_start_row IS 'What begin_candidate returns; no parent and no state where it begins with its seed''s weights.';

CREATE TYPE mmdb.prediction_row AS (
    key text,
    prediction text,
    probability double precision,
    probabilities jsonb
);
COMMENT ON TYPE mmdb.prediction_row IS 'What predict_query returns; a regression has no probability.';

CREATE TYPE mmdb.model_row AS (
    model_id bigint,
    name text,
    version integer
);
COMMENT ON TYPE mmdb.model_row IS 'A saved model.';

CREATE TYPE mmdb.dropped_row AS (
    name text,
    version integer,
    bytes bigint
);
COMMENT ON TYPE mmdb.dropped_row IS 'A model that was dropped, and the bytes that gc can free.';

CREATE TYPE mmdb.imported_row AS (
    name text,
    version integer,
    tensors bigint,
    stored_bytes bigint,
    notes text []
);
COMMENT ON TYPE mmdb.imported_row IS 'A model that was imported, and what was decided on the way.';

CREATE TYPE mmdb.request_row AS (
    request_id bigint,
    run text,
    request text,
    priority integer,
    status text,
    hops_done bigint,
    hops_total bigint
);
COMMENT ON TYPE mmdb.request_row IS 'A request about a run, and how far the run is.';

CREATE TYPE mmdb.match_row AS (
    model text,
    similarity double precision,
    transferable_fraction double precision,
    accuracy double precision,
    dataset text,
    reason text
);
COMMENT ON TYPE mmdb.match_row IS 'A model that match looked at as a parent; without a model, why there is none.';

CREATE TYPE mmdb.zoo_row AS (
    model text,
    event text,
    reason text,
    bytes bigint
);
COMMENT ON TYPE mmdb.zoo_row IS 'What manage_zoo decides about a model, and the stored bytes that gc can then free.';
