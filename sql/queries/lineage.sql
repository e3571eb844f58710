-- name: find_named
-- Models, runs and datasets of a name.
SELECT
    e.kind,
    e.entity,
    e.entity_id,
    e.version,
    e.is_dropped
FROM mmdb.lineage_entity AS e
WHERE e.kind IN ('model', 'run', 'dataset') AND e.name = %(name)s::text;

-- name: find_alias
-- The version of a model that an alias is on.
SELECT a.version
FROM mmdb.model_alias AS a
WHERE a.model = %(model)s::text AND a.alias = %(alias)s::text;

-- name: find_tables
-- Tables of a name, in any schema, that were read or written to.
SELECT s.table_entity AS entity
FROM mmdb.lineage_source AS s
WHERE s.table_name = %(name)s::text
UNION
SELECT e.child AS entity
FROM mmdb.lineage_model_edge AS e
WHERE e.child_kind = 'table' AND e.child_table = %(name)s::text;

-- name: find_tables_in_any_case
-- As find_tables, whatever the case of their letters.
SELECT s.table_entity AS entity
FROM mmdb.lineage_source AS s
WHERE lower(s.table_name) = lower(%(name)s::text)
UNION
SELECT e.child AS entity
FROM mmdb.lineage_model_edge AS e
WHERE e.child_kind = 'table' AND lower(e.child_table) = lower(%(name)s::text);

-- name: find_columns
-- Columns of a name, of tables of a name in any schema, that were read.
SELECT DISTINCT s.column_entity AS entity
FROM mmdb.lineage_source AS s
WHERE s.table_name = %(name)s::text AND s.column_name = %(column)s::text;

-- name: find_columns_in_any_case
-- As find_columns, whatever the case of their letters.
SELECT DISTINCT s.column_entity AS entity
FROM mmdb.lineage_source AS s
WHERE lower(s.table_name) = lower(%(name)s::text) AND lower(s.column_name) = lower(%(column)s::text);

-- name: table_down
-- The columns of tables with what was read from them, and from a table whose columns could not be resolved.
SELECT
    e.parent,
    e.child,
    e.via,
    e.child_id AS far_id
FROM mmdb.lineage_source_edge AS e
WHERE e.parent_kind IN ('table', 'column') AND e.parent_table = any(%(tables)s::text[]);

-- name: column_down
-- What was read from columns.
SELECT
    e.parent,
    e.child,
    e.via,
    e.child_id AS far_id
FROM mmdb.lineage_source_edge AS e
WHERE
    e.parent_kind = 'column'
    AND e.parent_table = any(%(tables)s::text[])
    AND e.parent_column = any(%(columns)s::text[]);

-- name: dataset_down
-- The runs of datasets, the models that were trained on them outside of runs, and their features.
SELECT
    e.parent,
    e.child,
    e.via,
    e.child_id AS far_id
FROM mmdb.lineage_run_edge AS e
WHERE e.parent_kind = 'dataset' AND e.parent_id = any(%(ids)s::bigint[])
UNION ALL
SELECT
    e.parent,
    e.child,
    e.via,
    e.child_id AS far_id
FROM mmdb.lineage_feature_edge AS e
WHERE e.parent_kind = 'dataset' AND e.parent_id = any(%(ids)s::bigint[]);

-- name: dataset_partitions
-- The partitions of datasets.
SELECT
    e.parent,
    e.child,
    e.via,
    e.child_id AS far_id
FROM mmdb.lineage_hop_edge AS e
WHERE e.parent_kind = 'dataset' AND e.parent_id = any(%(ids)s::bigint[]);

-- name: partition_down
-- The hops over partitions.
SELECT
    e.parent,
    e.child,
    e.via,
    e.child_id AS far_id
FROM mmdb.lineage_hop_edge AS e
WHERE e.parent_kind = 'partition' AND e.parent_id = any(%(ids)s::bigint[]);

-- name: run_down
-- The candidates of runs.
SELECT
    e.parent,
    e.child,
    e.via,
    e.child_id AS far_id
