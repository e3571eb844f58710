-- Datasets, partitions, models and where they come from.

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
    d.dropped_at
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

CREATE OR REPLACE VIEW mmdb.model_overview AS
WITH held AS (
    SELECT
        t.model_id,
        count(*) AS tensors,
        sum(x.byte_count) AS byte_count
    FROM mmdb.model_tensor AS t
    INNER JOIN mmdb.tensor AS x ON t.tensor_hash = x.tensor_hash
    GROUP BY t.model_id
)

SELECT
    m.name AS model,
    m.version,
    d.name AS dataset,
    r.name AS run,
    m.candidate_id,
    m.epoch,
    m.metrics,
    m.architecture,
    m.arguments,
    h.tensors,
    h.byte_count,
    m.created_at
FROM mmdb.model AS m
INNER JOIN mmdb.dataset AS d ON m.dataset_id = d.dataset_id
INNER JOIN mmdb.candidate AS c ON m.candidate_id = c.candidate_id
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
LEFT JOIN held AS h ON m.model_id = h.model_id;
COMMENT ON VIEW mmdb.model_overview IS 'The saved models.';

CREATE OR REPLACE VIEW mmdb.model_lineage AS
SELECT
    m.name AS model,
    m.version,
    r.name AS run,
    m.candidate_id,
    m.epoch,
    d.name AS dataset,
    s.table_name,
    s.column_name,
    s.output_name
FROM mmdb.model AS m
INNER JOIN mmdb.candidate AS c ON m.candidate_id = c.candidate_id
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
INNER JOIN mmdb.dataset AS d ON m.dataset_id = d.dataset_id
LEFT JOIN mmdb.dataset_source AS s ON d.dataset_id = s.dataset_id;
COMMENT ON VIEW mmdb.model_lineage IS 'From each model to its run, dataset, tables and columns.';
