-- name: find_dataset
-- The dataset of a name: its first version, or its last in use, or else the last that was dropped.
SELECT
    d.dataset_id,
    d.name,
    d.query,
    d.label,
    d.task,
    d.seed,
    d.validation,
    d.row_count,
    d.byte_count,
    d.content_hash,
    d.input_shape,
    d.classes::text AS classes,
    d.options::text AS options,
    d.targets::text AS targets,
    d.inputs::text AS inputs,
    d.class_counts::text AS class_counts,
    d.dropped_at IS NOT NULL AS dropped,
    d.version,
    d.origin_id,
    d.partitions,
    d.changes::text AS changes,
    d.owner
FROM mmdb.dataset AS d
LEFT JOIN mmdb.dataset AS o ON d.origin_id = o.dataset_id AND d.version > 1
WHERE d.name = %(name)s::text OR (o.name = %(name)s::text AND NOT %(is_first)s::boolean)
ORDER BY d.dropped_at IS NOT NULL, d.version DESC, d.dataset_id DESC
LIMIT 1;

-- name: find_dataset_of
-- A dataset by its number.
SELECT
    d.dataset_id,
    d.name,
    d.query,
    d.label,
    d.task,
    d.seed,
    d.validation,
    d.row_count,
    d.byte_count,
    d.content_hash,
    d.input_shape,
    d.classes::text AS classes,
    d.options::text AS options,
    d.targets::text AS targets,
    d.inputs::text AS inputs,
    d.class_counts::text AS class_counts,
    d.dropped_at IS NOT NULL AS dropped,
    d.version,
    d.origin_id,
    d.partitions,
    d.changes::text AS changes,
    d.owner
FROM mmdb.dataset AS d
WHERE d.dataset_id = %(dataset_id)s::bigint;

-- name: find_family
-- The versions of a dataset in use, and the samples of them.
SELECT
    d.dataset_id,
    d.name,
    d.byte_count
FROM mmdb.dataset AS d
WHERE (d.dataset_id = %(origin_id)s::bigint OR d.origin_id = %(origin_id)s::bigint) AND d.dropped_at IS NULL
ORDER BY d.dataset_id;

-- name: hold_dataset
-- Have whoever else adds a version to a dataset, or drops it, wait for this transaction, or fail.
UPDATE mmdb.dataset
SET dropped_at = NULL
WHERE dataset_id = %(dataset_id)s::bigint AND dropped_at IS NULL
RETURNING dataset_id;

-- name: find_decoding
-- What a dataset's rows become, apart from its columns.
SELECT
    d.task,
    d.input_shape,
    d.classes::text AS classes,
    d.targets::text AS targets,
    d.inputs::text AS inputs
FROM mmdb.dataset AS d
WHERE d.dataset_id = %(dataset_id)s::bigint;

-- name: find_columns
-- The columns of a dataset, in the order of its query.
SELECT
    c.name,
    c.kind,
    c.width,
    t.kind AS transform,
    t.source,
    t.parameters::text AS parameters,
    t.statistics::text AS statistics,
    t.categories::text AS categories
FROM mmdb.dataset_column AS c
LEFT JOIN mmdb.transform AS t ON c.dataset_id = t.dataset_id AND c.ordinal = t.ordinal
WHERE c.dataset_id = %(dataset_id)s::bigint
ORDER BY c.ordinal;

-- name: find_partitions
-- The partitions of a dataset: train slices by ordinal, then the validation slice. Of empty ones all rows were forgotten.
SELECT
    p.part_id,
    p.dataset_id,
    p.ordinal,
    p.role,
    p.row_count,
    p.byte_count,
    p.content_hash
FROM mmdb.partition AS p
WHERE p.dataset_id = %(dataset_id)s::bigint
ORDER BY p.role, p.ordinal, p.part_id;

-- name: find_partition
-- One partition with its dataset's decoding.
SELECT
    p.part_id,
    p.row_count,
    p.content_hash,
    d.dataset_id,
    d.name AS dataset,
    d.task,
    d.input_shape,
    d.classes::text AS classes,
    d.targets::text AS targets,
    d.inputs::text AS inputs,
    d.dropped_at IS NOT NULL AS dropped,
    (
        SELECT count(*) > 0
        FROM mmdb.shared_block AS s
        WHERE s.part_id = p.part_id
    ) AS is_shared
FROM mmdb.partition AS p
INNER JOIN mmdb.dataset AS d ON p.dataset_id = d.dataset_id
WHERE p.part_id = %(part_id)s::bigint;

-- name: read_blocks
-- Some blocks of a partition, in order.
SELECT
    b.ordinal,
    b.row_count,
    b.digest,
    b.data
