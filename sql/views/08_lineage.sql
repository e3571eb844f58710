-- The graph of lineage, edge by edge, its entities, and which models a column went into.

CREATE OR REPLACE VIEW mmdb.lineage_edge AS
SELECT
    e.parent_kind,
    e.parent,
    e.child_kind,
    e.child,
    e.via,
    e.happened_at,
    e.parent_id,
    e.parent_epoch,
    e.parent_part,
    e.child_id,
    e.child_epoch,
    e.child_part,
    e.parent_table,
    e.parent_column,
    e.child_table,
    e.child_column
FROM mmdb.lineage_source_edge AS e
UNION ALL
SELECT
    e.parent_kind,
    e.parent,
    e.child_kind,
    e.child,
    e.via,
    e.happened_at,
    e.parent_id,
    e.parent_epoch,
    e.parent_part,
    e.child_id,
    e.child_epoch,
    e.child_part,
    e.parent_table,
    e.parent_column,
    e.child_table,
    e.child_column
FROM mmdb.lineage_run_edge AS e
UNION ALL
SELECT
    e.parent_kind,
    e.parent,
    e.child_kind,
    e.child,
    e.via,
    e.happened_at,
    e.parent_id,
    e.parent_epoch,
    e.parent_part,
    e.child_id,
    e.child_epoch,
    e.child_part,
    e.parent_table,
    e.parent_column,
    e.child_table,
    e.child_column
FROM mmdb.lineage_hop_edge AS e
UNION ALL
SELECT
    e.parent_kind,
    e.parent,
    e.child_kind,
    e.child,
    e.via,
    e.happened_at,
    e.parent_id,
    e.parent_epoch,
    e.parent_part,
    e.child_id,
    e.child_epoch,
    e.child_part,
    e.parent_table,
    e.parent_column,
    e.child_table,
    e.child_column
FROM mmdb.lineage_state_edge AS e
UNION ALL
SELECT
    e.parent_kind,
    e.parent,
    e.child_kind,
    e.child,
    e.via,
    e.happened_at,
    e.parent_id,
    e.parent_epoch,
    e.parent_part,
    e.child_id,
    e.child_epoch,
    e.child_part,
    e.parent_table,
    e.parent_column,
    e.child_table,
    e.child_column
FROM mmdb.lineage_model_edge AS e
UNION ALL
SELECT
    e.parent_kind,
    e.parent,
    e.child_kind,
    e.child,
    e.via,
    e.happened_at,
    e.parent_id,
    e.parent_epoch,
    e.parent_part,
    e.child_id,
    e.child_epoch,
    e.child_part,
    e.parent_table,
    e.parent_column,
    e.child_table,
    e.child_column
FROM mmdb.lineage_feature_edge AS e;
COMMENT ON VIEW mmdb.lineage_edge
IS 'Every edge of lineage, from tables and columns to models and back to tables; filter by parent_kind or child_kind.';
COMMENT ON COLUMN mmdb.lineage_edge.parent_kind
IS 'table, column, unresolved, dataset, partition, feature, hop, checkpoint, candidate, run, model, file or database.';
COMMENT ON COLUMN mmdb.lineage_edge.parent IS 'What the child came from, as lineage() takes it: model:name@version.';
COMMENT ON COLUMN mmdb.lineage_edge.child_kind IS 'As parent_kind.';
COMMENT ON COLUMN mmdb.lineage_edge.child IS 'What came from the parent, as lineage() takes it.';
COMMENT ON COLUMN mmdb.lineage_edge.via IS 'How: the output column, train, validation, save, update, fine-tune, warm start, import ...';
COMMENT ON COLUMN mmdb.lineage_edge.happened_at IS 'When; null where no time was noted.';
COMMENT ON COLUMN mmdb.lineage_edge.parent_id
IS 'Number of the parent, of a hop or checkpoint that of its candidate; null for tables, columns and files.';
COMMENT ON COLUMN mmdb.lineage_edge.parent_epoch IS 'Epoch of a parent that is a hop or checkpoint, from 0.';
COMMENT ON COLUMN mmdb.lineage_edge.parent_part IS 'Partition of a parent that is a hop.';
COMMENT ON COLUMN mmdb.lineage_edge.child_id IS 'As parent_id.';
COMMENT ON COLUMN mmdb.lineage_edge.child_epoch IS 'As parent_epoch.';
COMMENT ON COLUMN mmdb.lineage_edge.child_part IS 'As parent_part.';
COMMENT ON COLUMN mmdb.lineage_edge.parent_table IS 'Name, without its schema, of a parent that is a table or of its column.';
COMMENT ON COLUMN mmdb.lineage_edge.parent_column IS 'Name of a parent that is a column.';
COMMENT ON COLUMN mmdb.lineage_edge.child_table IS 'As parent_table.';
COMMENT ON COLUMN mmdb.lineage_edge.child_column IS 'As parent_column.';

CREATE OR REPLACE VIEW mmdb.lineage_entity AS
SELECT
    'model' AS kind,
    'model:' || m.name || '@' || cast(m.version AS text) AS entity,
    m.model_id AS entity_id,
    m.name,
    m.version,
    m.dropped_at IS NOT NULL AS is_dropped,
    cast(NULL AS text) AS table_name,
    cast(NULL AS text) AS column_name
