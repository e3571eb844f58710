-- name: delete_changes
-- What a bench's models hold in place of their manifests' tensors.
DELETE FROM mmdb.model_change
WHERE model_id IN (
    SELECT m.model_id FROM mmdb.model AS m
    WHERE m.name LIKE %(prefix)s::text
);

-- name: delete_members
-- The candidates whose mean a bench's models are.
DELETE FROM mmdb.model_member
WHERE model_id IN (
    SELECT m.model_id FROM mmdb.model AS m
    WHERE m.name LIKE %(prefix)s::text
);

-- name: delete_recipe_tensors
-- The tensors that a bench's recipes start from.
DELETE FROM mmdb.recipe_tensor
WHERE model_id IN (
    SELECT m.model_id FROM mmdb.model AS m
    WHERE m.name LIKE %(prefix)s::text
);

-- name: delete_recipes
-- The recipes of a bench's models.
DELETE FROM mmdb.recipe
WHERE model_id IN (
    SELECT m.model_id FROM mmdb.model AS m
    WHERE m.name LIKE %(prefix)s::text
);

-- name: delete_tags
-- The tags of a bench's models.
DELETE FROM mmdb.model_tag
WHERE model_id IN (
    SELECT m.model_id FROM mmdb.model AS m
    WHERE m.name LIKE %(prefix)s::text
);

-- name: delete_metrics
-- The metrics of a bench's models.
DELETE FROM mmdb.model_metric
WHERE model_id IN (
    SELECT m.model_id FROM mmdb.model AS m
    WHERE m.name LIKE %(prefix)s::text
);

-- name: delete_notes
-- The notes on a bench's models.
DELETE FROM mmdb.model_note
WHERE model_id IN (
    SELECT m.model_id FROM mmdb.model AS m
    WHERE m.name LIKE %(prefix)s::text
);

-- name: delete_probes
-- The probes of a bench's models.
DELETE FROM mmdb.probe
WHERE model_id IN (
    SELECT m.model_id FROM mmdb.model AS m
    WHERE m.name LIKE %(prefix)s::text
);

-- name: delete_zoo_events
-- What happened to a bench's models in the zoo.
DELETE FROM mmdb.zoo_event
WHERE model_id IN (
    SELECT m.model_id FROM mmdb.model AS m
    WHERE m.name LIKE %(prefix)s::text
);

-- name: delete_origins
-- Where a bench's models came from.
DELETE FROM mmdb.model_origin
WHERE model_id IN (
    SELECT m.model_id FROM mmdb.model AS m
    WHERE m.name LIKE %(prefix)s::text
);

-- name: delete_drift_checks
-- What drift found of a bench's models.
DELETE FROM mmdb.drift_check
WHERE model_id IN (
    SELECT m.model_id FROM mmdb.model AS m
    WHERE m.name LIKE %(prefix)s::text
);

-- name: delete_evaluation_metrics
-- What a bench's models were measured by.
DELETE FROM mmdb.evaluation_metric
WHERE evaluation_id IN (
    SELECT e.evaluation_id
    FROM mmdb.evaluation AS e
    INNER JOIN mmdb.model AS m ON e.model_id = m.model_id
    WHERE m.name LIKE %(prefix)s::text
);

-- name: delete_evaluation_sources
-- What the evaluations of a bench's models read.
DELETE FROM mmdb.evaluation_source
WHERE evaluation_id IN (
    SELECT e.evaluation_id
    FROM mmdb.evaluation AS e
    INNER JOIN mmdb.model AS m ON e.model_id = m.model_id
    WHERE m.name LIKE %(prefix)s::text
);

-- name: delete_evaluations
-- The evaluations of a bench's models.
DELETE FROM mmdb.evaluation
WHERE model_id IN (
    SELECT m.model_id FROM mmdb.model AS m
    WHERE m.name LIKE %(prefix)s::text
);

-- name: delete_prediction_sources
-- What the predictions of a bench's models read.
DELETE FROM mmdb.prediction_source
WHERE prediction_id IN (
    SELECT p.prediction_id
    FROM mmdb.prediction AS p
    INNER JOIN mmdb.model AS m ON p.model_id = m.model_id
    WHERE m.name LIKE %(prefix)s::text
);

-- name: delete_predictions
-- The predictions of a bench's models.
DELETE FROM mmdb.prediction
WHERE model_id IN (
    SELECT m.model_id FROM mmdb.model AS m
    WHERE m.name LIKE %(prefix)s::text
);