FROM mmdb.block AS b
WHERE b.part_id = %(part_id)s::bigint AND b.ordinal >= %(low)s::integer AND b.ordinal < %(high)s::integer
ORDER BY b.ordinal;

-- name: read_shared_blocks
-- Some blocks of a partition that shares them, in order.
SELECT
    s.ordinal,
    b.row_count,
    b.digest,
    b.data,
    s.masked
FROM mmdb.shared_block AS s
INNER JOIN mmdb.block AS b ON s.source_id = b.part_id AND s.source_ordinal = b.ordinal
WHERE s.part_id = %(part_id)s::bigint AND s.ordinal >= %(low)s::integer AND s.ordinal < %(high)s::integer
ORDER BY s.ordinal;

-- name: find_shared_digests
-- The digests of the blocks of a partition that shares them, in order, and which rows are left out.
SELECT
    b.digest,
    s.masked
FROM mmdb.shared_block AS s
INNER JOIN mmdb.block AS b ON s.source_id = b.part_id AND s.source_ordinal = b.ordinal
WHERE s.part_id = %(part_id)s::bigint
ORDER BY s.ordinal;

-- name: find_blocks
-- The blocks of a partition, its own or shared.
SELECT
    b.ordinal,
    b.part_id AS source_id,
    b.ordinal AS source_ordinal,
    b.row_count,
    b.digest,
    NULL::integer[] AS masked
FROM mmdb.block AS b
WHERE
    b.part_id = %(part_id)s::bigint
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.shared_block AS s
        WHERE s.part_id = %(part_id)s::bigint
    )
UNION ALL
SELECT
    s.ordinal,
    s.source_id,
    s.source_ordinal,
    b.row_count,
    b.digest,
    s.masked
FROM mmdb.shared_block AS s
INNER JOIN mmdb.block AS b ON s.source_id = b.part_id AND s.source_ordinal = b.ordinal
WHERE s.part_id = %(part_id)s::bigint
ORDER BY ordinal;

-- name: find_row_hashes
-- The hashes of the rows of a partition's blocks, its own or shared.
SELECT
    b.ordinal,
    b.row_hashes
FROM mmdb.block AS b
WHERE
    b.part_id = %(part_id)s::bigint
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.shared_block AS s
        WHERE s.part_id = %(part_id)s::bigint
    )
UNION ALL
SELECT
    s.ordinal,
    b.row_hashes
FROM mmdb.shared_block AS s
INNER JOIN mmdb.block AS b ON s.source_id = b.part_id AND s.source_ordinal = b.ordinal
WHERE s.part_id = %(part_id)s::bigint
ORDER BY ordinal;

-- name: read_block
-- The bytes of one block.
SELECT b.data
FROM mmdb.block AS b
WHERE b.part_id = %(source_id)s::bigint AND b.ordinal = %(source_ordinal)s::integer;

-- name: find_digests
-- The digests of a partition's blocks, in order: what its content hash is made of.
SELECT b.digest
FROM mmdb.block AS b
WHERE b.part_id = %(part_id)s::bigint
ORDER BY b.ordinal;

-- name: find_use
-- A run that was made on a dataset.
SELECT r.name
FROM mmdb.run AS r
WHERE r.dataset_id = %(dataset_id)s::bigint AND r.dropped_at IS NULL
ORDER BY r.run_id
LIMIT 1;

-- name: find_recipe_use
-- The models whose recipes read a dataset: those in use, and the ancestors that they are made from.
WITH RECURSIVE needed (model_id, parent_id) AS (
    SELECT
        m.model_id,
        m.parent_id
    FROM mmdb.model AS m
    WHERE m.approach = 'provenance' AND m.dropped_at IS NULL
    UNION
    SELECT
        p.model_id,
        p.parent_id
    FROM needed AS n
    INNER JOIN mmdb.model AS p ON n.parent_id = p.model_id
    WHERE p.approach = 'provenance'
)

SELECT
    m.name,
    m.version
FROM needed AS n
INNER JOIN mmdb.model AS m ON n.model_id = m.model_id
WHERE m.dataset_id = %(dataset_id)s::bigint
ORDER BY m.name, m.version;