FROM mmdb.model AS m
UNION ALL
SELECT
    'run' AS kind,
    'run:' || r.name AS entity,
    r.run_id AS entity_id,
    r.name,
    cast(NULL AS integer) AS version,
    r.dropped_at IS NOT NULL AS is_dropped,
    cast(NULL AS text) AS table_name,
    cast(NULL AS text) AS column_name
FROM mmdb.run AS r
UNION ALL
SELECT
    'dataset' AS kind,
    'dataset:' || d.name || CASE WHEN d.dropped_at IS NULL THEN '' ELSE '#' || cast(d.dataset_id AS text) END AS entity,
    d.dataset_id AS entity_id,
    d.name,
    cast(NULL AS integer) AS version,
    d.dropped_at IS NOT NULL AS is_dropped,
    cast(NULL AS text) AS table_name,
    cast(NULL AS text) AS column_name
FROM mmdb.dataset AS d
UNION ALL
SELECT
    'table' AS kind,
    t.table_entity AS entity,
    cast(NULL AS bigint) AS entity_id,
    t.table_name AS name,
    cast(NULL AS integer) AS version,
    FALSE AS is_dropped,
    t.table_name,
    cast(NULL AS text) AS column_name
FROM (
    SELECT
        s.table_entity,
        s.table_name
    FROM mmdb.lineage_source AS s
    WHERE s.resolution <> 'unresolved'
    UNION
    SELECT
        e.child AS table_entity,
        e.child_table AS table_name
    FROM mmdb.lineage_model_edge AS e
    WHERE e.child_kind = 'table'
) AS t
UNION ALL
SELECT
    'column' AS kind,
    c.column_entity AS entity,
    cast(NULL AS bigint) AS entity_id,
    c.column_name AS name,
    cast(NULL AS integer) AS version,
    FALSE AS is_dropped,
    c.table_name,
    c.column_name
FROM (
    SELECT DISTINCT
        s.column_entity,
        s.table_name,
        s.column_name
    FROM mmdb.lineage_source AS s
    WHERE s.resolution = 'column'
) AS c;
COMMENT ON VIEW mmdb.lineage_entity IS 'What lineage() can be asked for by a name of its own.';
COMMENT ON COLUMN mmdb.lineage_entity.kind IS 'model, run, dataset, table or column.';
COMMENT ON COLUMN mmdb.lineage_entity.entity IS 'As lineage() takes it: model:name@version, table:schema.name ...';
COMMENT ON COLUMN mmdb.lineage_entity.entity_id IS 'model_id, run_id or dataset_id; null for tables and columns.';
COMMENT ON COLUMN mmdb.lineage_entity.name IS 'Of the model, run or dataset, of the table without its schema, or of the column.';
COMMENT ON COLUMN mmdb.lineage_entity.version IS 'Of a model.';
COMMENT ON COLUMN mmdb.lineage_entity.is_dropped IS 'Whether the model, run or dataset was dropped.';
COMMENT ON COLUMN mmdb.lineage_entity.table_name IS 'Of a table or column: the table, without its schema.';
COMMENT ON COLUMN mmdb.lineage_entity.column_name IS 'Of a column.';

CREATE OR REPLACE VIEW mmdb.column_impact AS
SELECT
    s.schema_name,
    s.table_name,
    s.column_name,
    s.resolution,
    s.output_name,
    d.name AS dataset,
    m.name AS model,
    m.version,
    s.output_name IS NOT NULL AS is_direct,
    m.model_id
FROM mmdb.lineage_source AS s
INNER JOIN mmdb.dataset AS d ON s.reader_id = d.dataset_id
LEFT JOIN mmdb.model AS m ON d.dataset_id = m.dataset_id
WHERE s.reader_kind = 'dataset';
COMMENT ON VIEW mmdb.column_impact
IS 'Which models were trained on which columns; lineage(column, ''down'') also follows what was made of them.';
COMMENT ON COLUMN mmdb.column_impact.schema_name IS 'Schema of the table; null where it is not known.';
COMMENT ON COLUMN mmdb.column_impact.table_name
IS 'Table that the model''s dataset was read from; empty where a source could not be resolved.';
COMMENT ON COLUMN mmdb.column_impact.column_name IS 'Column that was read; null where only the table could be resolved.';
COMMENT ON COLUMN mmdb.column_impact.resolution IS 'column; table: no more is sure; unresolved: an output of unknown source.';
COMMENT ON COLUMN mmdb.column_impact.output_name IS 'Column of the dataset that it feeds; null where it only filters or joins.';
COMMENT ON COLUMN mmdb.column_impact.dataset IS 'Name of the dataset.';
COMMENT ON COLUMN mmdb.column_impact.model IS 'Name of the model; null where the dataset has none yet.';
COMMENT ON COLUMN mmdb.column_impact.version IS 'Version of the model.';
COMMENT ON COLUMN mmdb.column_impact.is_direct IS 'Whether the model saw the column; false where it only filtered or joined the rows.';
COMMENT ON COLUMN mmdb.column_impact.model_id IS 'Number of the model.';
