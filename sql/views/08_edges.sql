-- Edges of lineage by what they are about. lineage() reads these: a filter on kind and number reaches an index.

-- What datasets and predictions were read from. A name that holds a dot or a quote is quoted, its quotes doubled.
CREATE OR REPLACE VIEW mmdb.lineage_source AS
SELECT
    n.reader_kind,
    n.reader,
    n.reader_id,
    n.reader_table,
    n.schema_name,
    n.table_name,
    n.column_name,
    n.output_name,
    n.through,
    CASE WHEN n.table_name = '' THEN 'unresolved' WHEN n.column_name IS NULL THEN 'table' ELSE 'column' END AS resolution,
    n.happened_at,
    'table:' || coalesce(n.quoted_schema || '.', '') || n.quoted_table AS table_entity,
    'column:' || coalesce(n.quoted_schema || '.', '') || n.quoted_table || '.' || n.quoted_column AS column_entity
FROM (
    SELECT
        s.*,
        CASE
            WHEN s.schema_name LIKE '%.%' OR s.schema_name LIKE '%"%' THEN '"' || replace(s.schema_name, '"', '""') || '"'
            ELSE s.schema_name
        END AS quoted_schema,
        CASE
            WHEN s.table_name LIKE '%.%' OR s.table_name LIKE '%"%' THEN '"' || replace(s.table_name, '"', '""') || '"'
            ELSE s.table_name
        END AS quoted_table,
        CASE
            WHEN s.column_name LIKE '%.%' OR s.column_name LIKE '%"%' THEN '"' || replace(s.column_name, '"', '""') || '"'
            ELSE s.column_name
        END AS quoted_column
    FROM (
        SELECT
            'dataset' AS reader_kind,
            'dataset:' || d.name || CASE WHEN d.dropped_at IS NULL THEN '' ELSE '#' || cast(d.dataset_id AS text) END AS reader,
            d.dataset_id AS reader_id,
            cast(NULL AS text) AS reader_table,
            s.schema_name,
            s.table_name,
            s.column_name,
            s.output_name,
            s.via AS through,
            d.created_at AS happened_at
        FROM mmdb.dataset_source AS s
        INNER JOIN mmdb.dataset AS d ON s.dataset_id = d.dataset_id
        UNION ALL
        SELECT
            'table' AS reader_kind,
            'table:'
            || CASE
                WHEN p.schema_name LIKE '%.%' OR p.schema_name LIKE '%"%' THEN '"' || replace(p.schema_name, '"', '""') || '"'
                ELSE p.schema_name
            END
            || '.'
            || CASE
                WHEN p.table_name LIKE '%.%' OR p.table_name LIKE '%"%' THEN '"' || replace(p.table_name, '"', '""') || '"'
                ELSE p.table_name
            END AS reader,
            cast(NULL AS bigint) AS reader_id,
            p.table_name AS reader_table,
            s.schema_name,
            s.table_name,
            s.column_name,
            s.output_name,
            s.via AS through,
            p.predicted_at AS happened_at
        FROM mmdb.prediction_source AS s
        INNER JOIN mmdb.prediction AS p ON s.prediction_id = p.prediction_id
    ) AS s
) AS n;
COMMENT ON VIEW mmdb.lineage_source IS 'Tables and columns that datasets, and predictions written to tables, were read from.';
COMMENT ON COLUMN mmdb.lineage_source.reader_kind IS 'dataset, or table: one that predictions were written to.';
COMMENT ON COLUMN mmdb.lineage_source.reader IS 'What read the source, as lineage() takes it.';
COMMENT ON COLUMN mmdb.lineage_source.reader_id IS 'dataset_id; null for predictions.';
COMMENT ON COLUMN mmdb.lineage_source.reader_table IS 'Name of the table that predictions were written to, without its schema.';
COMMENT ON COLUMN mmdb.lineage_source.schema_name IS 'Schema of the table; null where it is not known.';
COMMENT ON COLUMN mmdb.lineage_source.table_name IS 'Table that was read; empty where an output''s source could not be resolved.';
COMMENT ON COLUMN mmdb.lineage_source.column_name IS 'Column that was read; null where only the table could be resolved.';
COMMENT ON COLUMN mmdb.lineage_source.output_name IS 'Column of the query that it feeds; null where it only filters or joins.';
COMMENT ON COLUMN mmdb.lineage_source.through
IS 'Views of the database through which it was read, outermost first; null where there is none.';
COMMENT ON COLUMN mmdb.lineage_source.resolution IS 'column; table: no more is sure; unresolved: an output of unknown source.';
COMMENT ON COLUMN mmdb.lineage_source.happened_at IS 'When the query was read.';
COMMENT ON COLUMN mmdb.lineage_source.table_entity IS 'The table, as lineage() takes it.';
COMMENT ON COLUMN mmdb.lineage_source.column_entity IS 'The column, as lineage() takes it; null where it could not be resolved.';

