-- name: read_model
-- All that a model's row says, and by what each thing that it refers to is known elsewhere.
SELECT
    m.model_id,
    m.name,
    m.version,
    m.approach,
    m.parent_id,
    m.manifest_id,
    m.pack_id,
    m.definition_id,
    m.architecture_id,
    m.environment_id,
    m.weights_hash,
    m.tensor_count,
    m.byte_count,
    m.dataset_id,
    m.candidate_id,
    m.epoch,
    m.metrics::text AS metrics,
    m.reason::text AS reason,
    m.stored_bytes,
    m.save_s,
    m.calibration::text AS calibration,
    extract(EPOCH FROM m.created_at)::double precision AS created,
    p.tensor_hash AS pack_hash,
    d.definition_hash,
    a.canonical_hash,
    n.environment_hash
FROM mmdb.model AS m
LEFT JOIN mmdb.tensor AS p ON m.pack_id = p.tensor_id
LEFT JOIN mmdb.definition AS d ON m.definition_id = d.definition_id
LEFT JOIN mmdb.architecture AS a ON m.architecture_id = a.architecture_id
LEFT JOIN mmdb.environment AS n ON m.environment_id = n.environment_id
WHERE m.model_id = %(model_id)s::bigint;

-- name: list_versions
-- The versions of a model that have not been dropped, oldest first.
SELECT
    m.model_id,
    m.version,
    m.weights_hash
FROM mmdb.model AS m
WHERE m.name = %(name)s::text AND m.dropped_at IS NULL
ORDER BY m.version;

-- name: find_relatives
-- A model, its nearest ancestors and the oldest one with its manifest: those it may be described by.
WITH RECURSIVE line (model_id, parent_id, depth) AS (
    SELECT
        m.model_id,
        m.parent_id,
        0 AS depth
    FROM mmdb.model AS m
    WHERE m.model_id = %(model_id)s::bigint
    UNION ALL
    SELECT
        p.model_id,
        p.parent_id,
        l.depth + 1 AS depth
    FROM line AS l
    INNER JOIN mmdb.model AS p ON l.parent_id = p.model_id
    WHERE l.depth < %(depth)s::integer
),

oldest (model_id, parent_id, depth) AS (
    SELECT
        min(o.model_id) AS model_id,
        NULL::bigint AS parent_id,
        %(depth)s::integer + 1 AS depth
    FROM mmdb.model AS m
    INNER JOIN mmdb.model AS o ON m.manifest_id = o.manifest_id
    WHERE m.model_id = %(model_id)s::bigint
)

SELECT
    m.model_id,
    m.name,
    m.version,
    m.weights_hash,
    m.manifest_id,
    r.depth
FROM (
    SELECT
        l.model_id,
        l.depth
    FROM line AS l
    UNION ALL
    SELECT
        o.model_id,
        o.depth
    FROM oldest AS o
) AS r
INNER JOIN mmdb.model AS m ON r.model_id = m.model_id
ORDER BY r.depth;

-- name: find_there
-- Models of some weights, and the one that has a name and version, dropped ones too.
SELECT
    m.model_id,
    m.name,
    m.version,
    m.weights_hash,
    m.manifest_id,
    m.approach,
    m.calibration::text AS calibration,
    m.dropped_at IS NOT NULL AS is_dropped
FROM mmdb.model AS m
WHERE
    m.weights_hash = any(%(hashes)s::bytea[])
    OR (m.name = %(name)s::text AND m.version = %(version)s::integer)
ORDER BY m.model_id;

-- name: find_odd_entries
-- The entries of a manifest that are not plain trainable parameters or plain buffers.
SELECT
    e.ordinal,
    e.trainable,
    e.tied_to,
    e.layout::text AS layout
FROM mmdb.manifest_tensor AS e
WHERE
    e.manifest_id = %(manifest_id)s::bigint
    AND ((e.kind = 'parameter') <> e.trainable OR e.tied_to IS NOT NULL OR e.layout IS NOT NULL)
ORDER BY e.ordinal;

-- name: find_changed
-- The entries of a model that differ from those of another one with the same manifest.
SELECT
    e.ordinal,
    t.tensor_id,
    t.tensor_hash,
    e.layout IS NULL AND e.tied_to IS NULL AND t.byte_count >= %(packed_below)s::bigint AS has_chunks
