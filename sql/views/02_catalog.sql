-- Datasets, partitions and where they come from.

CREATE OR REPLACE VIEW mmdb.dataset_overview AS
SELECT
    d.name,
    d.query,
    d.label,
    d.task,
    d.row_count,
    d.byte_count,
    d.partitions,
    d.validation,
    d.seed,
    d.input_shape,
    d.classes,
    d.created_at,
    d.dropped_at,
    d.targets,
    d.inputs,
    d.class_counts
FROM mmdb.dataset AS d;
COMMENT ON VIEW mmdb.dataset_overview IS 'The registered datasets.';

CREATE OR REPLACE VIEW mmdb.partition_overview AS
SELECT
    d.name AS dataset,
    p.part_id,
    p.ordinal,
    p.role,
    p.row_count,
    p.byte_count
FROM mmdb.partition AS p
INNER JOIN mmdb.dataset AS d ON p.dataset_id = d.dataset_id;
COMMENT ON VIEW mmdb.partition_overview IS 'The partitions of each dataset.';

CREATE OR REPLACE VIEW mmdb.dataset_lineage AS
SELECT
    d.name AS dataset,
    s.table_name,
    s.column_name,
    s.output_name
FROM mmdb.dataset_source AS s
INNER JOIN mmdb.dataset AS d ON s.dataset_id = d.dataset_id;
COMMENT ON VIEW mmdb.dataset_lineage IS 'Tables and columns that each dataset was read from.';