CREATE OR REPLACE VIEW mmdb.lineage_source_edge AS
SELECT
    s.resolution AS parent_kind,
    CASE
        WHEN s.resolution = 'column' THEN s.column_entity
        WHEN s.resolution = 'table' THEN s.table_entity
        ELSE 'unresolved:' || s.reader || coalesce('.' || s.output_name, '')
    END AS parent,
    s.reader_kind AS child_kind,
    s.reader AS child,
    coalesce(s.output_name, 'filter')
    || CASE WHEN s.resolution = 'column' THEN '' ELSE ' (column unresolved)' END
    || coalesce(' through ' || s.through, '') AS via,
    s.happened_at,
    cast(NULL AS bigint) AS parent_id,
    cast(NULL AS integer) AS parent_epoch,
    cast(NULL AS bigint) AS parent_part,
    s.reader_id AS child_id,
    cast(NULL AS integer) AS child_epoch,
    cast(NULL AS bigint) AS child_part,
    s.table_name AS parent_table,
    s.column_name AS parent_column,
    s.reader_table AS child_table,
    cast(NULL AS text) AS child_column
FROM mmdb.lineage_source AS s
UNION ALL
SELECT
    'table' AS parent_kind,
    t.table_entity AS parent,
    'column' AS child_kind,
    t.column_entity AS child,
    'column' AS via,
    cast(NULL AS timestamptz) AS happened_at,
    cast(NULL AS bigint) AS parent_id,
    cast(NULL AS integer) AS parent_epoch,
    cast(NULL AS bigint) AS parent_part,
    cast(NULL AS bigint) AS child_id,
    cast(NULL AS integer) AS child_epoch,
    cast(NULL AS bigint) AS child_part,
    t.table_name AS parent_table,
    cast(NULL AS text) AS parent_column,
    t.table_name AS child_table,
    t.column_name AS child_column
FROM (
    SELECT DISTINCT
        s.table_entity,
        s.column_entity,
        s.table_name,
        s.column_name
    FROM mmdb.lineage_source AS s
    WHERE s.resolution = 'column'
) AS t;
COMMENT ON VIEW mmdb.lineage_source_edge
IS 'Edges of lineage between tables, columns and what was read from them.';
COMMENT ON COLUMN mmdb.lineage_source_edge.parent_kind
IS 'table, column, unresolved, dataset, partition, hop, checkpoint, candidate, run, model, file or database.';
COMMENT ON COLUMN mmdb.lineage_source_edge.parent IS 'What the child came from, as lineage() takes it: model:name@version.';
COMMENT ON COLUMN mmdb.lineage_source_edge.child_kind IS 'As parent_kind.';
COMMENT ON COLUMN mmdb.lineage_source_edge.child IS 'What came from the parent, as lineage() takes it.';
COMMENT ON COLUMN mmdb.lineage_source_edge.via
IS 'How: the output column, train, validation, save, update, fine-tune, warm start, import ...';
COMMENT ON COLUMN mmdb.lineage_source_edge.happened_at IS 'When; null where no time was noted.';
COMMENT ON COLUMN mmdb.lineage_source_edge.parent_id
IS 'Number of the parent, of a hop or checkpoint that of its candidate; null for tables, columns and files.';
COMMENT ON COLUMN mmdb.lineage_source_edge.parent_epoch IS 'Epoch of a parent that is a hop or checkpoint, from 0.';
COMMENT ON COLUMN mmdb.lineage_source_edge.parent_part IS 'Partition of a parent that is a hop.';
COMMENT ON COLUMN mmdb.lineage_source_edge.child_id IS 'As parent_id.';
COMMENT ON COLUMN mmdb.lineage_source_edge.child_epoch IS 'As parent_epoch.';
COMMENT ON COLUMN mmdb.lineage_source_edge.child_part IS 'As parent_part.';
COMMENT ON COLUMN mmdb.lineage_source_edge.parent_table IS 'Name, without its schema, of a parent that is a table or of its column.';
COMMENT ON COLUMN mmdb.lineage_source_edge.parent_column IS 'Name of a parent that is a column.';
COMMENT ON COLUMN mmdb.lineage_source_edge.child_table IS 'As parent_table.';
COMMENT ON COLUMN mmdb.lineage_source_edge.child_column IS 'As parent_column.';