FROM mmdb.model AS m
INNER JOIN mmdb.manifest_tensor AS e ON m.manifest_id = e.manifest_id
LEFT JOIN mmdb.model_change AS c ON m.model_id = c.model_id AND e.ordinal = c.ordinal
LEFT JOIN mmdb.model_change AS o ON o.model_id = %(other_id)s::bigint AND e.ordinal = o.ordinal
INNER JOIN mmdb.tensor AS t ON CASE WHEN c.tensor_id IS NULL THEN e.tensor_id ELSE c.tensor_id END = t.tensor_id -- noqa: ST02,LT05
WHERE
    m.model_id = %(model_id)s::bigint
    AND coalesce(c.tensor_id, e.tensor_id) <> coalesce(o.tensor_id, e.tensor_id)
ORDER BY e.ordinal;

-- name: describe_tensors
-- What some tensors are, and how those that have chunks of their own lie in them.
SELECT
    t.tensor_id,
    t.tensor_hash,
    t.dtype,
    t.shape,
    t.byte_count,
    t.minimum,
    t.maximum,
    t.mean,
    t.deviation,
    t.zeros,
    t.nans,
    x.word,
    x.chunk_bytes,
    x.chunks,
    x.stored_bytes,
    x.base_id,
    b.tensor_hash AS base_hash
FROM mmdb.tensor AS t
LEFT JOIN mmdb.encoding AS x ON t.tensor_id = x.tensor_id
LEFT JOIN mmdb.tensor AS b ON x.base_id = b.tensor_id
WHERE t.tensor_id = any(%(tensor_ids)s::bigint[]);

-- name: read_stored
-- The chunks of some tensors as they are stored, in any order.
SELECT
    c.tensor_id,
    c.ordinal,
    c.codec,
    c.digest,
    c.data
FROM mmdb.tensor_chunk AS c
WHERE c.tensor_id = any(%(tensor_ids)s::bigint[]);

-- name: measure_stored
-- Chunks of some tensors and their bytes, counted.
SELECT
    count(*) AS chunks,
    coalesce(sum(octet_length(c.data)), 0)::bigint AS bytes
FROM mmdb.tensor_chunk AS c
WHERE c.tensor_id = any(%(tensor_ids)s::bigint[]);

-- name: measure_model
-- Tensors of a model that have chunks, and their stored bytes.
SELECT
    count(*) AS tensors,
    coalesce(sum(x.stored_bytes), 0)::bigint AS bytes
FROM mmdb.encoding AS x
WHERE
    x.tensor_id IN (
        SELECT coalesce(c.tensor_id, e.tensor_id)
        FROM mmdb.model AS m
        INNER JOIN mmdb.manifest_tensor AS e ON m.manifest_id = e.manifest_id
        LEFT JOIN mmdb.model_change AS c ON m.model_id = c.model_id AND e.ordinal = c.ordinal
        WHERE m.model_id = %(model_id)s::bigint
        UNION
        SELECT p.pack_id
        FROM mmdb.model AS p
        WHERE p.model_id = %(model_id)s::bigint AND p.pack_id IS NOT NULL
    );

-- name: find_parts
-- Which of three things that a model refers to are there.
SELECT
    (
        SELECT d.definition_id FROM mmdb.definition AS d
        WHERE d.definition_hash = %(definition_hash)s::bytea
    ) AS definition_id,
    (
        SELECT a.architecture_id FROM mmdb.architecture AS a
        WHERE a.canonical_hash = %(canonical_hash)s::bytea
    ) AS architecture_id,
    (
        SELECT n.environment_id FROM mmdb.environment AS n
        WHERE n.environment_hash = %(environment_hash)s::bytea
    ) AS environment_id;

-- name: read_definition
-- What it takes to build a module.
SELECT
    d.definition_hash,
    d.architecture::text AS architecture,
    d.arguments::text AS arguments,
    d.input_shape,
    d.outputs,
    d.named::text AS named
FROM mmdb.definition AS d
WHERE d.definition_id = %(definition_id)s::bigint;

