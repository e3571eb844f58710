-- name: add_dataset
-- A dataset without rows.
INSERT INTO mmdb.dataset (
    name, query, label, task, seed, partitions, validation, row_count, byte_count, content_hash, input_shape, options
) VALUES (
    %(name)s::text, %(query)s::text, %(label)s::text, %(task)s::text, %(seed)s::bigint, %(partitions)s::integer,
    %(validation)s::double precision, %(row_count)s::bigint, %(byte_count)s::bigint, %(content_hash)s::bytea,
    %(input_shape)s::integer[], %(options)s::jsonb
);

-- name: add_source
-- A column that a dataset reads.
INSERT INTO mmdb.dataset_source (dataset_id, ordinal, table_name, column_name, output_name, schema_name, resolution)
VALUES (
    %(dataset_id)s::bigint, %(ordinal)s::integer, %(table_name)s::text, %(column_name)s::text, %(output_name)s::text,
    %(schema_name)s::text, %(resolution)s::text
);

-- name: add_partition
-- A slice of a dataset.
INSERT INTO mmdb.partition (dataset_id, ordinal, role, row_count, byte_count, content_hash)
VALUES (
    %(dataset_id)s::bigint, %(ordinal)s::integer, %(role)s::text, %(row_count)s::bigint, %(byte_count)s::bigint,
    %(content_hash)s::bytea
);

-- name: add_run
-- A run.
INSERT INTO mmdb.run (name, dataset_id, architecture, search, epochs, strategy, warm_start, seed, options)
VALUES (
    %(name)s::text, %(dataset_id)s::bigint, %(architecture)s::jsonb, %(search)s::jsonb, %(epochs)s::integer,
    %(strategy)s::text, %(warm_start)s::text, %(seed)s::bigint, %(options)s::jsonb
);

-- name: add_candidate
-- A candidate.
INSERT INTO mmdb.candidate (run_id, ordinal, config, seed)
VALUES (%(run_id)s::bigint, %(ordinal)s::integer, %(config)s::jsonb, %(seed)s::bigint);

-- name: add_hop
-- A hop.
INSERT INTO mmdb.hop (
    part_id, candidate_id, epoch, ordinal, seed, row_count, steps, loss, metrics, read_s, load_s, compute_s, store_s,
    total_s, state_in, state_out, state_bytes, worker, node, device, environment, started_at, finished_at, objective
) VALUES (
    %(part_id)s::bigint, %(candidate_id)s::bigint, %(epoch)s::integer, %(ordinal)s::integer, %(seed)s::bigint,
    %(row_count)s::bigint, %(steps)s::integer, %(loss)s::double precision, %(metrics)s::jsonb,
    %(read_s)s::double precision, %(load_s)s::double precision, %(compute_s)s::double precision,
    %(store_s)s::double precision, %(total_s)s::double precision, %(state_in)s::bytea, %(state_out)s::bytea,
    %(state_bytes)s::bigint, %(worker)s::text, %(node)s::text, %(device)s::text, %(environment)s::text,
    %(started_at)s::timestamptz, %(finished_at)s::timestamptz, %(objective)s::double precision
);

-- name: add_model
-- A model without tensors.
INSERT INTO mmdb.model (
    name, version, approach, weights_hash, tensor_count, byte_count, dataset_id, candidate_id, epoch, metrics, reason,
    stored_bytes, save_s
) VALUES (
    %(name)s::text, %(version)s::integer, %(approach)s::text, %(weights_hash)s::bytea, %(tensor_count)s::integer,
    %(byte_count)s::bigint, %(dataset_id)s::bigint, %(candidate_id)s::bigint, %(epoch)s::integer, %(metrics)s::jsonb,
    %(reason)s::jsonb, %(stored_bytes)s::bigint, %(save_s)s::double precision
);

-- name: chain_models
-- Let each version be made of the one before it.
UPDATE mmdb.model
SET parent_id = p.model_id
FROM mmdb.model AS p
WHERE model.name = p.name AND model.version = p.version + 1 AND p.name LIKE %(prefix)s::text;

-- name: find_datasets
-- The datasets that were made, in order.
SELECT d.dataset_id AS id
FROM mmdb.dataset AS d
WHERE d.name LIKE %(prefix)s::text
ORDER BY d.dataset_id;

-- name: find_partitions
-- The partitions that were made, by dataset.
SELECT
    p.dataset_id,
    p.part_id,
    p.role
FROM mmdb.partition AS p
INNER JOIN mmdb.dataset AS d ON p.dataset_id = d.dataset_id
WHERE d.name LIKE %(prefix)s::text
ORDER BY p.dataset_id, p.ordinal;

-- name: find_runs
-- The runs that were made, in order.
SELECT
    r.run_id AS id,
    r.dataset_id
FROM mmdb.run AS r
WHERE r.name LIKE %(prefix)s::text
ORDER BY r.run_id;

-- name: find_candidates
-- The candidates that were made, in order.
SELECT
    c.candidate_id AS id,
    r.dataset_id
FROM mmdb.candidate AS c
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
WHERE r.name LIKE %(prefix)s::text
ORDER BY c.candidate_id;

-- name: count_edges
-- Edges of lineage by kind.
SELECT
    e.parent_kind,
    e.child_kind,
    count(*) AS edges
FROM mmdb.lineage_edge AS e
GROUP BY e.parent_kind, e.child_kind;