CREATE OR REPLACE VIEW mmdb.lineage_run_edge AS
SELECT
    'dataset' AS parent_kind,
    'dataset:' || d.name || CASE WHEN d.dropped_at IS NULL THEN '' ELSE '#' || cast(d.dataset_id AS text) END AS parent,
    'run' AS child_kind,
    'run:' || r.name AS child,
    'train' AS via,
    r.created_at AS happened_at,
    d.dataset_id AS parent_id,
    cast(NULL AS integer) AS parent_epoch,
    cast(NULL AS bigint) AS parent_part,
    r.run_id AS child_id,
    cast(NULL AS integer) AS child_epoch,
    cast(NULL AS bigint) AS child_part,
    cast(NULL AS text) AS parent_table,
    cast(NULL AS text) AS parent_column,
    cast(NULL AS text) AS child_table,
    cast(NULL AS text) AS child_column
FROM mmdb.run AS r
INNER JOIN mmdb.dataset AS d ON r.dataset_id = d.dataset_id
UNION ALL
SELECT
    'dataset' AS parent_kind,
    'dataset:' || d.name || CASE WHEN d.dropped_at IS NULL THEN '' ELSE '#' || cast(d.dataset_id AS text) END AS parent,
    'model' AS child_kind,
    'model:' || m.name || '@' || cast(m.version AS text) AS child,
    'train' AS via,
    m.created_at AS happened_at,
    d.dataset_id AS parent_id,
    cast(NULL AS integer) AS parent_epoch,
    cast(NULL AS bigint) AS parent_part,
    m.model_id AS child_id,
    cast(NULL AS integer) AS child_epoch,
    cast(NULL AS bigint) AS child_part,
    cast(NULL AS text) AS parent_table,
    cast(NULL AS text) AS parent_column,
    cast(NULL AS text) AS child_table,
    cast(NULL AS text) AS child_column
FROM mmdb.model AS m
INNER JOIN mmdb.dataset AS d ON m.dataset_id = d.dataset_id
WHERE m.candidate_id IS NULL
UNION ALL
SELECT
    'run' AS parent_kind,
    'run:' || r.name AS parent,
    'candidate' AS child_kind,
    'candidate:' || cast(c.candidate_id AS text) AS child,
    'search' AS via,
    r.created_at AS happened_at,
    r.run_id AS parent_id,
    cast(NULL AS integer) AS parent_epoch,
    cast(NULL AS bigint) AS parent_part,
    c.candidate_id AS child_id,
    cast(NULL AS integer) AS child_epoch,
    cast(NULL AS bigint) AS child_part,
    cast(NULL AS text) AS parent_table,
    cast(NULL AS text) AS parent_column,
    cast(NULL AS text) AS child_table,
    cast(NULL AS text) AS child_column
FROM mmdb.candidate AS c
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id;
COMMENT ON VIEW mmdb.lineage_run_edge
IS 'Edges of lineage from datasets to runs and their candidates, and to models trained outside of runs.';
COMMENT ON COLUMN mmdb.lineage_run_edge.parent_kind
IS 'table, column, unresolved, dataset, partition, hop, checkpoint, candidate, run, model, file or database.';
COMMENT ON COLUMN mmdb.lineage_run_edge.parent IS 'What the child came from, as lineage() takes it: model:name@version.';
COMMENT ON COLUMN mmdb.lineage_run_edge.child_kind IS 'As parent_kind.';
COMMENT ON COLUMN mmdb.lineage_run_edge.child IS 'What came from the parent, as lineage() takes it.';
COMMENT ON COLUMN mmdb.lineage_run_edge.via IS 'How: the output column, train, validation, save, update, fine-tune, warm start, import ...';
COMMENT ON COLUMN mmdb.lineage_run_edge.happened_at IS 'When; null where no time was noted.';
COMMENT ON COLUMN mmdb.lineage_run_edge.parent_id
IS 'Number of the parent, of a hop or checkpoint that of its candidate; null for tables, columns and files.';
COMMENT ON COLUMN mmdb.lineage_run_edge.parent_epoch IS 'Epoch of a parent that is a hop or checkpoint, from 0.';
COMMENT ON COLUMN mmdb.lineage_run_edge.parent_part IS 'Partition of a parent that is a hop.';
COMMENT ON COLUMN mmdb.lineage_run_edge.child_id IS 'As parent_id.';
COMMENT ON COLUMN mmdb.lineage_run_edge.child_epoch IS 'As parent_epoch.';
COMMENT ON COLUMN mmdb.lineage_run_edge.child_part IS 'As parent_part.';
COMMENT ON COLUMN mmdb.lineage_run_edge.parent_table IS 'Name, without its schema, of a parent that is a table or of its column.';
COMMENT ON COLUMN mmdb.lineage_run_edge.parent_column IS 'Name of a parent that is a column.';
COMMENT ON COLUMN mmdb.lineage_run_edge.child_table IS 'As parent_table.';
COMMENT ON COLUMN mmdb.lineage_run_edge.child_column IS 'As parent_column.';