-- name: read_architecture
-- An architecture, but for its nodes and edges.
SELECT
    a.canonical_hash,
    a.is_traced,
    a.node_count,
    a.parameter_count,
    a.parameter_bytes
FROM mmdb.architecture AS a
WHERE a.architecture_id = %(architecture_id)s::bigint;

-- name: read_edges
-- The edges of an architecture.
SELECT
    e.source,
    e.target,
    e.position
FROM mmdb.architecture_edge AS e
WHERE e.architecture_id = %(architecture_id)s::bigint
ORDER BY e.target, e.position;

-- name: read_prefixes
-- The beginnings of an architecture.
SELECT
    p.prefix_hash,
    p.node_count,
    p.parameter_bytes
FROM mmdb.architecture_prefix AS p
WHERE
    p.prefix_hash IN (
        SELECT n.prefix_hash FROM mmdb.architecture_node AS n
        WHERE n.architecture_id = %(architecture_id)s::bigint
    )
ORDER BY p.prefix_hash;

-- name: add_copied_model
-- Name a version of a model as another database has it.
INSERT INTO mmdb.model (
    name, version, approach, parent_id, manifest_id, pack_id, definition_id, architecture_id, environment_id,
    weights_hash, dataset_id, candidate_id, epoch, metrics, reason, tensor_count, byte_count, stored_bytes, save_s, created_at,
    calibration
)
VALUES (
    %(name)s::text, %(version)s::integer, %(approach)s::text, %(parent_id)s::bigint, %(manifest_id)s::bigint,
    %(pack_id)s::bigint, %(definition_id)s::bigint, %(architecture_id)s::bigint, %(environment_id)s::bigint,
    %(weights_hash)s::bytea, %(dataset_id)s::bigint, %(candidate_id)s::bigint, %(epoch)s::integer, %(metrics)s::jsonb,
    %(reason)s::jsonb, %(tensor_count)s::integer, %(byte_count)s::bigint, %(stored_bytes)s::bigint,
    %(save_s)s::double precision, to_timestamp(%(created)s::double precision), %(calibration)s::jsonb
)
RETURNING model_id;

-- name: copy_changes
-- Give a model the changes of another one with the same manifest, but for some.
INSERT INTO mmdb.model_change (model_id, ordinal, tensor_id)
SELECT
    %(model_id)s::bigint,
    c.ordinal,
    c.tensor_id
FROM mmdb.model_change AS c
WHERE c.model_id = %(other_id)s::bigint AND NOT (c.ordinal = any(%(ordinals)s::integer[]));

-- name: read_recipe
-- How a model is made again, but for the states that it starts from.
SELECT
    r.trainer,
    r.arguments::text AS arguments,
    r.seed,
    r.tensor_hashes,
    r.train_s,
    r.replayed_s
FROM mmdb.recipe AS r
WHERE r.model_id = %(model_id)s::bigint;

-- name: add_copied_recipe
-- How a model is made again, as another database has it.
INSERT INTO mmdb.recipe (model_id, trainer, arguments, seed, tensor_hashes, train_s, replayed_s)
VALUES (
    %(model_id)s::bigint, %(trainer)s::text, %(arguments)s::jsonb, %(seed)s::bigint, %(tensor_hashes)s::bytea,
    %(train_s)s::double precision, %(replayed_s)s::double precision
);

-- name: find_recipe_states
-- States that a recipe starts from, by the names of their tensors.
SELECT
    r.path,
    t.tensor_id,
    t.tensor_hash,
    t.byte_count > 0 AS has_chunks
FROM mmdb.recipe_tensor AS r
INNER JOIN mmdb.tensor AS t ON r.tensor_id = t.tensor_id
WHERE r.model_id = %(model_id)s::bigint;

-- name: read_said
-- Tags, metrics and notes of a model, in one list.
SELECT
    'tag' AS kind,
    t.key AS name,
    t.value AS detail,
    NULL::double precision AS value,
    extract(EPOCH FROM t.created_at)::double precision AS created
FROM mmdb.model_tag AS t
WHERE t.model_id = %(model_id)s::bigint
UNION ALL
SELECT
    'metric' AS kind,
    k.metric AS name,
    k.dataset AS detail,
    k.value,
    extract(EPOCH FROM k.created_at)::double precision AS created
