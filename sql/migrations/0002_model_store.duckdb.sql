-- From models as lists of chunked tensors to the model store; 0001_model_store.postgres.sql says
-- what is put in the place of what SQL cannot compute.

DROP VIEW mmdb.model_overview;
DROP VIEW mmdb.model_lineage;
ALTER TABLE mmdb.tensor RENAME TO tensor_0_1;
ALTER TABLE mmdb.tensor_chunk RENAME TO tensor_chunk_0_1;
ALTER TABLE mmdb.model RENAME TO model_0_1;
ALTER TABLE mmdb.model_tensor RENAME TO model_tensor_0_1;

-- Models are named, immutable sets of tensors; a tensor is stored once however many models hold it.
-- tensor says what the bytes are, encoding and tensor_chunk (sql/engines) where and how they lie.

CREATE SEQUENCE mmdb.tensor_tensor_id_seq;
CREATE TABLE mmdb.tensor (
    tensor_id bigint NOT NULL DEFAULT nextval('mmdb.tensor_tensor_id_seq'),
    tensor_hash blob NOT NULL,
    dtype text NOT NULL,
    shape bigint[] NOT NULL,
    byte_count bigint NOT NULL,
    minimum double,
    maximum double,
    mean double,
    deviation double,
    zeros bigint,
    nans bigint,
    created_at timestamptz NOT NULL DEFAULT current_timestamp,
    CONSTRAINT tensor_pkey PRIMARY KEY (tensor_id),
    CONSTRAINT tensor_hash_key UNIQUE (tensor_hash)
);
COMMENT ON TABLE mmdb.tensor IS 'Content-addressed tensors; the same bytes are one row.';
COMMENT ON COLUMN mmdb.tensor.tensor_hash IS 'BLAKE3-256 over dtype, shape and little-endian, row-major bytes.';
COMMENT ON COLUMN mmdb.tensor.minimum IS 'Of the elements that are not NaN; null where there are none, or no order.';
COMMENT ON COLUMN mmdb.tensor.deviation IS 'Standard deviation of the elements that are not NaN, over n.';
COMMENT ON COLUMN mmdb.tensor.zeros IS 'Elements equal to zero.';

CREATE TABLE mmdb.encoding (
    tensor_id bigint NOT NULL,
    base_id bigint,
    word integer NOT NULL,
    chunk_bytes integer NOT NULL,
    chunks integer NOT NULL,
    stored_bytes bigint NOT NULL,
    CONSTRAINT encoding_pkey PRIMARY KEY (tensor_id)
);
COMMENT ON TABLE mmdb.encoding IS 'How a tensor lies in its chunks; small tensors have none, they lie in their model''s pack.';
COMMENT ON COLUMN mmdb.encoding.base_id IS 'The tensor that its delta chunks are differences to; it has no base itself.';
COMMENT ON COLUMN mmdb.encoding.word IS 'Bytes of the words that the codecs split and subtract.';
COMMENT ON COLUMN mmdb.encoding.chunk_bytes IS 'Bytes of a chunk before encoding; the last chunk may be shorter.';
COMMENT ON COLUMN mmdb.encoding.stored_bytes IS 'Bytes of its chunks as they are stored.';

CREATE SEQUENCE mmdb.environment_environment_id_seq;
CREATE TABLE mmdb.environment (
    environment_id bigint NOT NULL DEFAULT nextval('mmdb.environment_environment_id_seq'),
    environment_hash blob NOT NULL,
    details json NOT NULL,
    CONSTRAINT environment_pkey PRIMARY KEY (environment_id),
    CONSTRAINT environment_hash_key UNIQUE (environment_hash)
);
COMMENT ON TABLE mmdb.environment IS 'Software and hardware that models were saved in, each once.';
COMMENT ON COLUMN mmdb.environment.environment_hash IS 'BLAKE3-256 of the details as JSON with sorted keys.';

