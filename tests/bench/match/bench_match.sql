-- name: add_architecture
-- An architecture without nodes.
INSERT INTO mmdb.architecture (canonical_hash, is_traced, node_count, parameter_count, parameter_bytes)
VALUES (
    %(canonical_hash)s::bytea, %(is_traced)s::boolean, %(node_count)s::integer, %(parameter_count)s::bigint,
    %(parameter_bytes)s::bigint
);

-- name: add_outline
-- The outline of an architecture.
INSERT INTO mmdb.outline (architecture_id, version, layer_count, parameter_count, packed)
VALUES (
    %(architecture_id)s::bigint, %(version)s::integer, %(layer_count)s::integer, %(parameter_count)s::bigint,
    %(packed)s::bytea
);

-- name: find_architectures
-- All architectures.
SELECT
    a.architecture_id,
    a.canonical_hash
FROM mmdb.architecture AS a
ORDER BY a.architecture_id;

-- name: add_model
-- A model that has an architecture, and no tensors.
INSERT INTO mmdb.model (
    name, version, approach, architecture_id, weights_hash, tensor_count, byte_count, metrics, reason, stored_bytes,
    save_s
)
VALUES (
    %(name)s::text, %(version)s::integer, %(approach)s::text, %(architecture_id)s::bigint, %(weights_hash)s::bytea,
    %(tensor_count)s::integer, %(byte_count)s::bigint, %(metrics)s::jsonb, %(reason)s::jsonb, %(stored_bytes)s::bigint,
    %(save_s)s::double precision
);