FROM mmdb.model_metric AS k
WHERE k.model_id = %(model_id)s::bigint
UNION ALL
SELECT
    'note' AS kind,
    '' AS name,
    n.note AS detail,
    NULL::double precision AS value,
    extract(EPOCH FROM n.created_at)::double precision AS created
FROM mmdb.model_note AS n
WHERE n.model_id = %(model_id)s::bigint
ORDER BY created;

-- name: add_copied_tag
-- A tag, as another database has it.
INSERT INTO mmdb.model_tag (model_id, key, value, created_at)
VALUES (%(model_id)s::bigint, %(key)s::text, %(value)s::text, to_timestamp(%(created)s::double precision));

-- name: add_copied_metric
-- A metric, as another database has it.
INSERT INTO mmdb.model_metric (model_id, metric, dataset, value, created_at)
VALUES (
    %(model_id)s::bigint, %(metric)s::text, %(dataset)s::text, %(value)s::double precision,
    to_timestamp(%(created)s::double precision)
);

-- name: read_dataset
-- A dataset as it is registered.
SELECT
    d.name,
    d.query AS query_text,
    d.label,
    d.task,
    d.seed,
    d.partitions,
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
    extract(EPOCH FROM d.created_at)::double precision AS created,
    d.dropped_at IS NOT NULL AS is_dropped
FROM mmdb.dataset AS d
WHERE d.dataset_id = %(dataset_id)s::bigint;

-- name: read_sources
-- What a dataset's query reads.
SELECT
    s.ordinal,
    s.table_name,
    s.column_name,
    s.output_name,
    s.schema_name,
    s.via,
    s.resolution
FROM mmdb.dataset_source AS s
WHERE s.dataset_id = %(dataset_id)s::bigint
ORDER BY s.ordinal;

-- name: find_same_dataset
-- The dataset with some content: the one of the same query, else the one in use, or else the one that came last.
SELECT
    d.dataset_id,
    d.dropped_at IS NOT NULL AS is_dropped
FROM mmdb.dataset AS d
WHERE d.content_hash = %(content_hash)s::bytea
ORDER BY d.query <> %(query_text)s::text, d.dropped_at IS NOT NULL, d.dataset_id DESC
LIMIT 1;

-- name: add_copied_dataset
-- Register a dataset of another database; without its blocks it is one that was dropped.
INSERT INTO mmdb.dataset (
    name, query, label, task, seed, partitions, validation, row_count, byte_count, content_hash, input_shape, classes, options,
    targets, inputs, class_counts, created_at, dropped_at
) VALUES (
    %(name)s::text, %(query_text)s::text, %(label)s::text, %(task)s::text, %(seed)s::bigint, %(partitions)s::integer,
    %(validation)s::double precision, %(row_count)s::bigint, %(byte_count)s::bigint, %(content_hash)s::bytea,
    %(input_shape)s::integer[], %(classes)s::jsonb, %(options)s::jsonb,
    %(targets)s::jsonb, %(inputs)s::jsonb, %(class_counts)s::jsonb,
    to_timestamp(%(created)s::double precision), CASE WHEN %(is_dropped)s::boolean THEN now() END
)
RETURNING dataset_id;

-- name: read_candidate
-- A candidate with its run.
SELECT
    c.ordinal,
    c.config::text AS config,
    c.seed,
    c.parent_id,
    c.parent_state,
    c.architecture_hash,
    w.candidate_id IS NOT NULL AS has_warm_start,
    w.state_hash,
    w.lr_scale,
    w.lr_epochs,
    w.reason,
    w.match_s,
    r.run_id,
    r.name,
    r.dataset_id,
    r.architecture::text AS architecture,
    r.search::text AS search,
    r.epochs,
    r.strategy,
    r.warm_start,
    r.seed AS run_seed,
    r.options::text AS options,
    r.metric,
    r.maximize,
    extract(EPOCH FROM r.created_at)::double precision AS created
FROM mmdb.candidate AS c
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
LEFT JOIN mmdb.warm_start AS w ON c.candidate_id = w.candidate_id
WHERE c.candidate_id = %(candidate_id)s::bigint;

