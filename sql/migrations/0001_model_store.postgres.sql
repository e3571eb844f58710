-- From models as lists of chunked tensors to the model store. Sources: sql/schema/04_store.sql,
-- 05_registry.sql and engines/postgres.sql as they were when this file was published.
-- What SQL cannot compute is put in its place: the weights' hash of an old model is the SHA-256 of
-- its tensors' hashes in order, and a definition's hash the SHA-256 of its columns as text; later
-- saves have BLAKE3. Old tensors keep their chunks of 1 MiB, small ones too, and have no statistics.

DROP VIEW mmdb.model_overview;
DROP VIEW mmdb.model_lineage;
DROP FUNCTION mmdb.save_candidate(bigint, text);
CREATE SCHEMA mmdb_0_1;
ALTER TABLE mmdb.tensor SET SCHEMA mmdb_0_1;
ALTER TABLE mmdb.tensor_chunk SET SCHEMA mmdb_0_1;
ALTER TABLE mmdb.model SET SCHEMA mmdb_0_1;
ALTER TABLE mmdb.model_tensor SET SCHEMA mmdb_0_1;

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
    CONSTRAINT definition_pkey PRIMARY KEY (definition_id),
    CONSTRAINT definition_hash_key UNIQUE (definition_hash)
);
COMMENT ON TABLE mmdb.definition IS 'What it takes to build a model''s module, each once.';
COMMENT ON COLUMN mmdb.definition.definition_hash IS 'BLAKE3-256 of the other columns as JSON with sorted keys.';
COMMENT ON COLUMN mmdb.definition.architecture IS 'A factory with its arguments, or a layer graph.';
COMMENT ON COLUMN mmdb.definition.arguments IS 'Arguments of the candidate, which override the architecture''s own.';

