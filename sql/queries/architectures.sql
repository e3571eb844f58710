-- name: find_architecture
-- An architecture by its hash.
SELECT a.architecture_id
FROM mmdb.architecture AS a
WHERE a.canonical_hash = %(canonical_hash)s::bytea;

-- name: add_architecture
-- An architecture, unless it is known.
INSERT INTO mmdb.architecture (canonical_hash, is_traced, node_count, parameter_count, parameter_bytes)
VALUES (
    %(canonical_hash)s::bytea, %(is_traced)s::boolean, %(node_count)s::integer, %(parameter_count)s::bigint,
    %(parameter_bytes)s::bigint
)
ON CONFLICT (canonical_hash) DO NOTHING
RETURNING architecture_id;

-- name: add_node
-- One node of an architecture.
INSERT INTO mmdb.architecture_node (architecture_id, ordinal, op, attributes, parameters, parameter_bytes, prefix_hash)
VALUES (
    %(architecture_id)s::bigint, %(ordinal)s::integer, %(op)s::text, %(attributes)s::jsonb, %(parameters)s::jsonb,
    %(parameter_bytes)s::bigint, %(prefix_hash)s::bytea
);

-- name: add_edge
-- One edge of an architecture.
INSERT INTO mmdb.architecture_edge (architecture_id, source, target, position)
VALUES (%(architecture_id)s::bigint, %(source)s::integer, %(target)s::integer, %(position)s::integer);

-- name: add_prefix
-- A beginning of architectures, unless it is known.
INSERT INTO mmdb.architecture_prefix (prefix_hash, node_count, parameter_bytes)
VALUES (%(prefix_hash)s::bytea, %(node_count)s::integer, %(parameter_bytes)s::bigint)
ON CONFLICT (prefix_hash) DO NOTHING;

-- name: find_prefixes
-- Which beginnings the zoo has, the longest first.
SELECT
    p.prefix_hash,
    p.node_count
FROM mmdb.architecture_prefix AS p
WHERE p.prefix_hash = any(%(hashes)s::bytea[])
ORDER BY p.node_count DESC, p.prefix_hash ASC;

-- name: find_beginnings
-- The beginnings of an architecture, with how many of its nodes each ends in.
SELECT
    n.prefix_hash,
    count(*) AS nodes
FROM mmdb.architecture_node AS n
WHERE n.architecture_id = %(architecture_id)s::bigint AND n.op <> 'input'
GROUP BY n.prefix_hash;

-- name: find_beginning
-- Architectures that have a beginning and a model that is not dropped.
SELECT DISTINCT n.architecture_id
FROM mmdb.architecture_node AS n
WHERE
    n.prefix_hash = %(prefix_hash)s::bytea
    AND EXISTS (
        SELECT 1 FROM mmdb.model AS m
        WHERE m.architecture_id = n.architecture_id AND m.dropped_at IS NULL
    )
ORDER BY n.architecture_id
LIMIT %(count)s::integer;

-- name: count_shared
-- Nodes of some architectures that are among some beginnings, by hash.
SELECT
    n.architecture_id,
    n.prefix_hash,
    count(*) AS nodes,
    max(n.parameter_bytes) AS parameter_bytes
FROM mmdb.architecture_node AS n
WHERE n.architecture_id = any(%(architecture_ids)s::bigint[]) AND n.prefix_hash = any(%(hashes)s::bytea[])
GROUP BY n.architecture_id, n.prefix_hash;

-- name: find_models_of
-- The newest model of some architectures that has not been dropped.
SELECT
    m.architecture_id,
    m.name,
    m.version
FROM mmdb.model AS m
WHERE m.architecture_id = any(%(architecture_ids)s::bigint[]) AND m.dropped_at IS NULL
ORDER BY m.model_id DESC;

-- name: read_nodes
-- The nodes of an architecture.
SELECT
    n.ordinal,
    n.op,
    n.attributes::text AS attributes,
    n.parameters::text AS parameters,
    n.parameter_bytes,
    n.prefix_hash
FROM mmdb.architecture_node AS n
WHERE n.architecture_id = %(architecture_id)s::bigint
ORDER BY n.ordinal;
