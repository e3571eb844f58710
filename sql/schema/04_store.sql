-- Models are named, immutable sets of tensors; a tensor is stored once however many models hold it.
-- tensor says what the bytes are, encoding and tensor_chunk (sql/engines) where and how they lie.

CREATE TABLE mmdb.tensor (
    tensor_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    tensor_hash bytea NOT NULL,
    dtype text NOT NULL,
    shape bigint[] NOT NULL,
    byte_count bigint NOT NULL,
    minimum double precision,
    maximum double precision,
    mean double precision,
    deviation double precision,
    zeros bigint,
    nans bigint,
    created_at timestamptz NOT NULL DEFAULT now(),
    owner text DEFAULT '',
    CONSTRAINT tensor_pkey PRIMARY KEY (tensor_id),
    CONSTRAINT tensor_hash_key UNIQUE (tensor_hash)
);
COMMENT ON TABLE mmdb.tensor IS 'Content-addressed tensors; the same bytes are one row.';
COMMENT ON COLUMN mmdb.tensor.tensor_hash IS 'BLAKE3-256 over dtype, shape and little-endian, row-major bytes.';
COMMENT ON COLUMN mmdb.tensor.minimum IS 'Of the elements that are not NaN; null where there are none, or no order.';
COMMENT ON COLUMN mmdb.tensor.deviation IS 'Standard deviation of the elements that are not NaN, over n.';
COMMENT ON COLUMN mmdb.tensor.zeros IS 'Elements equal to zero.';
COMMENT ON COLUMN mmdb.tensor.owner IS 'The role that stored it; empty without teams, when all share one store.';

CREATE TABLE mmdb.encoding (
    tensor_id bigint NOT NULL,
    base_id bigint,
    word integer NOT NULL,
    chunk_bytes integer NOT NULL,
    chunks integer NOT NULL,
    stored_bytes bigint NOT NULL,
    CONSTRAINT encoding_pkey PRIMARY KEY (tensor_id),
    CONSTRAINT encoding_tensor_fkey FOREIGN KEY (tensor_id) REFERENCES mmdb.tensor (tensor_id),
    CONSTRAINT encoding_base_fkey FOREIGN KEY (base_id) REFERENCES mmdb.tensor (tensor_id)
);
COMMENT ON TABLE mmdb.encoding IS 'How a tensor lies in its chunks; small tensors have none, they lie in their model''s pack.';
COMMENT ON COLUMN mmdb.encoding.base_id IS 'The tensor that its delta chunks are differences to; it has no base itself.';
COMMENT ON COLUMN mmdb.encoding.word IS 'Bytes of the words that the codecs split and subtract.';
COMMENT ON COLUMN mmdb.encoding.chunk_bytes IS 'Bytes of a chunk before encoding; the last chunk may be shorter.';
COMMENT ON COLUMN mmdb.encoding.stored_bytes IS 'Bytes of its chunks as they are stored.';

CREATE TABLE mmdb.environment (
    environment_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    environment_hash bytea NOT NULL,
    details jsonb NOT NULL,
    CONSTRAINT environment_pkey PRIMARY KEY (environment_id),
    CONSTRAINT environment_hash_key UNIQUE (environment_hash)
);
COMMENT ON TABLE mmdb.environment IS 'Software and hardware that models were saved in, each once.';
COMMENT ON COLUMN mmdb.environment.environment_hash IS 'BLAKE3-256 of the details as JSON with sorted keys.';

CREATE TABLE mmdb.architecture (
    architecture_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    canonical_hash bytea NOT NULL,
    is_traced boolean NOT NULL,
    node_count integer NOT NULL,
    parameter_count bigint NOT NULL,
    parameter_bytes bigint NOT NULL,
    CONSTRAINT architecture_pkey PRIMARY KEY (architecture_id),
    CONSTRAINT architecture_hash_key UNIQUE (canonical_hash)
);
COMMENT ON TABLE mmdb.architecture IS 'Graphs of models without weights and names; equal graphs are one row.';
COMMENT ON COLUMN mmdb.architecture.canonical_hash IS 'BLAKE3-256 of the graph; names and the order of insertion do not count.';
COMMENT ON COLUMN mmdb.architecture.is_traced IS 'False where a part could not be followed: its layers stand as they were registered.';