-- name: delete_warm_starts
-- How a bench's candidates began.
DELETE FROM mmdb.warm_start
WHERE candidate_id IN (
    SELECT c.candidate_id
    FROM mmdb.candidate AS c
    INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_transfer_tensors
-- The tensors that a bench's models passed on.
DELETE FROM mmdb.transfer_tensor
WHERE transfer_id IN (
    SELECT f.transfer_id
    FROM mmdb.transfer AS f
    INNER JOIN mmdb.model AS m ON f.parent_id = m.model_id
    WHERE m.name LIKE %(prefix)s::text
);

-- name: delete_transfers
-- What a bench's models passed on.
DELETE FROM mmdb.transfer
WHERE parent_id IN (
    SELECT m.model_id FROM mmdb.model AS m
    WHERE m.name LIKE %(prefix)s::text
);

-- name: delete_models
-- A bench's models.
DELETE FROM mmdb.model
WHERE name LIKE %(prefix)s::text;

-- name: delete_factories
-- The factories that a bench registered.
DELETE FROM mmdb.factory
WHERE name LIKE %(prefix)s::text;

-- name: delete_manifest_tensors
-- The lists of tensors that no model has any more.
DELETE FROM mmdb.manifest_tensor
WHERE NOT EXISTS (
    SELECT 1 FROM mmdb.model AS m
    WHERE m.manifest_id = manifest_tensor.manifest_id
);

-- name: delete_manifests
-- The heads of lists that no model has any more.
DELETE FROM mmdb.manifest
WHERE NOT EXISTS (
    SELECT 1 FROM mmdb.model AS m
    WHERE m.manifest_id = manifest.manifest_id
);

-- name: delete_definitions
-- What it takes to build modules that no model is of any more.
DELETE FROM mmdb.definition
WHERE NOT EXISTS (
    SELECT 1 FROM mmdb.model AS m
    WHERE m.definition_id = definition.definition_id
);

-- name: delete_architecture_edges
-- The edges of architectures that no model has any more.
DELETE FROM mmdb.architecture_edge
WHERE NOT EXISTS (
    SELECT 1 FROM mmdb.model AS m
    WHERE m.architecture_id = architecture_edge.architecture_id
);

-- name: delete_architecture_nodes
-- The nodes of architectures that no model has any more.
DELETE FROM mmdb.architecture_node
WHERE NOT EXISTS (
    SELECT 1 FROM mmdb.model AS m
    WHERE m.architecture_id = architecture_node.architecture_id
);

-- name: delete_architecture_prefixes
-- Beginnings of architectures that none has any more.
DELETE FROM mmdb.architecture_prefix
WHERE NOT EXISTS (
    SELECT 1 FROM mmdb.architecture_node AS n
    WHERE n.prefix_hash = architecture_prefix.prefix_hash
);

-- name: delete_outlines
-- The outlines of architectures that no model has any more.
DELETE FROM mmdb.outline
WHERE NOT EXISTS (
    SELECT 1 FROM mmdb.model AS m
    WHERE m.architecture_id = outline.architecture_id
);

-- name: delete_architectures
-- Architectures that no model has any more.
DELETE FROM mmdb.architecture
WHERE NOT EXISTS (
    SELECT 1 FROM mmdb.model AS m
    WHERE m.architecture_id = architecture.architecture_id
);

-- name: delete_deltas
-- The encodings of tensors that nothing holds any more, those with a base first.
DELETE FROM mmdb.encoding
WHERE
    NOT EXISTS (
        SELECT 1 FROM mmdb.manifest_tensor AS t
        WHERE t.tensor_id = encoding.tensor_id
    )
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.model_change AS c
        WHERE c.tensor_id = encoding.tensor_id
    )
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.recipe_tensor AS r
        WHERE r.tensor_id = encoding.tensor_id
    )
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.model AS m
        WHERE m.pack_id = encoding.tensor_id
    )
    AND encoding.base_id IS NOT NULL;

-- name: delete_encodings
-- The encodings of tensors that nothing holds any more.
DELETE FROM mmdb.encoding
WHERE
    NOT EXISTS (
        SELECT 1 FROM mmdb.manifest_tensor AS t
        WHERE t.tensor_id = encoding.tensor_id
    )
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.model_change AS c
        WHERE c.tensor_id = encoding.tensor_id
    )
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.recipe_tensor AS r
        WHERE r.tensor_id = encoding.tensor_id
    )
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.model AS m
        WHERE m.pack_id = encoding.tensor_id
    )
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.encoding AS d
        WHERE d.base_id = encoding.tensor_id
    );

-- name: delete_chunks
-- The bytes of tensors that have no encoding any more.
DELETE FROM mmdb.tensor_chunk
WHERE NOT EXISTS (
    SELECT 1 FROM mmdb.encoding AS e
    WHERE e.tensor_id = tensor_chunk.tensor_id
);

-- name: delete_tensors
-- Tensors that nothing holds any more.
DELETE FROM mmdb.tensor
WHERE
    NOT EXISTS (
        SELECT 1 FROM mmdb.manifest_tensor AS t
        WHERE t.tensor_id = tensor.tensor_id
    )
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.model_change AS c
        WHERE c.tensor_id = tensor.tensor_id
    )
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.recipe_tensor AS r
        WHERE r.tensor_id = tensor.tensor_id
    )
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.encoding AS e
        WHERE e.tensor_id = tensor.tensor_id
    )
    AND NOT EXISTS (
        SELECT 1 FROM mmdb.model AS m
        WHERE m.pack_id = tensor.tensor_id
    );
