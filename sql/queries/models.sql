-- name: find_versions
-- The versions of a model that have not been dropped, newest first.
SELECT
    m.model_id,
    m.version,
    m.candidate_id,
    m.epoch,
    m.weights_hash
FROM mmdb.model AS m
WHERE m.name = %(name)s::text AND m.dropped_at IS NULL
ORDER BY m.version DESC;

-- name: last_version
-- The highest version that a name ever had.
SELECT coalesce(max(m.version), 0) AS version
FROM mmdb.model AS m
WHERE m.name = %(name)s::text;

-- name: find_newest
-- The newest version of a model. By two columns DuckDB sorts at once, where by one it would join the table with itself.
SELECT m.model_id
FROM mmdb.model AS m
WHERE m.name = %(name)s::text AND m.dropped_at IS NULL
ORDER BY m.version DESC, m.model_id DESC
LIMIT 1;

-- name: find_version
-- One version of a model.
SELECT m.model_id
FROM mmdb.model AS m
WHERE m.name = %(name)s::text AND m.version = %(version)s::integer AND m.dropped_at IS NULL;

-- name: find_aliased
-- The version of a model that an alias is on.
SELECT m.model_id
FROM mmdb.model AS m
WHERE
    m.name = %(name)s::text
    AND m.dropped_at IS NULL
    AND m.version = (
        SELECT e.version
        FROM mmdb.alias_event AS e
        WHERE e.model = %(name)s::text AND e.alias = %(alias)s::text
        ORDER BY e.event_id DESC
        LIMIT 1
    );

-- name: find_model
-- A model with what it takes to build it.
SELECT
    m.model_id,
    m.name,
    m.version,
    m.approach,
    m.parent_id,
    m.manifest_id,
    m.pack_id,
    m.weights_hash,
    m.dataset_id,
    m.candidate_id,
    m.epoch,
    m.architecture_id,
    m.environment_id,
    m.definition_id,
    d.architecture::text AS architecture,
    d.arguments::text AS arguments,
    d.input_shape,
    d.outputs,
    d.named::text AS named,
    m.calibration::text AS calibration
FROM mmdb.model AS m
LEFT JOIN mmdb.definition AS d ON m.definition_id = d.definition_id
WHERE m.model_id = %(model_id)s::bigint;

-- name: find_entries
-- The tensors of a model, in the order of its state dict: its manifest's, but for those changed.
SELECT
    e.ordinal,
    e.path,
    e.kind,
    e.trainable,
    e.tied_to,
    e.layout::text AS layout,
    e.tensor_id AS listed_id,
    t.tensor_id,
    t.tensor_hash,
    t.dtype,
    t.shape,
    t.byte_count
FROM mmdb.model AS m
INNER JOIN mmdb.manifest_tensor AS e ON m.manifest_id = e.manifest_id
LEFT JOIN mmdb.model_change AS c ON m.model_id = c.model_id AND e.ordinal = c.ordinal
INNER JOIN mmdb.tensor AS t ON CASE WHEN c.tensor_id IS NULL THEN e.tensor_id ELSE c.tensor_id END = t.tensor_id -- noqa: ST02,LT05
WHERE m.model_id = %(model_id)s::bigint
ORDER BY e.ordinal;

-- name: add_manifest
-- Begin a manifest.
INSERT INTO mmdb.manifest (created_at) VALUES (now())
RETURNING manifest_id;

-- name: add_manifest_tensor
-- Put a tensor into a manifest.
INSERT INTO mmdb.manifest_tensor (manifest_id, ordinal, path, tensor_id, kind, trainable, tied_to, layout)
VALUES (
    %(manifest_id)s::bigint, %(ordinal)s::integer, %(path)s::text, %(tensor_id)s::bigint, %(kind)s::text,
    %(trainable)s::boolean, %(tied_to)s::integer, %(layout)s::jsonb
);

-- name: add_model
-- Name a new version of a model; no row where another session has just taken it.
INSERT INTO mmdb.model (
    name, version, approach, parent_id, manifest_id, pack_id, definition_id, architecture_id, environment_id,
    weights_hash, dataset_id, candidate_id, epoch, metrics, reason, tensor_count, byte_count, stored_bytes, save_s,
    calibration
)
VALUES (
    %(name)s::text, %(version)s::integer, %(approach)s::text, %(parent_id)s::bigint, %(manifest_id)s::bigint,
    %(pack_id)s::bigint, %(definition_id)s::bigint, %(architecture_id)s::bigint, %(environment_id)s::bigint,
    %(weights_hash)s::bytea, %(dataset_id)s::bigint, %(candidate_id)s::bigint, %(epoch)s::integer, %(metrics)s::jsonb,
    %(reason)s::jsonb, %(tensor_count)s::integer, %(byte_count)s::bigint, %(stored_bytes)s::bigint,
    %(save_s)s::double precision, %(calibration)s::jsonb
)
ON CONFLICT (name, version) DO NOTHING
RETURNING model_id;

-- name: attach
-- Say what builds a model, and whose rows it reads, where one of both is not known; no row where they are.
UPDATE mmdb.model
SET
    definition_id = %(definition_id)s::bigint,
    architecture_id = coalesce(%(architecture_id)s::bigint, architecture_id),
    dataset_id = coalesce(dataset_id, %(dataset_id)s::bigint)
WHERE
    model_id = %(model_id)s::bigint
    AND dropped_at IS NULL
    AND (definition_id IS NULL OR dataset_id IS NULL)
RETURNING model_id;

-- name: add_change
-- Put a tensor in the place of the manifest's.
INSERT INTO mmdb.model_change (model_id, ordinal, tensor_id)
VALUES (%(model_id)s::bigint, %(ordinal)s::integer, %(tensor_id)s::bigint);

-- name: add_metric
-- A metric known when the model was saved.
INSERT INTO mmdb.model_metric (model_id, metric, dataset, value)
VALUES (%(model_id)s::bigint, %(metric)s::text, %(dataset)s::text, %(value)s::double precision);

-- name: find_definition
-- A definition by its hash.
SELECT d.definition_id
FROM mmdb.definition AS d
WHERE d.definition_hash = %(definition_hash)s::bytea;

-- name: add_definition
-- What it takes to build a module, unless it is known.
INSERT INTO mmdb.definition (definition_hash, architecture, arguments, input_shape, outputs, named)
VALUES (
    %(definition_hash)s::bytea, %(architecture)s::jsonb, %(arguments)s::jsonb, %(input_shape)s::integer[],
    %(outputs)s::integer, %(named)s::jsonb
)
ON CONFLICT (definition_hash) DO NOTHING;

-- name: find_members
-- The candidates whose mean a model is, in order.
SELECT
    k.ordinal,
    k.candidate_id,
    k.epoch
FROM mmdb.model_member AS k
WHERE k.model_id = %(model_id)s::bigint
ORDER BY k.ordinal;

-- name: add_member
-- Add candidates whose mean a model is.
INSERT INTO mmdb.model_member (model_id, ordinal, candidate_id, epoch)
VALUES (%(model_id)s::bigint, %(ordinal)s::integer, %(candidate_id)s::bigint, %(epoch)s::integer);