CREATE TABLE mmdb.manifest (
    manifest_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
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

CREATE TABLE mmdb.model_change (
    model_id bigint NOT NULL,
    ordinal integer NOT NULL,
    tensor_id bigint NOT NULL,
    CONSTRAINT model_change_pkey PRIMARY KEY (model_id, ordinal),
    CONSTRAINT model_change_model_fkey FOREIGN KEY (model_id) REFERENCES mmdb.model (model_id),
    CONSTRAINT model_change_tensor_fkey FOREIGN KEY (tensor_id) REFERENCES mmdb.tensor (tensor_id)
);
COMMENT ON TABLE mmdb.model_change IS 'Tensors of a model that stand in place of its manifest''s.';

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

-- What people say about models: aliases, tags, metrics, notes, probes.

CREATE TABLE mmdb.alias_event (
    event_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    model text NOT NULL,
    alias text NOT NULL,
    version integer,
    happened_at timestamptz NOT NULL DEFAULT now(),
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
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT model_tag_pkey PRIMARY KEY (model_id, key),
    CONSTRAINT model_tag_model_fkey FOREIGN KEY (model_id) REFERENCES mmdb.model (model_id)
);
COMMENT ON TABLE mmdb.model_tag IS 'Tags of a model, one value for each key.';

CREATE TABLE mmdb.model_metric (
    model_id bigint NOT NULL,
    metric text NOT NULL,
    dataset text NOT NULL,
    value double precision NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT model_metric_pkey PRIMARY KEY (model_id, metric, dataset),
    CONSTRAINT model_metric_model_fkey FOREIGN KEY (model_id) REFERENCES mmdb.model (model_id)
);
COMMENT ON TABLE mmdb.model_metric IS 'Metrics of a model, those of its training among them.';
COMMENT ON COLUMN mmdb.model_metric.dataset IS 'What it was measured on; empty where that was not said.';

CREATE TABLE mmdb.model_note (
    note_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    model_id bigint NOT NULL,
    note text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    author text NOT NULL DEFAULT '',
    CONSTRAINT model_note_pkey PRIMARY KEY (note_id),
    CONSTRAINT model_note_model_fkey FOREIGN KEY (model_id) REFERENCES mmdb.model (model_id)
);
COMMENT ON TABLE mmdb.model_note IS 'What people wrote about a model.';

CREATE TABLE mmdb.probe (
    probe_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    name text NOT NULL,
    model_id bigint,
    summary jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT probe_pkey PRIMARY KEY (probe_id),
    CONSTRAINT probe_model_fkey FOREIGN KEY (model_id) REFERENCES mmdb.model (model_id)
);
COMMENT ON TABLE mmdb.probe IS 'Layer-by-layer digests of forward and backward passes, to compare later.';

CREATE TABLE mmdb.trainer (
    name text NOT NULL,
    target text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT trainer_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE mmdb.trainer IS 'Allow-list of the training functions that recipes may name.';
COMMENT ON COLUMN mmdb.trainer.target IS 'package.module:callable, which trains a module in place.';

CREATE INDEX encoding_base_idx ON mmdb.encoding (base_id) WHERE base_id IS NOT NULL;
CREATE INDEX manifest_tensor_tensor_idx ON mmdb.manifest_tensor (tensor_id);
CREATE INDEX model_change_tensor_idx ON mmdb.model_change (tensor_id);
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
-- Who moved an alias or wrote a note: nobody may say otherwise, see postgres_rights.sql.
ALTER TABLE mmdb.alias_event ALTER COLUMN author SET DEFAULT session_user;
ALTER TABLE mmdb.model_note ALTER COLUMN author SET DEFAULT session_user;
-- One TOAST table and one index for all tensors of a large zoo would slow down and could not be
-- vacuumed in parts.
CREATE TABLE mmdb.tensor_chunk (
    tensor_id bigint NOT NULL,
    ordinal integer NOT NULL,
    codec integer NOT NULL,
    digest bytea,
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
COMMENT ON TABLE mmdb.tensor_chunk IS 'The bytes of tensors, each chunk encoded by itself.';
COMMENT ON COLUMN mmdb.tensor_chunk.codec IS 'How the chunk is encoded: mmdb/store/codec.py.';
COMMENT ON COLUMN mmdb.tensor_chunk.digest IS 'The first 16 bytes of the BLAKE3 of data; null in chunks written before 0.2.';
CREATE TYPE mmdb.dropped_row AS (
    name text,
    version integer,
    bytes bigint
);
COMMENT ON TYPE mmdb.dropped_row IS 'A model that was dropped, and the bytes that gc can free.';

-- The models of the old tables.

INSERT INTO mmdb.tensor (tensor_hash, dtype, shape, byte_count, created_at)
SELECT
    t.tensor_hash,
    t.dtype,
    t.shape,
    t.byte_count,
    coalesce(min(m.created_at), now()) AS created_at
FROM mmdb_0_1.tensor AS t
LEFT JOIN mmdb_0_1.model_tensor AS h ON t.tensor_hash = h.tensor_hash
LEFT JOIN mmdb_0_1.model AS m ON h.model_id = m.model_id
GROUP BY t.tensor_hash, t.dtype, t.shape, t.byte_count
ORDER BY t.tensor_hash;

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
    (t.byte_count + 1048575) / 1048576 AS chunks,
    t.byte_count
FROM mmdb.tensor AS t;

INSERT INTO mmdb.tensor_chunk (tensor_id, ordinal, codec, data)
SELECT
    t.tensor_id,
    c.ordinal,
    0 AS codec,
    c.data
FROM mmdb_0_1.tensor_chunk AS c
INNER JOIN mmdb.tensor AS t ON c.tensor_hash = t.tensor_hash
WHERE t.byte_count > 0;

INSERT INTO mmdb.definition (definition_hash, architecture, arguments, input_shape, outputs)
SELECT
    sha256(convert_to(jsonb_build_array(s.architecture, s.arguments, s.input_shape, s.outputs)::text, 'UTF8')) AS definition_hash,
    s.architecture,
    s.arguments,
    s.input_shape,
    s.outputs
FROM (
    SELECT DISTINCT
        m.architecture,
        m.arguments,
        d.input_shape,
        coalesce(jsonb_array_length(d.classes), 1) AS outputs
    FROM mmdb_0_1.model AS m
    INNER JOIN mmdb.dataset AS d ON m.dataset_id = d.dataset_id
) AS s;

INSERT INTO mmdb.manifest (manifest_id, created_at) OVERRIDING SYSTEM VALUE
SELECT
    m.model_id,
    m.created_at
FROM mmdb_0_1.model AS m;

INSERT INTO mmdb.manifest_tensor (manifest_id, ordinal, path, tensor_id, kind, trainable)
SELECT
    s.model_id,
    s.ordinal,
    s.path,
    t.tensor_id,
    CASE WHEN s.is_buffer THEN 'buffer' ELSE 'parameter' END AS kind,
    NOT s.is_buffer AS trainable
FROM (
    SELECT
        h.model_id,
        h.ordinal,
        h.path,
        h.tensor_hash,
        regexp_replace(h.path, '^.*[.]', '') IN ('running_mean', 'running_var', 'num_batches_tracked') AS is_buffer
    FROM mmdb_0_1.model_tensor AS h
) AS s
INNER JOIN mmdb.tensor AS t ON s.tensor_hash = t.tensor_hash;

INSERT INTO mmdb.model (
    model_id, name, version, approach, manifest_id, definition_id, weights_hash, tensor_count, byte_count, dataset_id,
    candidate_id, epoch, metrics, reason, stored_bytes, save_s, created_at
) OVERRIDING SYSTEM VALUE
SELECT
    m.model_id,
    m.name,
    m.version,
    'snapshot' AS approach,
    m.model_id AS manifest_id,
    f.definition_id,
    sha256(coalesce(h.tensor_hashes, '')) AS weights_hash,
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
FROM mmdb_0_1.model AS m
INNER JOIN mmdb.dataset AS d ON m.dataset_id = d.dataset_id
INNER JOIN mmdb.definition AS f
    ON
        m.architecture = f.architecture AND m.arguments = f.arguments AND d.input_shape = f.input_shape
        AND coalesce(jsonb_array_length(d.classes), 1) = f.outputs
LEFT JOIN (
    SELECT
        e.manifest_id AS model_id,
        string_agg(t.tensor_hash, '' ORDER BY e.ordinal) AS tensor_hashes,
        count(*) AS tensor_count,
        sum(t.byte_count) AS byte_count
    FROM mmdb.manifest_tensor AS e
    INNER JOIN mmdb.tensor AS t ON e.tensor_id = t.tensor_id
    GROUP BY e.manifest_id
) AS h ON m.model_id = h.model_id
LEFT JOIN ( -- what saving it added: the tensors that no model before it has
    SELECT
        s.model_id,
        sum(t.byte_count) AS byte_count
    FROM (
        SELECT
            e.tensor_id,
            min(e.manifest_id) AS model_id
        FROM mmdb.manifest_tensor AS e
        GROUP BY e.tensor_id
    ) AS s
    INNER JOIN mmdb.tensor AS t ON s.tensor_id = t.tensor_id
    GROUP BY s.model_id
) AS a ON m.model_id = a.model_id;

INSERT INTO mmdb.model_metric (model_id, metric, dataset, value, created_at)
SELECT
    m.model_id,
    e.key AS metric,
    '' AS dataset,
    e.value::text::double precision AS value,
    m.created_at
FROM mmdb.model AS m
CROSS JOIN LATERAL jsonb_each(m.metrics) AS e (key, value)
WHERE jsonb_typeof(e.value) = 'number';

SELECT setval('mmdb.model_model_id_seq', s.last_value, s.is_called) FROM mmdb_0_1.model_model_id_seq AS s;
SELECT setval('mmdb.manifest_manifest_id_seq', max(m.manifest_id)) FROM mmdb.manifest AS m;

DROP TABLE mmdb_0_1.model_tensor;
DROP TABLE mmdb_0_1.model;
DROP TABLE mmdb_0_1.tensor_chunk;
DROP TABLE mmdb_0_1.tensor;
DROP SCHEMA mmdb_0_1;