-- name: find_named_run
-- The run that has a name, and what tells it from another one.
SELECT
    r.run_id,
    r.seed,
    extract(EPOCH FROM r.created_at)::double precision AS created,
    d.content_hash
FROM mmdb.run AS r
INNER JOIN mmdb.dataset AS d ON r.dataset_id = d.dataset_id
WHERE r.name = %(name)s::text;

-- name: add_copied_run
-- A run, as another database has it.
INSERT INTO mmdb.run (
    name, dataset_id, architecture, search, epochs, strategy, warm_start, seed, options, metric, maximize, created_at
) VALUES (
    %(name)s::text, %(dataset_id)s::bigint, %(architecture)s::jsonb, %(search)s::jsonb, %(epochs)s::integer,
    %(strategy)s::text, %(warm_start)s::text, %(seed)s::bigint, %(options)s::jsonb,
    %(metric)s::text, %(maximize)s::boolean, to_timestamp(%(created)s::double precision)
)
RETURNING run_id;

-- name: read_run_strategy
-- How it was decided that a run is trained.
SELECT
    s.strategy,
    s.group_size,
    s.reason
FROM mmdb.run_strategy AS s
WHERE s.run_id = %(run_id)s::bigint;

-- name: read_run_events
-- What happened to a run.
SELECT
    e.event,
    e.workers,
    e.message,
    extract(EPOCH FROM e.happened_at)::double precision AS happened
FROM mmdb.run_event AS e
WHERE e.run_id = %(run_id)s::bigint
ORDER BY e.happened_at;

-- name: add_copied_run_event
-- What happened to a run, as another database has it.
INSERT INTO mmdb.run_event (run_id, happened_at, event, workers, message)
VALUES (
    %(run_id)s::bigint, to_timestamp(%(happened)s::double precision), %(event)s::text, %(workers)s::integer,
    %(message)s::text
);

-- name: find_same_candidate
-- A candidate of a run by its place, and the last hop that is recorded of it.
SELECT
    c.candidate_id,
    max(h.ordinal) AS last_hop
FROM mmdb.candidate AS c
LEFT JOIN mmdb.hop AS h ON c.candidate_id = h.candidate_id
WHERE c.run_id = %(run_id)s::bigint AND c.ordinal = %(ordinal)s::integer
GROUP BY c.candidate_id;

-- name: read_hops
-- A candidate's hops after one up to the end of an epoch, in order.
SELECT
    h.part_id,
    h.epoch,
    h.ordinal,
    h.seed,
    h.row_count,
    h.steps,
    h.loss,
    h.metrics::text AS metrics,
    h.read_s,
    h.load_s,
    h.compute_s,
    h.store_s,
    h.total_s,
    h.state_in,
    h.state_out,
    h.state_bytes,
    h.worker,
    h.node,
    h.device,
    h.environment,
    h.objective,
    h.peak_bytes,
    h.group_size,
    extract(EPOCH FROM h.started_at)::double precision AS started,
    extract(EPOCH FROM h.finished_at)::double precision AS finished
FROM mmdb.hop AS h
WHERE h.candidate_id = %(candidate_id)s::bigint AND h.epoch <= %(epoch)s::integer AND h.ordinal > %(after)s::integer
ORDER BY h.ordinal;

-- name: read_merges
-- A candidate's merged epochs after one, up to another.
SELECT
    m.epoch,
    m.part_id,
    m.state_out,
    m.state_bytes,
    m.total_s,
    m.worker,
    m.node,
    extract(EPOCH FROM m.started_at)::double precision AS started,
    extract(EPOCH FROM m.finished_at)::double precision AS finished
FROM mmdb.merge AS m
WHERE m.candidate_id = %(candidate_id)s::bigint AND m.epoch <= %(epoch)s::integer AND m.epoch > %(after)s::integer
ORDER BY m.epoch;

-- name: last_merge
-- The last merged epoch of a candidate; null if none.
SELECT max(m.epoch) AS epoch
FROM mmdb.merge AS m
WHERE m.candidate_id = %(candidate_id)s::bigint;

-- name: read_environment
-- An environment.
SELECT
    n.environment_hash,
    n.details::text AS details
FROM mmdb.environment AS n
WHERE n.environment_id = %(environment_id)s::bigint;