CREATE OR REPLACE VIEW mmdb.lineage_hop_edge AS
SELECT
    'dataset' AS parent_kind,
    'dataset:' || d.name || CASE WHEN d.dropped_at IS NULL THEN '' ELSE '#' || cast(d.dataset_id AS text) END AS parent,
    'partition' AS child_kind,
    'partition:' || cast(p.part_id AS text) AS child,
    p.role AS via,
    d.created_at AS happened_at,
    d.dataset_id AS parent_id,
    cast(NULL AS integer) AS parent_epoch,
    cast(NULL AS bigint) AS parent_part,
    p.part_id AS child_id,
    cast(NULL AS integer) AS child_epoch,
    cast(NULL AS bigint) AS child_part,
    cast(NULL AS text) AS parent_table,
    cast(NULL AS text) AS parent_column,
    cast(NULL AS text) AS child_table,
    cast(NULL AS text) AS child_column
FROM mmdb.partition AS p
INNER JOIN mmdb.dataset AS d ON p.dataset_id = d.dataset_id
UNION ALL
SELECT
    'partition' AS parent_kind,
    'partition:' || cast(h.part_id AS text) AS parent,
    'hop' AS child_kind,
    'hop:' || cast(h.candidate_id AS text) || '/' || cast(h.epoch AS text) || '/' || cast(h.part_id AS text) AS child,
    CASE WHEN h.objective IS NULL THEN 'train' ELSE 'validation' END AS via,
    h.started_at AS happened_at,
    h.part_id AS parent_id,
    cast(NULL AS integer) AS parent_epoch,
    cast(NULL AS bigint) AS parent_part,
    h.candidate_id AS child_id,
    h.epoch AS child_epoch,
    h.part_id AS child_part,
    cast(NULL AS text) AS parent_table,
    cast(NULL AS text) AS parent_column,
    cast(NULL AS text) AS child_table,
    cast(NULL AS text) AS child_column
FROM mmdb.hop AS h
UNION ALL
SELECT
    'candidate' AS parent_kind,
    'candidate:' || cast(h.candidate_id AS text) AS parent,
    'hop' AS child_kind,
    'hop:' || cast(h.candidate_id AS text) || '/' || cast(h.epoch AS text) || '/' || cast(h.part_id AS text) AS child,
    'begin' AS via,
    h.started_at AS happened_at,
    h.candidate_id AS parent_id,
    cast(NULL AS integer) AS parent_epoch,
    cast(NULL AS bigint) AS parent_part,
    h.candidate_id AS child_id,
    h.epoch AS child_epoch,
    h.part_id AS child_part,
    cast(NULL AS text) AS parent_table,
    cast(NULL AS text) AS parent_column,
    cast(NULL AS text) AS child_table,
    cast(NULL AS text) AS child_column
FROM mmdb.hop AS h
WHERE h.epoch = 0 AND h.objective IS NULL
UNION ALL
SELECT
    'checkpoint' AS parent_kind,
    'checkpoint:' || cast(h.candidate_id AS text) || '/' || cast(h.epoch - 1 AS text) AS parent,
    'hop' AS child_kind,
    'hop:' || cast(h.candidate_id AS text) || '/' || cast(h.epoch AS text) || '/' || cast(h.part_id AS text) AS child,
    'train' AS via,
    h.started_at AS happened_at,
    h.candidate_id AS parent_id,
    h.epoch - 1 AS parent_epoch,
    cast(NULL AS bigint) AS parent_part,
    h.candidate_id AS child_id,
    h.epoch AS child_epoch,
    h.part_id AS child_part,
    cast(NULL AS text) AS parent_table,
    cast(NULL AS text) AS parent_column,
    cast(NULL AS text) AS child_table,
    cast(NULL AS text) AS child_column
