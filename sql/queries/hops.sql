-- name: find_candidate
-- What never changes of a candidate, its run and its dataset, once it has begun.
SELECT
    c.candidate_id,
    c.ordinal,
    c.config::text AS config,
    c.seed,
    c.parent_id,
    r.warm_start = 'off' OR c.parent_id IS NOT NULL OR b.candidate_id IS NOT NULL AS has_begun,
    coalesce(c.parent_state, b.state_hash) AS first_state,
    coalesce(b.lr_scale, 1)::double precision AS lr_scale,
    coalesce(b.lr_epochs, 0) AS lr_epochs,
    r.run_id,
    r.name AS run,
    r.dropped_at IS NOT NULL AS run_dropped,
    r.warm_start,
    r.seed AS run_seed,
    r.epochs,
    coalesce(s.strategy, r.strategy) AS strategy,
    s.group_size,
    r.metric,
    r.maximize,
    r.architecture::text AS architecture,
    r.options::text AS options,
    d.dataset_id,
    d.name AS dataset,
    d.task,
    d.partitions,
    d.validation,
    d.label,
    d.input_shape,
    d.classes::text AS classes,
    d.targets::text AS targets,
    d.inputs::text AS inputs,
    d.class_counts::text AS class_counts,
    (
        SELECT sum(p.row_count)
        FROM mmdb.partition AS p
        WHERE p.dataset_id = d.dataset_id AND p.role = 'train'
    )::bigint AS train_rows,
    d.content_hash AS dataset_hash,
    t.feature_id,
    f.feature_key,
    f.owner AS feature_owner,
    f.pool AS feature_pool,
    f.storage AS feature_storage,
    u.model_id AS backbone_id,
    u.backbone,
    u.choice AS feature_choice
FROM mmdb.candidate AS c
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
INNER JOIN mmdb.dataset AS d ON r.dataset_id = d.dataset_id
LEFT JOIN mmdb.warm_start AS b ON c.candidate_id = b.candidate_id
LEFT JOIN mmdb.run_strategy AS s ON r.run_id = s.run_id
LEFT JOIN mmdb.candidate_feature AS t ON c.candidate_id = t.candidate_id
LEFT JOIN mmdb.run_feature AS u ON t.run_id = u.run_id AND t.feature_id = u.feature_id
LEFT JOIN mmdb.feature AS f ON t.feature_id = f.feature_id
WHERE c.candidate_id = %(candidate_id)s::bigint;

-- name: find_partitions
-- The partitions of a dataset that runs read.
SELECT
    p.part_id,
    p.ordinal,
    p.role,
    p.content_hash
FROM mmdb.partition AS p
WHERE p.dataset_id = %(dataset_id)s::bigint AND p.role != 'test' AND p.row_count > 0
ORDER BY p.role, p.ordinal;

-- name: find_hop
-- One hop's row.
SELECT
    h.part_id,
    h.candidate_id,
    h.epoch,
    h.ordinal,
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
    h.objective,
    h.peak_bytes,
    h.group_size,
    h.worker,
    h.node,
    h.device
FROM mmdb.hop AS h
WHERE h.part_id = %(part_id)s::bigint AND h.candidate_id = %(candidate_id)s::bigint AND h.epoch = %(epoch)s::integer;

-- name: last_epoch
-- The last epoch in which a candidate has done a hop; null if none.
SELECT max(h.epoch) AS epoch
FROM mmdb.hop AS h
WHERE h.candidate_id = %(candidate_id)s::bigint;

-- name: find_hops_since
-- A candidate's hops from an epoch on, in order.
SELECT
    h.part_id,
    h.epoch,
    h.ordinal,
    h.compute_s,
    h.state_out,
    h.state_bytes,
    h.environment
FROM mmdb.hop AS h
WHERE h.candidate_id = %(candidate_id)s::bigint AND h.epoch >= %(epoch)s::integer
ORDER BY h.ordinal;

-- name: find_end
-- What may have ended a candidate: its error, or the end of its run or dataset.
SELECT
    d.dropped_at IS NOT NULL AS dropped,
    (
        SELECT r.dropped_at IS NOT NULL
        FROM mmdb.candidate AS c
        INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
        WHERE c.candidate_id = %(candidate_id)s::bigint
    ) AS run_dropped,
    (
        SELECT min(e.message) FROM mmdb.candidate_event AS e
        WHERE e.candidate_id = %(candidate_id)s::bigint
    ) AS error
FROM mmdb.dataset AS d
WHERE d.dataset_id = %(dataset_id)s::bigint;

-- name: find_train_hops
-- A candidate's train hops in order, from which its state can be made again.
SELECT
    h.part_id,
    h.epoch,
    h.ordinal,
    h.seed,
    h.row_count,
    h.group_size,
    h.state_out,
    h.device,
    h.environment
FROM mmdb.hop AS h
INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id
WHERE h.candidate_id = %(candidate_id)s::bigint AND p.role = 'train'
ORDER BY h.ordinal;

-- name: find_merges
-- A candidate's merged epochs, in order.
SELECT
    m.epoch,
    m.part_id,
    m.state_out
FROM mmdb.merge AS m
WHERE m.candidate_id = %(candidate_id)s::bigint
ORDER BY m.epoch;

-- name: add_merge
-- Record the merged state of an epoch.
INSERT INTO mmdb.merge (
    candidate_id, epoch, part_id, state_out, state_bytes, total_s, worker, node, started_at, finished_at
) VALUES (
    %(candidate_id)s::bigint, %(epoch)s::integer, %(part_id)s::bigint, %(state_out)s::bytea, %(state_bytes)s::bigint,
    %(total_s)s::double precision, %(worker)s::text, %(node)s::text,
    to_timestamp(%(started)s::double precision), to_timestamp(%(finished)s::double precision)
);

-- name: find_validations
-- A candidate's validation metrics, epoch by epoch.
SELECT
    h.epoch,
    h.loss,
    h.metrics::text AS metrics,
    h.objective,
    h.state_out
FROM mmdb.hop AS h
INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id
WHERE h.candidate_id = %(candidate_id)s::bigint AND p.role = 'validation'
ORDER BY h.epoch;

-- name: add_hop
-- Record a hop.
INSERT INTO mmdb.hop (
    part_id, candidate_id, epoch, ordinal, seed, row_count, steps, loss, metrics,
    read_s, load_s, compute_s, store_s, total_s, state_in, state_out, state_bytes,
    worker, node, device, environment, objective, peak_bytes, group_size, started_at, finished_at
) VALUES (
    %(part_id)s::bigint, %(candidate_id)s::bigint, %(epoch)s::integer, %(ordinal)s::integer, %(seed)s::bigint,
    %(row_count)s::bigint, %(steps)s::integer, %(loss)s::double precision, %(metrics)s::jsonb,
    %(read_s)s::double precision, %(load_s)s::double precision, %(compute_s)s::double precision,
    %(store_s)s::double precision, %(total_s)s::double precision,
    %(state_in)s::bytea, %(state_out)s::bytea, %(state_bytes)s::bigint,
    %(worker)s::text, %(node)s::text, %(device)s::text, %(environment)s::text,
    %(objective)s::double precision, %(peak_bytes)s::bigint, %(group_size)s::integer,
    to_timestamp(%(started)s::double precision), to_timestamp(%(finished)s::double precision)
);