FROM mmdb.lineage_run_edge AS e
WHERE e.parent_kind = 'run' AND e.parent_id = any(%(ids)s::bigint[]);

-- name: run_saved
-- The candidates of runs from which models were saved, each with one of those.
SELECT
    e.parent,
    e.child,
    e.via,
    s.parent AS state,
    s.child AS made,
    s.via AS made_via,
    s.child_id AS far_id
FROM mmdb.lineage_run_edge AS e
INNER JOIN mmdb.lineage_state_edge AS s ON e.child_id = s.parent_id
WHERE e.parent_kind = 'run' AND e.parent_id = any(%(ids)s::bigint[]);

-- name: feature_down
-- The candidates that train on features.
SELECT
    e.parent,
    e.child,
    e.via,
    e.child_id AS far_id
FROM mmdb.lineage_feature_edge AS e
WHERE e.parent_kind = 'feature' AND e.parent_id = any(%(ids)s::bigint[]);

-- name: feature_saved
-- The candidates on features from which models were saved, each with one of those.
SELECT
    e.parent,
    e.child,
    e.via,
    s.parent AS state,
    s.child AS made,
    s.via AS made_via,
    s.child_id AS far_id
FROM mmdb.lineage_feature_edge AS e
INNER JOIN mmdb.lineage_state_edge AS s ON e.child_id = s.parent_id
WHERE e.parent_kind = 'feature' AND e.parent_id = any(%(ids)s::bigint[]);

-- name: feature_up
-- The datasets of features, and the models whose layers were frozen.
SELECT
    e.parent,
    e.child,
    e.via,
    e.parent_id AS far_id
FROM mmdb.lineage_feature_edge AS e
WHERE e.child_kind = 'feature' AND e.child_id = any(%(ids)s::bigint[]);

-- name: candidate_down
-- What began with states of candidates: models that were saved, clones and warm starts.
SELECT
    e.parent,
    e.child,
    e.via,
    e.child_id AS far_id
FROM mmdb.lineage_state_edge AS e
WHERE e.parent_kind IN ('candidate', 'checkpoint') AND e.parent_id = any(%(ids)s::bigint[]);

-- name: hops_down
-- Candidates' hops and the states that they left, all epochs at once.
SELECT
    e.parent,
    e.child,
    e.via,
    e.child_id AS far_id
FROM mmdb.lineage_hop_edge AS e
WHERE e.parent_kind IN ('candidate', 'checkpoint', 'hop') AND e.parent_id = any(%(ids)s::bigint[]);

-- name: model_down
-- What was made of models: other models, warm starts of candidates, features, tables of predictions.
SELECT
    e.parent,
    e.child,
    e.via,
    e.child_id AS far_id
FROM mmdb.lineage_model_edge AS e
WHERE e.parent_kind = 'model' AND e.parent_id = any(%(ids)s::bigint[])
UNION ALL
SELECT
    e.parent,
    e.child,
    e.via,
    e.child_id AS far_id
FROM mmdb.lineage_feature_edge AS e
WHERE e.parent_kind = 'model' AND e.parent_id = any(%(ids)s::bigint[]);

-- name: heirs
-- Which models were made of which, of those made of models whose number lies between two.
SELECT
    e.parent_id AS near_id,
    e.child_id AS far_id
FROM mmdb.lineage_model_edge AS e
WHERE
    e.parent_kind = 'model' AND e.child_kind = 'model'
    AND e.parent_id BETWEEN %(low)s::bigint AND %(high)s::bigint;

-- name: outside_down
-- The models that came from files or databases.
SELECT
    e.parent,
    e.child,
    e.via,
    e.child_id AS far_id
FROM mmdb.lineage_model_edge AS e
WHERE e.parent_kind IN ('file', 'database') AND e.parent = any(%(names)s::text[]);

-- name: table_up
-- The models that predicted into tables, and the columns that they predicted from.
SELECT
    e.parent,
    e.child,
    e.via,
    e.parent_id AS far_id