FROM mmdb.hop AS h
WHERE h.epoch > 0 AND h.objective IS NULL
UNION ALL
SELECT
    'hop' AS parent_kind,
    'hop:' || cast(h.candidate_id AS text) || '/' || cast(h.epoch AS text) || '/' || cast(h.part_id AS text) AS parent,
    'checkpoint' AS child_kind,
    'checkpoint:' || cast(h.candidate_id AS text) || '/' || cast(h.epoch AS text) AS child,
    CASE WHEN h.objective IS NULL THEN 'train' ELSE 'validation' END AS via,
    h.finished_at AS happened_at,
    h.candidate_id AS parent_id,
    h.epoch AS parent_epoch,
    h.part_id AS parent_part,
    h.candidate_id AS child_id,
    h.epoch AS child_epoch,
    cast(NULL AS bigint) AS child_part,
    cast(NULL AS text) AS parent_table,
    cast(NULL AS text) AS parent_column,
    cast(NULL AS text) AS child_table,
    cast(NULL AS text) AS child_column
FROM mmdb.hop AS h;
COMMENT ON VIEW mmdb.lineage_hop_edge
IS 'Edges of lineage of hops: from their partition and the state before them to the state after their epoch.';
COMMENT ON COLUMN mmdb.lineage_hop_edge.parent_kind
IS 'table, column, unresolved, dataset, partition, hop, checkpoint, candidate, run, model, file or database.';
COMMENT ON COLUMN mmdb.lineage_hop_edge.parent IS 'What the child came from, as lineage() takes it: model:name@version.';
COMMENT ON COLUMN mmdb.lineage_hop_edge.child_kind IS 'As parent_kind.';
COMMENT ON COLUMN mmdb.lineage_hop_edge.child IS 'What came from the parent, as lineage() takes it.';
COMMENT ON COLUMN mmdb.lineage_hop_edge.via IS 'How: the output column, train, validation, save, update, fine-tune, warm start, import ...';
COMMENT ON COLUMN mmdb.lineage_hop_edge.happened_at IS 'When; null where no time was noted.';
COMMENT ON COLUMN mmdb.lineage_hop_edge.parent_id
IS 'Number of the parent, of a hop or checkpoint that of its candidate; null for tables, columns and files.';
COMMENT ON COLUMN mmdb.lineage_hop_edge.parent_epoch IS 'Epoch of a parent that is a hop or checkpoint, from 0.';
COMMENT ON COLUMN mmdb.lineage_hop_edge.parent_part IS 'Partition of a parent that is a hop.';
COMMENT ON COLUMN mmdb.lineage_hop_edge.child_id IS 'As parent_id.';
COMMENT ON COLUMN mmdb.lineage_hop_edge.child_epoch IS 'As parent_epoch.';
COMMENT ON COLUMN mmdb.lineage_hop_edge.child_part IS 'As parent_part.';
COMMENT ON COLUMN mmdb.lineage_hop_edge.parent_table IS 'Name, without its schema, of a parent that is a table or of its column.';
COMMENT ON COLUMN mmdb.lineage_hop_edge.parent_column IS 'Name of a parent that is a column.';
COMMENT ON COLUMN mmdb.lineage_hop_edge.child_table IS 'As parent_table.';
COMMENT ON COLUMN mmdb.lineage_hop_edge.child_column IS 'As parent_column.';

CREATE OR REPLACE VIEW mmdb.lineage_state_edge AS
SELECT
    'checkpoint' AS parent_kind,
    'checkpoint:' || cast(m.candidate_id AS text) || '/' || cast(m.epoch AS text) AS parent,
    'model' AS child_kind,
    'model:' || m.name || '@' || cast(m.version AS text) AS child,
    'save' AS via,
    m.created_at AS happened_at,
    m.candidate_id AS parent_id,
    m.epoch AS parent_epoch,
    cast(NULL AS bigint) AS parent_part,
    m.model_id AS child_id,
    cast(NULL AS integer) AS child_epoch,
    cast(NULL AS bigint) AS child_part,
    cast(NULL AS text) AS parent_table,
    cast(NULL AS text) AS parent_column,
    cast(NULL AS text) AS child_table,
    cast(NULL AS text) AS child_column