CREATE TABLE mmdb.architecture_prefix (
    prefix_hash bytea NOT NULL,
    node_count integer NOT NULL,
    parameter_bytes bigint NOT NULL,
    CONSTRAINT architecture_prefix_pkey PRIMARY KEY (prefix_hash)
);
COMMENT ON TABLE mmdb.architecture_prefix IS 'Every beginning of an architecture, once; a search for common ones looks here first.';
COMMENT ON COLUMN mmdb.architecture_prefix.node_count IS 'Nodes that the hash stands for: one and all that feeds it, but for inputs.';
COMMENT ON COLUMN mmdb.architecture_prefix.parameter_bytes IS 'Bytes of the parameters of those nodes.';

CREATE TABLE mmdb.architecture_node (
    architecture_id bigint NOT NULL,
    ordinal integer NOT NULL,
    op text NOT NULL,
    attributes jsonb NOT NULL,
    parameters jsonb NOT NULL,
    parameter_bytes bigint NOT NULL,
    prefix_hash bytea NOT NULL,
    CONSTRAINT architecture_node_pkey PRIMARY KEY (architecture_id, ordinal),
    CONSTRAINT architecture_node_architecture_fkey FOREIGN KEY (architecture_id) REFERENCES mmdb.architecture (architecture_id),
    CONSTRAINT architecture_node_prefix_fkey FOREIGN KEY (prefix_hash) REFERENCES mmdb.architecture_prefix (prefix_hash)
);
COMMENT ON TABLE mmdb.architecture_node IS 'Layers and operations of an architecture, in topological order.';
COMMENT ON COLUMN mmdb.architecture_node.parameters IS 'Name, dtype and shape of each tensor that the layer owns.';
COMMENT ON COLUMN mmdb.architecture_node.prefix_hash IS 'BLAKE3-256 over the node and all that feeds it; see architecture_prefix.';

CREATE TABLE mmdb.architecture_edge (
    architecture_id bigint NOT NULL,
    source integer NOT NULL,
    target integer NOT NULL,
    position integer NOT NULL,
    CONSTRAINT architecture_edge_pkey PRIMARY KEY (architecture_id, target, position),
    CONSTRAINT architecture_edge_architecture_fkey FOREIGN KEY (architecture_id) REFERENCES mmdb.architecture (architecture_id)
);
COMMENT ON TABLE mmdb.architecture_edge IS 'What feeds each node; position is the place among the node''s inputs.';

CREATE TABLE mmdb.definition (
    definition_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    definition_hash bytea NOT NULL,
    architecture jsonb NOT NULL,
    arguments jsonb NOT NULL,
    input_shape integer[] NOT NULL,
    outputs integer NOT NULL,
    named jsonb,
    CONSTRAINT definition_pkey PRIMARY KEY (definition_id),
    CONSTRAINT definition_hash_key UNIQUE (definition_hash)
);
COMMENT ON TABLE mmdb.definition IS 'What it takes to build a model''s module, each once.';
COMMENT ON COLUMN mmdb.definition.definition_hash IS 'BLAKE3-256 of the other columns as JSON with sorted keys.';
COMMENT ON COLUMN mmdb.definition.architecture IS 'A factory with its arguments, or a layer graph.';
COMMENT ON COLUMN mmdb.definition.arguments IS 'Arguments of the candidate, which override the architecture''s own.';
COMMENT ON COLUMN mmdb.definition.named IS 'Input shape and outputs by name, where there are several of either.';

CREATE TABLE mmdb.manifest (
    manifest_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    owner text,
    CONSTRAINT manifest_pkey PRIMARY KEY (manifest_id)
);
COMMENT ON TABLE mmdb.manifest IS 'Lists of tensors by path, which models share; see model_change.';
COMMENT ON COLUMN mmdb.manifest.owner IS 'The role that made it.';

