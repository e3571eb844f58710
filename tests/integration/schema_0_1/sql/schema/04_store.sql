-- Models are named, immutable sets of tensors; a tensor is stored once however many models hold it.

CREATE TABLE mmdb.tensor (
    tensor_hash bytea NOT NULL,
    dtype text NOT NULL,
    shape bigint[] NOT NULL,
    byte_count bigint NOT NULL,
    CONSTRAINT tensor_pkey PRIMARY KEY (tensor_hash)
);
COMMENT ON TABLE mmdb.tensor IS 'Content-addressed tensors.';
COMMENT ON COLUMN mmdb.tensor.tensor_hash IS 'BLAKE3-256 over dtype, shape and bytes.';

CREATE TABLE mmdb.tensor_chunk (
    tensor_hash bytea NOT NULL,
    ordinal integer NOT NULL,
    data bytea NOT NULL,
    CONSTRAINT tensor_chunk_pkey PRIMARY KEY (tensor_hash, ordinal),
    CONSTRAINT tensor_chunk_tensor_fkey FOREIGN KEY (tensor_hash) REFERENCES mmdb.tensor (tensor_hash)
);
COMMENT ON TABLE mmdb.tensor_chunk IS 'The little-endian, row-major bytes of tensors, in chunks of 1 MiB.';

CREATE TABLE mmdb.model (
    model_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    name text NOT NULL,
    version integer NOT NULL,
    architecture jsonb NOT NULL,
    arguments jsonb NOT NULL,
    dataset_id bigint NOT NULL,
    candidate_id bigint NOT NULL,
    epoch integer NOT NULL,
    metrics jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT model_pkey PRIMARY KEY (model_id),
    CONSTRAINT model_name_version_key UNIQUE (name, version),
    CONSTRAINT model_dataset_fkey FOREIGN KEY (dataset_id) REFERENCES mmdb.dataset (dataset_id),
    CONSTRAINT model_candidate_fkey FOREIGN KEY (candidate_id) REFERENCES mmdb.candidate (candidate_id)
);
COMMENT ON TABLE mmdb.model IS 'Saved models; a new save under an old name is a new version.';
COMMENT ON COLUMN mmdb.model.arguments IS 'Architecture arguments of the candidate.';
COMMENT ON COLUMN mmdb.model.epoch IS 'The epoch whose checkpoint it is, from 0.';
COMMENT ON COLUMN mmdb.model.metrics IS 'Validation metrics of that epoch.';

CREATE TABLE mmdb.model_tensor (
    model_id bigint NOT NULL,
    ordinal integer NOT NULL,
    path text NOT NULL,
    tensor_hash bytea NOT NULL,
    CONSTRAINT model_tensor_pkey PRIMARY KEY (model_id, ordinal),
    CONSTRAINT model_tensor_model_fkey FOREIGN KEY (model_id) REFERENCES mmdb.model (model_id),
    CONSTRAINT model_tensor_tensor_fkey FOREIGN KEY (tensor_hash) REFERENCES mmdb.tensor (tensor_hash)
);
COMMENT ON TABLE mmdb.model_tensor IS 'Which tensor a model holds under which path, in the order of its state dict.';