CREATE SEQUENCE mmdb.architecture_architecture_id_seq;
CREATE TABLE mmdb.architecture (
    architecture_id bigint NOT NULL DEFAULT nextval('mmdb.architecture_architecture_id_seq'),
    canonical_hash blob NOT NULL,
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
    prefix_hash blob NOT NULL,
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
    attributes json NOT NULL,
    parameters json NOT NULL,
    parameter_bytes bigint NOT NULL,
    prefix_hash blob NOT NULL,
    CONSTRAINT architecture_node_pkey PRIMARY KEY (architecture_id, ordinal)
);
COMMENT ON TABLE mmdb.architecture_node IS 'Layers and operations of an architecture, in topological order.';
COMMENT ON COLUMN mmdb.architecture_node.parameters IS 'Name, dtype and shape of each tensor that the layer owns.';
COMMENT ON COLUMN mmdb.architecture_node.prefix_hash IS 'BLAKE3-256 over the node and all that feeds it; see architecture_prefix.';

CREATE TABLE mmdb.architecture_edge (
    architecture_id bigint NOT NULL,
    source integer NOT NULL,
    target integer NOT NULL,
    position integer NOT NULL,
    CONSTRAINT architecture_edge_pkey PRIMARY KEY (architecture_id, target, position)
);
COMMENT ON TABLE mmdb.architecture_edge IS 'What feeds each node; position is the place among the node''s inputs.';

CREATE SEQUENCE mmdb.definition_definition_id_seq;
CREATE TABLE mmdb.definition (
    definition_id bigint NOT NULL DEFAULT nextval('mmdb.definition_definition_id_seq'),
    definition_hash blob NOT NULL,
    architecture json NOT NULL,
    arguments json NOT NULL,
    input_shape integer[] NOT NULL,
    outputs integer NOT NULL,
    CONSTRAINT definition_pkey PRIMARY KEY (definition_id),
    CONSTRAINT definition_hash_key UNIQUE (definition_hash)
);
COMMENT ON TABLE mmdb.definition IS 'What it takes to build a model''s module, each once.';
COMMENT ON COLUMN mmdb.definition.definition_hash IS 'BLAKE3-256 of the other columns as JSON with sorted keys.';
COMMENT ON COLUMN mmdb.definition.architecture IS 'A factory with its arguments, or a layer graph.';
COMMENT ON COLUMN mmdb.definition.arguments IS 'Arguments of the candidate, which override the architecture''s own.';

CREATE SEQUENCE mmdb.manifest_manifest_id_seq;
CREATE TABLE mmdb.manifest (
    manifest_id bigint NOT NULL DEFAULT nextval('mmdb.manifest_manifest_id_seq'),
    created_at timestamptz NOT NULL DEFAULT current_timestamp,
    CONSTRAINT manifest_pkey PRIMARY KEY (manifest_id)
);
COMMENT ON TABLE mmdb.manifest IS 'Lists of tensors by path, which models share; see model_change.';

CREATE TABLE mmdb.manifest_tensor (
    manifest_id bigint NOT NULL,
    ordinal integer NOT NULL,
    path text NOT NULL,
    tensor_id bigint NOT NULL,
    kind text NOT NULL,
    trainable boolean NOT NULL,
    tied_to integer,
    layout json,
    CONSTRAINT manifest_tensor_pkey PRIMARY KEY (manifest_id, ordinal),
    CONSTRAINT manifest_tensor_kind_check CHECK (kind IN ('parameter', 'buffer', 'transient', 'storage'))
);
COMMENT ON TABLE mmdb.manifest_tensor IS 'The tensors of a manifest, in the order of the state dict.';
COMMENT ON COLUMN mmdb.manifest_tensor.kind IS 'transient: a buffer outside of the state dict; storage: memory that several views share.';
COMMENT ON COLUMN mmdb.manifest_tensor.tied_to IS 'Ordinal of the entry that is the very same tensor.';
COMMENT ON COLUMN mmdb.manifest_tensor.layout IS 'Of a view: ordinal of its storage, offset in bytes, strides in elements.';