-- name: add_dataset
-- Register a dataset.
INSERT INTO mmdb.dataset (
    name, query, label, task, seed, partitions, validation, row_count, byte_count, content_hash, input_shape, classes, options,
    targets, inputs, class_counts, version, origin_id, changes
) VALUES (
    %(name)s::text,
    %(query_text)s::text,
    %(label)s::text,
    %(task)s::text,
    %(seed)s::bigint,
    %(partitions)s::integer,
    %(validation)s::double precision,
    %(row_count)s::bigint,
    %(byte_count)s::bigint,
    %(content_hash)s::bytea,
    %(input_shape)s::integer[],
    %(classes)s::jsonb,
    %(options)s::jsonb,
    %(targets)s::jsonb,
    %(inputs)s::jsonb,
    %(class_counts)s::jsonb,
    %(version)s::integer,
    %(origin_id)s::bigint,
    %(changes)s::jsonb
)
RETURNING dataset_id;

-- name: add_column
-- Add a column of a dataset.
INSERT INTO mmdb.dataset_column (dataset_id, ordinal, name, kind, width)
VALUES (%(dataset_id)s::bigint, %(ordinal)s::integer, %(name)s::text, %(kind)s::text, %(width)s::integer);

-- name: add_transform
-- Add what a column of a dataset becomes.
INSERT INTO mmdb.transform (dataset_id, ordinal, kind, source, parameters, statistics, categories)
VALUES (
    %(dataset_id)s::bigint,
    %(ordinal)s::integer,
    %(kind)s::text,
    %(source)s::text,
    %(parameters)s::jsonb,
    %(statistics)s::jsonb,
    %(categories)s::jsonb
);

-- name: add_source
-- Add a column that a dataset's query reads.
INSERT INTO mmdb.dataset_source (
    dataset_id, ordinal, table_name, column_name, output_name, schema_name, via, resolution
) VALUES (
    %(dataset_id)s::bigint,
    %(ordinal)s::integer,
    %(table_name)s::text,
    %(column_name)s::text,
    %(output_name)s::text,
    %(schema_name)s::text,
    %(via)s::text,
    %(resolution)s::text
);

-- name: add_partition
-- Add a partition.
INSERT INTO mmdb.partition (dataset_id, ordinal, role, row_count, byte_count, content_hash)
VALUES (
    %(dataset_id)s::bigint,
    %(ordinal)s::integer,
    %(role)s::text,
    %(row_count)s::bigint,
    %(byte_count)s::bigint,
    %(content_hash)s::bytea
)
RETURNING part_id;

-- name: add_numbered_partition
-- Add a partition with a number that was drawn for it.
INSERT INTO mmdb.partition (part_id, dataset_id, ordinal, role, row_count, byte_count, content_hash)
OVERRIDING SYSTEM VALUE
VALUES (
    %(part_id)s::bigint,
    %(dataset_id)s::bigint,
    %(ordinal)s::integer,
    %(role)s::text,
    %(row_count)s::bigint,
    %(byte_count)s::bigint,
    %(content_hash)s::bytea
);

-- name: add_block
-- Add a block.
INSERT INTO mmdb.block (part_id, ordinal, row_count, digest, data, row_hashes)
VALUES (
    %(part_id)s::bigint,
    %(ordinal)s::integer,
    %(row_count)s::integer,
    %(digest)s::bytea,
    %(data)s::bytea,
    %(row_hashes)s::bytea
);

-- name: add_shared_block
-- Add a block that a partition reads of another.
INSERT INTO mmdb.shared_block (part_id, ordinal, source_id, source_ordinal, masked)
VALUES (
    %(part_id)s::bigint,
    %(ordinal)s::integer,
    %(source_id)s::bigint,
    %(source_ordinal)s::integer,
    %(masked)s::integer[]
);

-- name: copy_sources
-- Give a version the sources of another.
INSERT INTO mmdb.dataset_source (
    dataset_id, ordinal, table_name, column_name, output_name, schema_name, via, resolution
)
SELECT
    %(dataset_id)s::bigint AS dataset_id,
    s.ordinal,
    s.table_name,
    s.column_name,
    s.output_name,
    s.schema_name,
    s.via,
    s.resolution
FROM mmdb.dataset_source AS s
WHERE s.dataset_id = %(source_id)s::bigint;

-- name: delete_shared_blocks
-- Delete what a dataset shares of the blocks of others.
DELETE FROM mmdb.shared_block
WHERE part_id IN (
    SELECT p.part_id FROM mmdb.partition AS p
    WHERE p.dataset_id = %(dataset_id)s::bigint
);

-- name: delete_blocks
-- Delete the blocks of a dataset.
DELETE FROM mmdb.block
WHERE part_id IN (
    SELECT p.part_id FROM mmdb.partition AS p
    WHERE p.dataset_id = %(dataset_id)s::bigint
);

-- name: mark_dropped
-- Record that a dataset's blocks are gone.
UPDATE mmdb.dataset
SET dropped_at = now()
WHERE dataset_id = %(dataset_id)s::bigint;
