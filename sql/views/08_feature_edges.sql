-- Edges of lineage through features: from datasets and the models whose layers were frozen, to candidates.

CREATE OR REPLACE VIEW mmdb.lineage_feature_edge AS
SELECT
    'dataset' AS parent_kind,
    'dataset:' || d.name || CASE WHEN d.dropped_at IS NULL THEN '' ELSE '#' || cast(d.dataset_id AS text) END AS parent,
    'feature' AS child_kind,
    'feature:' || cast(f.feature_id AS text) AS child,
    f.layer AS via,
    f.created_at AS happened_at,
    d.dataset_id AS parent_id,
    cast(NULL AS integer) AS parent_epoch,
    cast(NULL AS bigint) AS parent_part,
    f.feature_id AS child_id,
    cast(NULL AS integer) AS child_epoch,
    cast(NULL AS bigint) AS child_part,
    cast(NULL AS text) AS parent_table,
    cast(NULL AS text) AS parent_column,
    cast(NULL AS text) AS child_table,
    cast(NULL AS text) AS child_column
FROM mmdb.feature AS f
INNER JOIN mmdb.dataset AS d ON f.dataset_id = d.dataset_id
UNION ALL
SELECT
    'model' AS parent_kind,
    'model:' || m.name || '@' || cast(m.version AS text) AS parent,
    'feature' AS child_kind,
    'feature:' || cast(f.feature_id AS text) AS child,
    'backbone' AS via,
    f.created_at AS happened_at,
    m.model_id AS parent_id,
    cast(NULL AS integer) AS parent_epoch,
    cast(NULL AS bigint) AS parent_part,
    f.feature_id AS child_id,
    cast(NULL AS integer) AS child_epoch,
    cast(NULL AS bigint) AS child_part,
    cast(NULL AS text) AS parent_table,
    cast(NULL AS text) AS parent_column,
    cast(NULL AS text) AS child_table,
    cast(NULL AS text) AS child_column
FROM (
    SELECT
        u.feature_id,
        u.model_id,
        min(u.created_at) AS created_at
    FROM mmdb.run_feature AS u
    WHERE u.model_id IS NOT NULL
    GROUP BY u.feature_id, u.model_id
) AS f
INNER JOIN mmdb.model AS m ON f.model_id = m.model_id
UNION ALL
SELECT
    'feature' AS parent_kind,
    'feature:' || cast(c.feature_id AS text) AS parent,
    'candidate' AS child_kind,
    'candidate:' || cast(c.candidate_id AS text) AS child,
    'features' AS via,
    cast(NULL AS timestamptz) AS happened_at,
    c.feature_id AS parent_id,
    cast(NULL AS integer) AS parent_epoch,
    cast(NULL AS bigint) AS parent_part,
    c.candidate_id AS child_id,
    cast(NULL AS integer) AS child_epoch,
    cast(NULL AS bigint) AS child_part,
    cast(NULL AS text) AS parent_table,
    cast(NULL AS text) AS parent_column,
    cast(NULL AS text) AS child_table,
    cast(NULL AS text) AS child_column
FROM mmdb.candidate_feature AS c;
COMMENT ON VIEW mmdb.lineage_feature_edge
IS 'Edges of lineage from datasets and frozen models to features, and to candidates on them.';
COMMENT ON COLUMN mmdb.lineage_feature_edge.parent_kind IS 'dataset, model or feature.';
COMMENT ON COLUMN mmdb.lineage_feature_edge.parent IS 'What the child came from, as lineage() takes it: model:name@version.';
COMMENT ON COLUMN mmdb.lineage_feature_edge.child_kind IS 'feature or candidate.';
COMMENT ON COLUMN mmdb.lineage_feature_edge.child IS 'What came from the parent, as lineage() takes it.';
COMMENT ON COLUMN mmdb.lineage_feature_edge.via IS 'The frozen layer, backbone or features.';
COMMENT ON COLUMN mmdb.lineage_feature_edge.happened_at IS 'When; null where no time was noted.';
COMMENT ON COLUMN mmdb.lineage_feature_edge.parent_id
IS 'Number of the parent, of a hop or checkpoint that of its candidate; null for tables, columns and files.';
COMMENT ON COLUMN mmdb.lineage_feature_edge.parent_epoch IS 'Epoch of a parent that is a hop or checkpoint, from 0.';
COMMENT ON COLUMN mmdb.lineage_feature_edge.parent_part IS 'Partition of a parent that is a hop.';
COMMENT ON COLUMN mmdb.lineage_feature_edge.child_id IS 'As parent_id.';
COMMENT ON COLUMN mmdb.lineage_feature_edge.child_epoch IS 'As parent_epoch.';
COMMENT ON COLUMN mmdb.lineage_feature_edge.child_part IS 'As parent_part.';
COMMENT ON COLUMN mmdb.lineage_feature_edge.parent_table IS 'Name, without its schema, of a parent that is a table or of its column.';
COMMENT ON COLUMN mmdb.lineage_feature_edge.parent_column IS 'Name of a parent that is a column.';
COMMENT ON COLUMN mmdb.lineage_feature_edge.child_table IS 'As parent_table.';
COMMENT ON COLUMN mmdb.lineage_feature_edge.child_column IS 'As parent_column.';