FROM mmdb.model AS m
WHERE m.candidate_id IS NOT NULL
UNION ALL
SELECT
    'checkpoint' AS parent_kind,
    'checkpoint:' || cast(k.candidate_id AS text) || '/' || cast(k.epoch AS text) AS parent,
    'model' AS child_kind,
    'model:' || m.name || '@' || cast(m.version AS text) AS child,
    'mean' AS via,
    m.created_at AS happened_at,
    k.candidate_id AS parent_id,
    k.epoch AS parent_epoch,
    cast(NULL AS bigint) AS parent_part,
    m.model_id AS child_id,
    cast(NULL AS integer) AS child_epoch,
    cast(NULL AS bigint) AS child_part,
    cast(NULL AS text) AS parent_table,
    cast(NULL AS text) AS parent_column,
    cast(NULL AS text) AS child_table,
    cast(NULL AS text) AS child_column
FROM mmdb.model_member AS k
INNER JOIN mmdb.model AS m ON k.model_id = m.model_id
WHERE k.ordinal > 0
UNION ALL
SELECT
    CASE WHEN o.epoch IS NULL THEN 'candidate' ELSE 'checkpoint' END AS parent_kind,
    CASE
        WHEN o.epoch IS NULL THEN 'candidate:' || cast(o.parent_id AS text)
        ELSE 'checkpoint:' || cast(o.parent_id AS text) || '/' || cast(o.epoch AS text)
    END AS parent,
    'candidate' AS child_kind,
    'candidate:' || cast(o.candidate_id AS text) AS child,
    o.via,
    o.happened_at,
    o.parent_id,
    o.epoch AS parent_epoch,
    cast(NULL AS bigint) AS parent_part,
    o.candidate_id AS child_id,
    cast(NULL AS integer) AS child_epoch,
    cast(NULL AS bigint) AS child_part,
    cast(NULL AS text) AS parent_table,
    cast(NULL AS text) AS parent_column,
    cast(NULL AS text) AS child_table,
    cast(NULL AS text) AS child_column
FROM (
    SELECT
        p.candidate_id,
        p.parent_id,
        p.via,
        p.happened_at,
        coalesce(
            (
                SELECT max(h.epoch)
                FROM mmdb.hop AS h
                WHERE p.parent_id = h.candidate_id AND p.parent_state = h.state_out
            ),
            (
                SELECT max(g.epoch)
                FROM mmdb.merge AS g
                WHERE p.parent_id = g.candidate_id AND p.parent_state = g.state_out
            ),
            (
                SELECT max(k.epoch)
                FROM mmdb.checkpoint AS k
                WHERE p.parent_id = k.candidate_id AND p.parent_state = k.state_hash
            )
        ) AS epoch
    FROM (
        SELECT
            c.candidate_id,
            c.parent_id,
            c.parent_state,
            'clone' AS via,
            cast(NULL AS timestamptz) AS happened_at
        FROM mmdb.candidate AS c
        WHERE c.parent_id IS NOT NULL
        UNION ALL
        SELECT
            w.candidate_id,
            t.parent_candidate_id AS parent_id,
            t.parent_state,
            'warm start' AS via,
            w.decided_at AS happened_at
        FROM mmdb.warm_start AS w
        INNER JOIN mmdb.transfer AS t ON w.transfer_id = t.transfer_id
        WHERE t.parent_candidate_id IS NOT NULL
    ) AS p
) AS o;
COMMENT ON VIEW mmdb.lineage_state_edge
IS 'Edges of lineage from states of candidates: to models that were saved, clones and warm starts.';
COMMENT ON COLUMN mmdb.lineage_state_edge.parent_kind
IS 'table, column, unresolved, dataset, partition, hop, checkpoint, candidate, run, model, file or database.';
COMMENT ON COLUMN mmdb.lineage_state_edge.parent IS 'What the child came from, as lineage() takes it: model:name@version.';
COMMENT ON COLUMN mmdb.lineage_state_edge.child_kind IS 'As parent_kind.';
COMMENT ON COLUMN mmdb.lineage_state_edge.child IS 'What came from the parent, as lineage() takes it.';
COMMENT ON COLUMN mmdb.lineage_state_edge.via
IS 'How: the output column, train, validation, save, update, fine-tune, warm start, import ...';
COMMENT ON COLUMN mmdb.lineage_state_edge.happened_at IS 'When; null where no time was noted.';
COMMENT ON COLUMN mmdb.lineage_state_edge.parent_id
IS 'Number of the parent, of a hop or checkpoint that of its candidate; null for tables, columns and files.';
COMMENT ON COLUMN mmdb.lineage_state_edge.parent_epoch IS 'Epoch of a parent that is a hop or checkpoint, from 0.';
COMMENT ON COLUMN mmdb.lineage_state_edge.parent_part IS 'Partition of a parent that is a hop.';
COMMENT ON COLUMN mmdb.lineage_state_edge.child_id IS 'As parent_id.';
COMMENT ON COLUMN mmdb.lineage_state_edge.child_epoch IS 'As parent_epoch.';
COMMENT ON COLUMN mmdb.lineage_state_edge.child_part IS 'As parent_part.';
COMMENT ON COLUMN mmdb.lineage_state_edge.parent_table IS 'Name, without its schema, of a parent that is a table or of its column.';
COMMENT ON COLUMN mmdb.lineage_state_edge.parent_column IS 'Name of a parent that is a column.';
COMMENT ON COLUMN mmdb.lineage_state_edge.child_table IS 'As parent_table.';
COMMENT ON COLUMN mmdb.lineage_state_edge.child_column IS 'As parent_column.';