CREATE TABLE mmdb.manifest_tensor (
    manifest_id bigint NOT NULL,
    ordinal integer NOT NULL,
    path text NOT NULL,
    tensor_id bigint NOT NULL,
    kind text NOT NULL,
    trainable boolean NOT NULL,
    tied_to integer,
    layout jsonb,
    CONSTRAINT manifest_tensor_pkey PRIMARY KEY (manifest_id, ordinal),
    CONSTRAINT manifest_tensor_manifest_fkey FOREIGN KEY (manifest_id) REFERENCES mmdb.manifest (manifest_id),
    CONSTRAINT manifest_tensor_tensor_fkey FOREIGN KEY (tensor_id) REFERENCES mmdb.tensor (tensor_id),
    CONSTRAINT manifest_tensor_kind_check CHECK (kind IN ('parameter', 'buffer', 'transient', 'storage'))
);
COMMENT ON TABLE mmdb.manifest_tensor IS 'The tensors of a manifest, in the order of the state dict.';
COMMENT ON COLUMN mmdb.manifest_tensor.kind IS 'transient: a buffer outside of the state dict; storage: memory that several views share.';
COMMENT ON COLUMN mmdb.manifest_tensor.tied_to IS 'Ordinal of the entry that is the very same tensor.';
COMMENT ON COLUMN mmdb.manifest_tensor.layout IS 'Of a view: ordinal of its storage, offset in bytes, strides in elements.';

CREATE TABLE mmdb.model (
    model_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    name text NOT NULL,
    version integer NOT NULL,
    approach text NOT NULL,
    parent_id bigint,
    manifest_id bigint,
    pack_id bigint,
    definition_id bigint,
    architecture_id bigint,
    environment_id bigint,
    weights_hash bytea NOT NULL,
    tensor_count integer NOT NULL,
    byte_count bigint NOT NULL,
    dataset_id bigint,
    candidate_id bigint,
    epoch integer,
    metrics jsonb NOT NULL,
    reason jsonb NOT NULL,
    stored_bytes bigint NOT NULL,
    save_s double precision NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    dropped_at timestamptz,
    owner text,
    calibration jsonb,
    CONSTRAINT model_pkey PRIMARY KEY (model_id),
    CONSTRAINT model_name_version_key UNIQUE (name, version),
    CONSTRAINT model_parent_fkey FOREIGN KEY (parent_id) REFERENCES mmdb.model (model_id),
    CONSTRAINT model_manifest_fkey FOREIGN KEY (manifest_id) REFERENCES mmdb.manifest (manifest_id),
    CONSTRAINT model_pack_fkey FOREIGN KEY (pack_id) REFERENCES mmdb.tensor (tensor_id),
    CONSTRAINT model_definition_fkey FOREIGN KEY (definition_id) REFERENCES mmdb.definition (definition_id),
    CONSTRAINT model_architecture_fkey FOREIGN KEY (architecture_id) REFERENCES mmdb.architecture (architecture_id),
    CONSTRAINT model_environment_fkey FOREIGN KEY (environment_id) REFERENCES mmdb.environment (environment_id),
    CONSTRAINT model_dataset_fkey FOREIGN KEY (dataset_id) REFERENCES mmdb.dataset (dataset_id),
    CONSTRAINT model_candidate_fkey FOREIGN KEY (candidate_id) REFERENCES mmdb.candidate (candidate_id),
    CONSTRAINT model_approach_check CHECK (approach IN ('snapshot', 'update', 'provenance'))
);
COMMENT ON TABLE mmdb.model IS 'Saved models; a new save under an old name is a new version.';
COMMENT ON COLUMN mmdb.model.manifest_id IS 'Its tensors, but for those in model_change; null where its recipe alone is kept.';
COMMENT ON COLUMN mmdb.model.pack_id IS 'The tensor, of dtype uint8, in which its tensors below 8 KiB lie one after the other.';
COMMENT ON COLUMN mmdb.model.definition_id IS 'Null where the module can only be given by the caller.';
COMMENT ON COLUMN mmdb.model.weights_hash IS 'BLAKE3-256 over path and hash of every tensor: equal models have equal ones.';
COMMENT ON COLUMN mmdb.model.tensor_count IS 'Entries of its state dict.';
COMMENT ON COLUMN mmdb.model.byte_count IS 'Bytes of its state dict, tied tensors counted once.';
COMMENT ON COLUMN mmdb.model.epoch IS 'The epoch of the candidate whose checkpoint it is, from 0.';
COMMENT ON COLUMN mmdb.model.metrics IS 'Metrics known when it was saved.';
COMMENT ON COLUMN mmdb.model.reason IS 'Why this approach: the predicted bytes and seconds of each.';
COMMENT ON COLUMN mmdb.model.stored_bytes IS 'Bytes that saving it added.';
COMMENT ON COLUMN mmdb.model.dropped_at IS 'When it was dropped; its lineage stays, its bytes go with gc.';
COMMENT ON COLUMN mmdb.model.owner IS 'As in dataset; of a candidate''s model, the owner of its run.';
COMMENT ON COLUMN mmdb.model.calibration IS 'How its outputs are calibrated, and the threshold of a class; see calibrate_model.';

