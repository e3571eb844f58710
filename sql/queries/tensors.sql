-- name: find_tensors
-- Which of some hashes are known, and how those that have chunks of their own lie in them. Teams may have a row each.
SELECT
    t.tensor_hash,
    t.tensor_id,
    t.owner,
    t.dtype,
    t.shape,
    t.byte_count,
    e.base_id,
    e.chunk_bytes
FROM mmdb.tensor AS t
LEFT JOIN mmdb.encoding AS e ON t.tensor_id = e.tensor_id
WHERE t.tensor_hash = any(%(hashes)s::bytea[]);

-- name: add_tensor
-- Name a tensor's content, unless it is known.
INSERT INTO mmdb.tensor (tensor_hash, dtype, shape, byte_count, minimum, maximum, mean, deviation, zeros, nans)
VALUES (
    %(tensor_hash)s::bytea, %(dtype)s::text, %(shape)s::bigint[], %(byte_count)s::bigint,
    %(minimum)s::double precision, %(maximum)s::double precision, %(mean)s::double precision,
    %(deviation)s::double precision, %(zeros)s::bigint, %(nans)s::bigint
)
ON CONFLICT DO NOTHING;

-- name: add_chunk
-- One chunk of a tensor.
INSERT INTO mmdb.tensor_chunk (tensor_id, ordinal, codec, digest, data)
VALUES (%(tensor_id)s::bigint, %(ordinal)s::integer, %(codec)s::integer, %(digest)s::bytea, %(data)s::bytea);

-- name: add_encoding
-- How a tensor lies in its chunks.
INSERT INTO mmdb.encoding (tensor_id, base_id, word, chunk_bytes, chunks, stored_bytes)
VALUES (
    %(tensor_id)s::bigint, %(base_id)s::bigint, %(word)s::integer, %(chunk_bytes)s::integer, %(chunks)s::integer,
    %(stored_bytes)s::bigint
);

-- name: find_encodings
-- How some tensors lie in their chunks.
SELECT
    e.tensor_id,
    e.base_id,
    e.word,
    e.chunk_bytes,
    e.chunks,
    b.tensor_hash AS base_hash,
    b.byte_count AS base_bytes,
    t.tensor_hash,
    t.dtype,
    t.shape,
    t.byte_count
FROM mmdb.encoding AS e
INNER JOIN mmdb.tensor AS t ON e.tensor_id = t.tensor_id
LEFT JOIN mmdb.tensor AS b ON e.base_id = b.tensor_id
WHERE e.tensor_id = any(%(tensor_ids)s::bigint[]);

-- name: read_chunks
-- All chunks of some tensors, in any order.
SELECT
    c.tensor_id,
    c.ordinal,
    c.codec,
    c.data
FROM mmdb.tensor_chunk AS c
WHERE c.tensor_id = any(%(tensor_ids)s::bigint[]);

-- name: read_pair
-- All chunks of a tensor and of its base, or of one alone, given twice: by an index and out of two partitions alone.
SELECT
    c.tensor_id,
    c.ordinal,
    c.codec,
    c.data
FROM mmdb.tensor_chunk AS c
WHERE c.tensor_id IN (%(tensor_id)s::bigint, %(other_id)s::bigint);

-- name: read_span
-- Some chunks of a tensor.
SELECT
    c.tensor_id,
    c.ordinal,
    c.codec,
    c.data,
    c.digest
FROM mmdb.tensor_chunk AS c
WHERE c.tensor_id = %(tensor_id)s::bigint AND c.ordinal BETWEEN %(first)s::integer AND %(last)s::integer;

-- name: read_spans
-- Some chunks of tensors whose numbers lie together: DuckDB reads the data of rows within two ranges alone.
SELECT
    c.tensor_id,
    c.ordinal,
    c.codec,
    c.data,
    c.digest
FROM mmdb.tensor_chunk AS c
WHERE
    c.tensor_id BETWEEN %(lowest)s::bigint AND %(highest)s::bigint
    AND c.ordinal BETWEEN %(first)s::integer AND %(last)s::integer
    AND %(places)s::bigint[] @> ARRAY[coalesce(c.tensor_id * 2147483648 + c.ordinal, 0)];