CREATE OR REPLACE VIEW mmdb.lineage_model_edge AS
SELECT
    'model' AS parent_kind,
    'model:' || p.name || '@' || cast(p.version AS text) AS parent,
    'model' AS child_kind,
    'model:' || m.name || '@' || cast(m.version AS text) AS child,
    CASE
        WHEN EXISTS (
            SELECT 1 FROM mmdb.recipe AS x
            WHERE m.model_id = x.model_id AND x.trainer IS NOT NULL
        ) THEN 'fine-tune'
        WHEN m.reason ->> 'parent' = 'accepted' THEN 'accepted'
        WHEN m.approach = 'snapshot' THEN 'derived'
        ELSE m.approach
    END AS via,
    m.created_at AS happened_at,
    p.model_id AS parent_id,
    cast(NULL AS integer) AS parent_epoch,
    cast(NULL AS bigint) AS parent_part,
    m.model_id AS child_id,
    cast(NULL AS integer) AS child_epoch,
    cast(NULL AS bigint) AS child_part,
    cast(NULL AS text) AS parent_table,
    cast(NULL AS text) AS parent_column,
    cast(NULL AS text) AS child_table,
    cast(NULL AS text) AS child_column
FROM mmdb.model AS m
INNER JOIN mmdb.model AS p ON m.parent_id = p.model_id
UNION ALL
SELECT
    'model' AS parent_kind,
    'model:' || p.name || '@' || cast(p.version AS text) AS parent,
    'model' AS child_kind,
    'model:' || m.name || '@' || cast(m.version AS text) AS child,
    'warm start' AS via,
    t.created_at AS happened_at,
    p.model_id AS parent_id,
    cast(NULL AS integer) AS parent_epoch,
    cast(NULL AS bigint) AS parent_part,
    m.model_id AS child_id,
    cast(NULL AS integer) AS child_epoch,
    cast(NULL AS bigint) AS child_part,
    cast(NULL AS text) AS parent_table,
    cast(NULL AS text) AS parent_column,
    cast(NULL AS text) AS child_table,
    cast(NULL AS text) AS child_column
FROM mmdb.transfer AS t
INNER JOIN mmdb.model AS p ON t.parent_id = p.model_id
INNER JOIN mmdb.model AS m ON t.model_id = m.model_id
UNION ALL
SELECT
    'model' AS parent_kind,
    'model:' || m.name || '@' || cast(m.version AS text) AS parent,
    'candidate' AS child_kind,
    'candidate:' || cast(w.candidate_id AS text) AS child,
    'warm start' AS via,
    w.decided_at AS happened_at,
    m.model_id AS parent_id,
    cast(NULL AS integer) AS parent_epoch,
    cast(NULL AS bigint) AS parent_part,
    w.candidate_id AS child_id,
    cast(NULL AS integer) AS child_epoch,
    cast(NULL AS bigint) AS child_part,
    cast(NULL AS text) AS parent_table,
    cast(NULL AS text) AS parent_column,
    cast(NULL AS text) AS child_table,
    cast(NULL AS text) AS child_column
