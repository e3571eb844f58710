-- name: find_versions
-- The versions of a model, newest first.
SELECT
    m.model_id,
    m.name,
    m.version,
    m.candidate_id,
    m.epoch
FROM mmdb.model AS m
WHERE m.name = %(name)s::text
ORDER BY m.version DESC;

-- name: find_model
-- A model with what it takes to build it.
SELECT
    m.model_id,
    m.name,
    m.version,
    m.architecture::text AS architecture,
    m.arguments::text AS arguments,
    m.dataset_id
FROM mmdb.model AS m
WHERE m.model_id = %(model_id)s::bigint;

-- name: add_model
-- Name a new version of a model.
INSERT INTO mmdb.model (name, version, architecture, arguments, dataset_id, candidate_id, epoch, metrics)
VALUES (
    %(name)s::text, %(version)s::integer, %(architecture)s::jsonb, %(arguments)s::jsonb, %(dataset_id)s::bigint,
    %(candidate_id)s::bigint, %(epoch)s::integer, %(metrics)s::jsonb
)
RETURNING model_id;

-- name: add_model_tensor
-- Put a tensor into a model.
INSERT INTO mmdb.model_tensor (model_id, ordinal, path, tensor_hash)
VALUES (%(model_id)s::bigint, %(ordinal)s::integer, %(path)s::text, %(tensor_hash)s::bytea);

-- name: find_model_tensors
-- The tensors of a model, in the order of its state dict.
SELECT
    t.path,
    t.tensor_hash,
    x.dtype,
    x.shape
FROM mmdb.model_tensor AS t
INNER JOIN mmdb.tensor AS x ON t.tensor_hash = x.tensor_hash
WHERE t.model_id = %(model_id)s::bigint
ORDER BY t.ordinal;

-- name: find_tensor
-- Whether a tensor is stored.
SELECT x.byte_count
FROM mmdb.tensor AS x
WHERE x.tensor_hash = %(tensor_hash)s::bytea;

-- name: add_tensor
-- Name a tensor's content.
INSERT INTO mmdb.tensor (tensor_hash, dtype, shape, byte_count)
VALUES (%(tensor_hash)s::bytea, %(dtype)s::text, %(shape)s::bigint[], %(byte_count)s::bigint)
ON CONFLICT (tensor_hash) DO NOTHING
RETURNING byte_count;

-- name: add_tensor_chunk
-- One chunk of a tensor.
INSERT INTO mmdb.tensor_chunk (tensor_hash, ordinal, data)
VALUES (%(tensor_hash)s::bytea, %(ordinal)s::integer, %(data)s::bytea);

-- name: read_tensor
-- The chunks of a tensor.
SELECT c.data
FROM mmdb.tensor_chunk AS c
WHERE c.tensor_hash = %(tensor_hash)s::bytea
ORDER BY c.ordinal;