CREATE TABLE mmdb.model (
    model_id bigint NOT NULL DEFAULT nextval('mmdb.model_model_id_seq'),
    name text NOT NULL,
    version integer NOT NULL,
    approach text NOT NULL,
    parent_id bigint,
    manifest_id bigint,
    pack_id bigint,
    definition_id bigint,
    architecture_id bigint,
    environment_id bigint,
    weights_hash blob NOT NULL,
    tensor_count integer NOT NULL,
    byte_count bigint NOT NULL,
    dataset_id bigint,
    candidate_id bigint,
    epoch integer,
    metrics json NOT NULL,
    reason json NOT NULL,
    stored_bytes bigint NOT NULL,
    save_s double NOT NULL,
    created_at timestamptz NOT NULL DEFAULT current_timestamp,
    dropped_at timestamptz,
    CONSTRAINT model_pkey PRIMARY KEY (model_id),
    CONSTRAINT model_name_version_key UNIQUE (name, version),
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

CREATE TABLE mmdb.model_change (
    model_id bigint NOT NULL,
    ordinal integer NOT NULL,
    tensor_id bigint NOT NULL,
    CONSTRAINT model_change_pkey PRIMARY KEY (model_id, ordinal)
);
COMMENT ON TABLE mmdb.model_change IS 'Tensors of a model that stand in place of its manifest''s.';

CREATE TABLE mmdb.recipe (
    model_id bigint NOT NULL,
    trainer text,
    arguments json NOT NULL,
    seed bigint,
    tensor_hashes blob NOT NULL,
    train_s double,
    replayed_s double,
    CONSTRAINT recipe_pkey PRIMARY KEY (model_id)
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
    CONSTRAINT recipe_tensor_pkey PRIMARY KEY (model_id, path)
);
COMMENT ON TABLE mmdb.recipe_tensor IS 'Tensors that a recipe starts from beside its parent: optimizer and generator states.';
COMMENT ON COLUMN mmdb.recipe_tensor.path IS 'The dtype: tensors of one dtype lie end to end; recipe.arguments says where.';

-- What people say about models: aliases, tags, metrics, notes, probes.

CREATE SEQUENCE mmdb.alias_event_event_id_seq;
CREATE TABLE mmdb.alias_event (
    event_id bigint NOT NULL DEFAULT nextval('mmdb.alias_event_event_id_seq'),
    model text NOT NULL,
    alias text NOT NULL,
    version integer,
    happened_at timestamptz NOT NULL DEFAULT current_timestamp,
    author text NOT NULL DEFAULT '',
    CONSTRAINT alias_event_pkey PRIMARY KEY (event_id)
);
COMMENT ON TABLE mmdb.alias_event IS 'Every move of an alias; its last event says where it is.';
COMMENT ON COLUMN mmdb.alias_event.author IS 'The session''s user on PostgreSQL; empty on DuckDB, whose file has one.';
COMMENT ON COLUMN mmdb.alias_event.version IS 'Null where the alias was taken away.';

CREATE TABLE mmdb.model_tag (
    model_id bigint NOT NULL,
    key text NOT NULL,
    value text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT current_timestamp,
    CONSTRAINT model_tag_pkey PRIMARY KEY (model_id, key)
);
COMMENT ON TABLE mmdb.model_tag IS 'Tags of a model, one value for each key.';

CREATE TABLE mmdb.model_metric (
    model_id bigint NOT NULL,
    metric text NOT NULL,
    dataset text NOT NULL,
    value double NOT NULL,
    created_at timestamptz NOT NULL DEFAULT current_timestamp,
    CONSTRAINT model_metric_pkey PRIMARY KEY (model_id, metric, dataset)
);
COMMENT ON TABLE mmdb.model_metric IS 'Metrics of a model, those of its training among them.';
COMMENT ON COLUMN mmdb.model_metric.dataset IS 'What it was measured on; empty where that was not said.';

CREATE SEQUENCE mmdb.model_note_note_id_seq;
CREATE TABLE mmdb.model_note (
    note_id bigint NOT NULL DEFAULT nextval('mmdb.model_note_note_id_seq'),
    model_id bigint NOT NULL,
    note text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT current_timestamp,
    author text NOT NULL DEFAULT '',
    CONSTRAINT model_note_pkey PRIMARY KEY (note_id)
);
COMMENT ON TABLE mmdb.model_note IS 'What people wrote about a model.';

CREATE SEQUENCE mmdb.probe_probe_id_seq;
CREATE TABLE mmdb.probe (
    probe_id bigint NOT NULL DEFAULT nextval('mmdb.probe_probe_id_seq'),
    name text NOT NULL,
    model_id bigint,
    summary json NOT NULL,
    created_at timestamptz NOT NULL DEFAULT current_timestamp,
    CONSTRAINT probe_pkey PRIMARY KEY (probe_id)
);
COMMENT ON TABLE mmdb.probe IS 'Layer-by-layer digests of forward and backward passes, to compare later.';

CREATE TABLE mmdb.trainer (
    name text NOT NULL,
    target text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT current_timestamp,
    CONSTRAINT trainer_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE mmdb.trainer IS 'Allow-list of the training functions that recipes may name.';
COMMENT ON COLUMN mmdb.trainer.target IS 'package.module:callable, which trains a module in place.';

-- What DuckDB needs beside the translated schema.

-- Encoded bytes do not compress, and DuckDB would decompress thousands of them to read one.
CREATE TABLE mmdb.tensor_chunk ( -- noqa: PRS
    tensor_id BIGINT NOT NULL,
    ordinal INTEGER NOT NULL,
    codec INTEGER NOT NULL,
    digest BLOB,
    data BLOB NOT NULL USING COMPRESSION uncompressed,
    CONSTRAINT tensor_chunk_pkey PRIMARY KEY (tensor_id, ordinal)
);
COMMENT ON TABLE mmdb.tensor_chunk IS 'The bytes of tensors, each chunk encoded by itself.';
COMMENT ON COLUMN mmdb.tensor_chunk.codec IS 'How the chunk is encoded: mmdb/store/codec.py.';
COMMENT ON COLUMN mmdb.tensor_chunk.digest IS 'The first 16 bytes of the BLAKE3 of data; null in chunks written before 0.2.';
CREATE INDEX tensor_chunk_tensor_idx ON mmdb.tensor_chunk (tensor_id);
CREATE INDEX architecture_node_prefix_idx ON mmdb.architecture_node (prefix_hash);

-- The models of the old tables.

INSERT INTO mmdb.tensor (tensor_hash, dtype, shape, byte_count, created_at)
SELECT
    t.tensor_hash,
    t.dtype,
    t.shape,
    t.byte_count,
    coalesce(min(m.created_at), now()) AS created_at
FROM mmdb.tensor_0_1 AS t
LEFT JOIN mmdb.model_tensor_0_1 AS h ON t.tensor_hash = h.tensor_hash
LEFT JOIN mmdb.model_0_1 AS m ON h.model_id = m.model_id
GROUP BY t.tensor_hash, t.dtype, t.shape, t.byte_count;

INSERT INTO mmdb.encoding (tensor_id, word, chunk_bytes, chunks, stored_bytes)
SELECT
    t.tensor_id,
    CASE
        WHEN t.dtype IN ('float64', 'int64', 'uint64', 'complex128') THEN 8
        WHEN t.dtype IN ('float32', 'int32', 'uint32', 'complex64') THEN 4
        WHEN t.dtype IN ('float16', 'bfloat16', 'int16', 'uint16', 'complex32') THEN 2
        ELSE 1
    END AS word,
    1048576 AS chunk_bytes,
    (t.byte_count + 1048575) // 1048576 AS chunks,
    t.byte_count
FROM mmdb.tensor AS t;

INSERT INTO mmdb.tensor_chunk (tensor_id, ordinal, codec, data)
SELECT
    t.tensor_id,
    c.ordinal,
    0 AS codec,
    c.data
FROM mmdb.tensor_chunk_0_1 AS c
INNER JOIN mmdb.tensor AS t ON c.tensor_hash = t.tensor_hash
WHERE t.byte_count > 0;

INSERT INTO mmdb.definition (definition_hash, architecture, arguments, input_shape, outputs)
SELECT
    unhex(sha256(to_json([s.architecture, s.arguments, to_json(s.input_shape), to_json(s.outputs)])::varchar)) AS definition_hash,
    s.architecture,
    s.arguments,
    s.input_shape,
    s.outputs
FROM (
    SELECT DISTINCT
        m.architecture,
        m.arguments,
        d.input_shape,
        coalesce(json_array_length(d.classes), 1) AS outputs
    FROM mmdb.model_0_1 AS m
    INNER JOIN mmdb.dataset AS d ON m.dataset_id = d.dataset_id
) AS s;

CREATE TABLE mmdb.manifest_0_1 AS
SELECT
    m.model_id,
    m.created_at,
    nextval('mmdb.manifest_manifest_id_seq') AS manifest_id
FROM mmdb.model_0_1 AS m;

INSERT INTO mmdb.manifest (manifest_id, created_at)
SELECT
    m.manifest_id,
    m.created_at
FROM mmdb.manifest_0_1 AS m;

INSERT INTO mmdb.manifest_tensor (manifest_id, ordinal, path, tensor_id, kind, trainable)
SELECT
    s.manifest_id,
    s.ordinal,
    s.path,
    t.tensor_id,
    CASE WHEN s.is_buffer THEN 'buffer' ELSE 'parameter' END AS kind,
    NOT s.is_buffer AS trainable
FROM (
    SELECT
        m.manifest_id,
        h.ordinal,
        h.path,
        h.tensor_hash,
        regexp_replace(h.path, '^.*[.]', '') IN ('running_mean', 'running_var', 'num_batches_tracked') AS is_buffer
    FROM mmdb.model_tensor_0_1 AS h
    INNER JOIN mmdb.manifest_0_1 AS m ON h.model_id = m.model_id
) AS s
INNER JOIN mmdb.tensor AS t ON s.tensor_hash = t.tensor_hash;

INSERT INTO mmdb.model (
    model_id, name, version, approach, manifest_id, definition_id, weights_hash, tensor_count, byte_count, dataset_id,
    candidate_id, epoch, metrics, reason, stored_bytes, save_s, created_at
)
SELECT
    m.model_id,
    m.name,
    m.version,
    'snapshot' AS approach,
    p.manifest_id,
    f.definition_id,
    unhex(sha256(coalesce(h.tensor_hashes, ''::blob))) AS weights_hash,
    coalesce(h.tensor_count, 0) AS tensor_count,
    coalesce(h.byte_count, 0) AS byte_count,
    m.dataset_id,
    m.candidate_id,
    m.epoch,
    m.metrics,
    '{}' AS reason,
    coalesce(a.byte_count, 0) AS stored_bytes,
    0 AS save_s,
    m.created_at
FROM mmdb.model_0_1 AS m
INNER JOIN mmdb.manifest_0_1 AS p ON m.model_id = p.model_id
INNER JOIN mmdb.dataset AS d ON m.dataset_id = d.dataset_id
INNER JOIN mmdb.definition AS f
    ON
        m.architecture = f.architecture AND m.arguments = f.arguments AND d.input_shape = f.input_shape
        AND coalesce(json_array_length(d.classes), 1) = f.outputs
LEFT JOIN (
    SELECT
        h.model_id,
        unhex(string_agg(hex(h.tensor_hash), '' ORDER BY h.ordinal)) AS tensor_hashes,
        count(*) AS tensor_count,
        sum(t.byte_count) AS byte_count
    FROM mmdb.model_tensor_0_1 AS h
    INNER JOIN mmdb.tensor AS t ON h.tensor_hash = t.tensor_hash
    GROUP BY h.model_id
) AS h ON m.model_id = h.model_id
LEFT JOIN ( -- what saving it added: the tensors that no model before it has
    SELECT
        s.model_id,
        sum(t.byte_count) AS byte_count
    FROM (
        SELECT
            h.tensor_hash,
            min(h.model_id) AS model_id
        FROM mmdb.model_tensor_0_1 AS h
        GROUP BY h.tensor_hash
    ) AS s
    INNER JOIN mmdb.tensor AS t ON s.tensor_hash = t.tensor_hash
    GROUP BY s.model_id
) AS a ON m.model_id = a.model_id;

INSERT INTO mmdb.model_metric (model_id, metric, dataset, value, created_at)
SELECT
    m.model_id,
    e.key AS metric,
    '' AS dataset,
    e.value::varchar::double AS value,
    m.created_at
FROM mmdb.model AS m
CROSS JOIN json_each(m.metrics) AS e
WHERE e.type IN ('UBIGINT', 'BIGINT', 'DOUBLE');

DROP TABLE mmdb.manifest_0_1;
DROP TABLE mmdb.model_tensor_0_1;
DROP TABLE mmdb.model_0_1;
DROP TABLE mmdb.tensor_chunk_0_1;
DROP TABLE mmdb.tensor_0_1;