CREATE TABLE mmdb.model_change (
    model_id bigint NOT NULL,
    ordinal integer NOT NULL,
    tensor_id bigint NOT NULL,
    CONSTRAINT model_change_pkey PRIMARY KEY (model_id, ordinal),
    CONSTRAINT model_change_model_fkey FOREIGN KEY (model_id) REFERENCES mmdb.model (model_id),
    CONSTRAINT model_change_tensor_fkey FOREIGN KEY (tensor_id) REFERENCES mmdb.tensor (tensor_id)
);
COMMENT ON TABLE mmdb.model_change IS 'Tensors of a model that stand in place of its manifest''s.';

CREATE TABLE mmdb.model_member (
    model_id bigint NOT NULL,
    ordinal integer NOT NULL,
    candidate_id bigint NOT NULL,
    epoch integer NOT NULL,
    CONSTRAINT model_member_pkey PRIMARY KEY (model_id, ordinal),
    CONSTRAINT model_member_model_fkey FOREIGN KEY (model_id) REFERENCES mmdb.model (model_id),
    CONSTRAINT model_member_candidate_fkey FOREIGN KEY (candidate_id) REFERENCES mmdb.candidate (candidate_id)
);
COMMENT ON TABLE mmdb.model_member IS 'The candidates whose mean a model is, in order; the first is its candidate_id, too.';
COMMENT ON COLUMN mmdb.model_member.epoch IS 'The epoch of the candidate whose checkpoint it is, from 0.';

CREATE TABLE mmdb.recipe (
    model_id bigint NOT NULL,
    trainer text,
    arguments jsonb NOT NULL,
    seed bigint,
    tensor_hashes bytea NOT NULL,
    train_s double precision,
    replayed_s double precision,
    CONSTRAINT recipe_pkey PRIMARY KEY (model_id),
    CONSTRAINT recipe_model_fkey FOREIGN KEY (model_id) REFERENCES mmdb.model (model_id)
);
COMMENT ON TABLE mmdb.recipe IS 'How to make a model again: its candidate''s hops, or a trainer on its parent and dataset.';
COMMENT ON COLUMN mmdb.recipe.trainer IS 'Name of a registered training function; null where the hops are the recipe.';
COMMENT ON COLUMN mmdb.recipe.arguments IS 'Arguments of the trainer, and the states that it starts from, but for their tensors.';
COMMENT ON COLUMN mmdb.recipe.tensor_hashes IS 'The first 8 bytes of each tensor''s hash, in their order.';
COMMENT ON COLUMN mmdb.recipe.train_s IS 'Seconds that the training took; null where that is not known.';
COMMENT ON COLUMN mmdb.recipe.replayed_s IS 'Seconds of a replay that gave the same weights; null where none was tried.';

CREATE TABLE mmdb.recipe_tensor (
    model_id bigint NOT NULL,
    path text NOT NULL,
    tensor_id bigint NOT NULL,
    CONSTRAINT recipe_tensor_pkey PRIMARY KEY (model_id, path),
    CONSTRAINT recipe_tensor_model_fkey FOREIGN KEY (model_id) REFERENCES mmdb.model (model_id),
    CONSTRAINT recipe_tensor_tensor_fkey FOREIGN KEY (tensor_id) REFERENCES mmdb.tensor (tensor_id)
);
COMMENT ON TABLE mmdb.recipe_tensor IS 'Tensors that a recipe starts from beside its parent: optimizer and generator states.';
COMMENT ON COLUMN mmdb.recipe_tensor.path IS 'The dtype: tensors of one dtype lie end to end; recipe.arguments says where.';
