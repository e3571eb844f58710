-- What DuckDB needs beside the translated schema.

-- Encoded bytes do not compress, and DuckDB would decompress thousands of them to read one.
CREATE TABLE mmdb.tensor_chunk ( -- noqa: PRS
    tensor_id BIGINT NOT NULL,
    ordinal INTEGER NOT NULL,
    codec INTEGER NOT NULL,
    digest BLOB NOT NULL,
    data BLOB NOT NULL USING COMPRESSION uncompressed,
    CONSTRAINT tensor_chunk_pkey PRIMARY KEY (tensor_id, ordinal)
);
COMMENT ON TABLE mmdb.tensor_chunk IS 'The bytes of tensors, each chunk encoded by itself.';
COMMENT ON COLUMN mmdb.tensor_chunk.codec IS 'How the chunk is encoded: mmdb/store/tensors/codec.py.';
COMMENT ON COLUMN mmdb.tensor_chunk.digest IS 'The first 16 bytes of the BLAKE3 of its place and data.';

-- The owner process looks hops up by candidate; PostgreSQL has its own indexes.
CREATE INDEX hop_candidate_idx ON mmdb.hop (candidate_id);
CREATE INDEX tensor_chunk_tensor_idx ON mmdb.tensor_chunk (tensor_id);
CREATE INDEX architecture_node_prefix_idx ON mmdb.architecture_node (prefix_hash);