FROM mmdb.warm_start AS w
INNER JOIN mmdb.transfer AS t ON w.transfer_id = t.transfer_id
INNER JOIN mmdb.model AS m ON t.parent_id = m.model_id
UNION ALL
SELECT
    CASE WHEN o.kind = 'import' THEN 'file' ELSE 'database' END AS parent_kind,
    CASE WHEN o.kind = 'import' THEN 'file:' ELSE 'database:' END || o.source AS parent,
    'model' AS child_kind,
    'model:' || m.name || '@' || cast(m.version AS text) AS child,
    o.kind AS via,
    o.happened_at,
    cast(NULL AS bigint) AS parent_id,
    cast(NULL AS integer) AS parent_epoch,
    cast(NULL AS bigint) AS parent_part,
    m.model_id AS child_id,
    cast(NULL AS integer) AS child_epoch,
    cast(NULL AS bigint) AS child_part,
    cast(NULL AS text) AS parent_table,
    cast(NULL AS text) AS parent_column,
    cast(NULL AS text) AS child_table,
    cast(NULL AS text) AS child_column
FROM mmdb.model_origin AS o
INNER JOIN mmdb.model AS m ON o.model_id = m.model_id
UNION ALL
SELECT
    'model' AS parent_kind,
    'model:' || m.name || '@' || cast(m.version AS text) AS parent,
    'table' AS child_kind,
    'table:'
    || CASE
        WHEN p.schema_name LIKE '%.%' OR p.schema_name LIKE '%"%' THEN '"' || replace(p.schema_name, '"', '""') || '"'
        ELSE p.schema_name
    END
    || '.'
    || CASE
        WHEN p.table_name LIKE '%.%' OR p.table_name LIKE '%"%' THEN '"' || replace(p.table_name, '"', '""') || '"'
        ELSE p.table_name
    END AS child,
    'predict' AS via,
    p.predicted_at AS happened_at,
    m.model_id AS parent_id,
    cast(NULL AS integer) AS parent_epoch,
    cast(NULL AS bigint) AS parent_part,
    cast(NULL AS bigint) AS child_id,
    cast(NULL AS integer) AS child_epoch,
    cast(NULL AS bigint) AS child_part,
    cast(NULL AS text) AS parent_table,
    cast(NULL AS text) AS parent_column,
    p.table_name AS child_table,
    cast(NULL AS text) AS child_column
FROM mmdb.prediction AS p
INNER JOIN mmdb.model AS m ON p.model_id = m.model_id;
COMMENT ON VIEW mmdb.lineage_model_edge
IS 'Edges of lineage between models, from where they came, and to candidates and tables that they went into.';
COMMENT ON COLUMN mmdb.lineage_model_edge.parent_kind
IS 'table, column, unresolved, dataset, partition, hop, checkpoint, candidate, run, model, file or database.';
COMMENT ON COLUMN mmdb.lineage_model_edge.parent IS 'What the child came from, as lineage() takes it: model:name@version.';
COMMENT ON COLUMN mmdb.lineage_model_edge.child_kind IS 'As parent_kind.';
COMMENT ON COLUMN mmdb.lineage_model_edge.child IS 'What came from the parent, as lineage() takes it.';
COMMENT ON COLUMN mmdb.lineage_model_edge.via
IS 'How: the output column, train, validation, save, update, fine-tune, warm start, import ...';
COMMENT ON COLUMN mmdb.lineage_model_edge.happened_at IS 'When; null where no time was noted.';
COMMENT ON COLUMN mmdb.lineage_model_edge.parent_id
IS 'Number of the parent, of a hop or checkpoint that of its candidate; null for tables, columns and files.';
COMMENT ON COLUMN mmdb.lineage_model_edge.parent_epoch IS 'Epoch of a parent that is a hop or checkpoint, from 0.';
COMMENT ON COLUMN mmdb.lineage_model_edge.parent_part IS 'Partition of a parent that is a hop.';
COMMENT ON COLUMN mmdb.lineage_model_edge.child_id IS 'As parent_id.';
COMMENT ON COLUMN mmdb.lineage_model_edge.child_epoch IS 'As parent_epoch.';
COMMENT ON COLUMN mmdb.lineage_model_edge.child_part IS 'As parent_part.';
COMMENT ON COLUMN mmdb.lineage_model_edge.parent_table IS 'Name, without its schema, of a parent that is a table or of its column.';
COMMENT ON COLUMN mmdb.lineage_model_edge.parent_column IS 'Name of a parent that is a column.';
COMMENT ON COLUMN mmdb.lineage_model_edge.child_table IS 'As parent_table.';
COMMENT ON COLUMN mmdb.lineage_model_edge.child_column IS 'As parent_column.';