FROM mmdb.lineage_model_edge AS e
WHERE e.child_kind = 'table' AND e.child_table = any(%(tables)s::text[])
UNION ALL
SELECT
    e.parent,
    e.child,
    e.via,
    e.parent_id AS far_id
FROM mmdb.lineage_source_edge AS e
WHERE e.child_kind = 'table' AND e.child_table = any(%(tables)s::text[]);

-- name: dataset_up
-- The columns that datasets were read from, and what could not be resolved.
SELECT
    e.parent,
    e.child,
    e.via,
    e.parent_id AS far_id
FROM mmdb.lineage_source_edge AS e
WHERE e.child_kind = 'dataset' AND e.child_id = any(%(ids)s::bigint[]);

-- name: partition_up
-- The datasets of partitions.
SELECT
    e.parent,
    e.child,
    e.via,
    e.parent_id AS far_id
FROM mmdb.lineage_hop_edge AS e
WHERE e.child_kind = 'partition' AND e.child_id = any(%(ids)s::bigint[]);

-- name: run_up
-- The datasets of runs.
SELECT
    e.parent,
    e.child,
    e.via,
    e.parent_id AS far_id
FROM mmdb.lineage_run_edge AS e
WHERE e.child_kind = 'run' AND e.child_id = any(%(ids)s::bigint[]);

-- name: candidate_up
-- The runs of candidates, what they began with and the features that they train on.
SELECT
    e.parent,
    e.child,
    e.via,
    e.parent_id AS far_id
FROM mmdb.lineage_run_edge AS e
WHERE e.child_kind = 'candidate' AND e.child_id = any(%(ids)s::bigint[])
UNION ALL
SELECT
    e.parent,
    e.child,
    e.via,
    e.parent_id AS far_id
FROM mmdb.lineage_state_edge AS e
WHERE e.child_kind = 'candidate' AND e.child_id = any(%(ids)s::bigint[])
UNION ALL
SELECT
    e.parent,
    e.child,
    e.via,
    e.parent_id AS far_id
FROM mmdb.lineage_model_edge AS e
WHERE e.child_kind = 'candidate' AND e.child_id = any(%(ids)s::bigint[])
UNION ALL
SELECT
    e.parent,
    e.child,
    e.via,
    e.parent_id AS far_id
FROM mmdb.lineage_feature_edge AS e
WHERE e.child_kind = 'candidate' AND e.child_id = any(%(ids)s::bigint[]);

-- name: hops_up
-- Candidates' states, their hops and what those began with, all epochs at once.
SELECT
    e.parent,
    e.child,
    e.via,
    e.parent_id AS far_id
FROM mmdb.lineage_hop_edge AS e
WHERE e.child_kind IN ('hop', 'checkpoint') AND e.child_id = any(%(ids)s::bigint[]);

-- name: model_up
-- What models were made from.
SELECT
    e.parent,
    e.child,
    e.via,
    e.parent_id AS far_id
FROM mmdb.lineage_model_edge AS e
WHERE e.child_kind = 'model' AND e.child_id = any(%(ids)s::bigint[])
UNION ALL
SELECT
    e.parent,
    e.child,
    e.via,
    e.parent_id AS far_id
FROM mmdb.lineage_state_edge AS e
WHERE e.child_kind = 'model' AND e.child_id = any(%(ids)s::bigint[])
UNION ALL
SELECT
    e.parent,
    e.child,
    e.via,
    e.parent_id AS far_id
FROM mmdb.lineage_run_edge AS e
WHERE e.child_kind = 'model' AND e.child_id = any(%(ids)s::bigint[]);

-- name: origins
-- Which models were made of which, of those whose number lies between two.
SELECT
    e.child_id AS near_id,
    e.parent_id AS far_id
FROM mmdb.lineage_model_edge AS e
WHERE
    e.parent_kind = 'model' AND e.child_kind = 'model'
    AND e.child_id BETWEEN %(low)s::bigint AND %(high)s::bigint;
