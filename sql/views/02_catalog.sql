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
    d.class_counts,
    d.dataset_id,
    d.version,
    d.changes
FROM mmdb.dataset AS d;
COMMENT ON VIEW mmdb.dataset_overview IS 'The registered datasets.';
COMMENT ON COLUMN mmdb.dataset_overview.name IS 'Name, unique among datasets in use.';
COMMENT ON COLUMN mmdb.dataset_overview.query IS 'The SELECT that it was read from, once.';
COMMENT ON COLUMN mmdb.dataset_overview.label IS 'Output column that models predict.';
COMMENT ON COLUMN mmdb.dataset_overview.task IS 'classification, regression, multilabel or next_token: of the first label.';
COMMENT ON COLUMN mmdb.dataset_overview.row_count IS 'Rows, those held out included.';
COMMENT ON COLUMN mmdb.dataset_overview.byte_count IS 'Bytes of its packed blocks.';
COMMENT ON COLUMN mmdb.dataset_overview.partitions IS 'Train slices.';
COMMENT ON COLUMN mmdb.dataset_overview.validation IS 'Share of the rows held out for validation, 0 to 1.';
COMMENT ON COLUMN mmdb.dataset_overview.seed IS 'Seed of the shuffle.';
COMMENT ON COLUMN mmdb.dataset_overview.input_shape IS 'Shape of one row''s features; empty where there are several inputs.';
COMMENT ON COLUMN mmdb.dataset_overview.classes IS 'The first label''s values in order of the outputs; null for other tasks.';
COMMENT ON COLUMN mmdb.dataset_overview.created_at IS 'When it was registered.';
COMMENT ON COLUMN mmdb.dataset_overview.dropped_at IS 'When its blocks were deleted; null while it can be trained on.';
COMMENT ON COLUMN mmdb.dataset_overview.targets IS 'Each label with its task, size and classes, in order.';
COMMENT ON COLUMN mmdb.dataset_overview.inputs IS 'Each input with its columns, shape, dtype and tokenizer; null where one takes all.';
COMMENT ON COLUMN mmdb.dataset_overview.class_counts IS 'Train rows of each class, by label.';
COMMENT ON COLUMN mmdb.dataset_overview.dataset_id IS 'Number of the dataset.';
COMMENT ON COLUMN mmdb.dataset_overview.version
IS 'How often its query has been read anew, from 1; 0: a sample of a version, to retrain on.';
COMMENT ON COLUMN mmdb.dataset_overview.changes IS 'Rows added, changed and deleted since the version before.';

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
COMMENT ON COLUMN mmdb.partition_overview.dataset IS 'Name of the dataset.';
COMMENT ON COLUMN mmdb.partition_overview.part_id IS 'Number of the partition, unique in the database.';
COMMENT ON COLUMN mmdb.partition_overview.ordinal IS 'Place among the partitions of its role, from 0.';
COMMENT ON COLUMN mmdb.partition_overview.role IS 'train, validation or test.';
COMMENT ON COLUMN mmdb.partition_overview.row_count IS 'Rows in it.';
COMMENT ON COLUMN mmdb.partition_overview.byte_count IS 'Bytes of its packed blocks.';

CREATE OR REPLACE VIEW mmdb.dataset_lineage AS
SELECT
    d.name AS dataset,
    s.table_name,
    s.column_name,
    s.output_name,
    s.schema_name,
    s.via,
    s.resolution
FROM mmdb.dataset_source AS s
INNER JOIN mmdb.dataset AS d ON s.dataset_id = d.dataset_id;
COMMENT ON VIEW mmdb.dataset_lineage IS 'Tables and columns that each dataset was read from.';
COMMENT ON COLUMN mmdb.dataset_lineage.dataset IS 'Name of the dataset.';
COMMENT ON COLUMN mmdb.dataset_lineage.table_name IS 'Table that the query reads, views followed; empty where it cannot be told.';
COMMENT ON COLUMN mmdb.dataset_lineage.column_name IS 'Column that the query reads; null where no more than the table is sure.';
COMMENT ON COLUMN mmdb.dataset_lineage.output_name IS 'Output column that it feeds; null where it only filters, joins, groups or sorts.';
COMMENT ON COLUMN mmdb.dataset_lineage.schema_name IS 'Schema of the table; null where it is not known.';
COMMENT ON COLUMN mmdb.dataset_lineage.via IS 'Views through which it is read, outermost first, joined by " > "; null where read directly.';
COMMENT ON COLUMN mmdb.dataset_lineage.resolution IS 'column; table: no more is sure; unresolved: not even that.';

CREATE OR REPLACE VIEW mmdb.transform_overview AS
SELECT
    c.dataset_id,
    c.ordinal,
    d.name AS dataset,
    c.name AS column_name,
    c.kind AS role,
    coalesce(t.kind, 'passthrough') AS transform,
    CASE t.kind
        WHEN 'robust'
            THEN
                'less the median ' || (t.statistics ->> 'median') || ', over the range of quartiles '
                || (t.statistics ->> 'scale') || ', by logarithm far out'
        WHEN 'standardize'
            THEN
                'less the mean ' || (t.statistics ->> 'mean') || ', over the standard deviation '
                || (t.statistics ->> 'deviation')
        WHEN 'log1p'
            THEN
                'logarithm, less its mean ' || (t.statistics ->> 'mean') || ', over its standard deviation '
                || (t.statistics ->> 'deviation')
        WHEN 'quantile' THEN 'share of the train rows below, 0 to 1'
        WHEN 'cyclic' THEN 'sine and cosine of the place in ' || (t.statistics ->> 'rounds')
        WHEN 'date' THEN 'parts with mean and standard deviation: ' || (t.statistics ->> 'parts')
        WHEN 'one_hot' THEN 'a 0/1 number for each of ' || cast(t.categories AS text)
        WHEN 'index'
            THEN
                'a code for each of ' || (t.statistics ->> 'kept') || ' values; one for '
                || (t.statistics ->> 'rare') || ' rare ones and all others'
        WHEN 'hash' THEN 'one of ' || (t.parameters ->> 'buckets') || ' codes, by a hash'
        WHEN 'words'
            THEN
                'its first ' || (t.parameters ->> 'length') || ' words, each one of '
                || (t.parameters ->> 'buckets') || ' codes, by a hash'
        WHEN 'picture'
            THEN
                'decoded, 0 to 1; channels, height and width: ' || (t.statistics ->> 'shape')
                || coalesce('; minus ' || (t.parameters ->> 'mean') || ', divided by ' || (t.parameters ->> 'std'), '')
        WHEN 'drop' THEN 'left out: all train rows have one value'
    END AS meaning,
    cast(t.statistics ->> 'missing' AS bigint) AS missing,
    cast(t.statistics ->> 'fill' AS double precision) AS fill
FROM mmdb.dataset_column AS c
INNER JOIN mmdb.dataset AS d ON c.dataset_id = d.dataset_id
LEFT JOIN mmdb.transform AS t ON c.dataset_id = t.dataset_id AND c.ordinal = t.ordinal;
COMMENT ON VIEW mmdb.transform_overview IS 'What the columns of each dataset become, in words.';
COMMENT ON COLUMN mmdb.transform_overview.dataset_id IS 'Number of the dataset.';
COMMENT ON COLUMN mmdb.transform_overview.ordinal IS 'Place among the query''s output columns, from 0.';
COMMENT ON COLUMN mmdb.transform_overview.dataset IS 'Name of the dataset.';
COMMENT ON COLUMN mmdb.transform_overview.column_name IS 'Output column of its query.';
COMMENT ON COLUMN mmdb.transform_overview.role IS 'How the column is kept: numeric, categorical, label, key and others.';
COMMENT ON COLUMN mmdb.transform_overview.transform IS 'Kind of the transform; passthrough where values stay as they are.';
COMMENT ON COLUMN mmdb.transform_overview.meaning IS 'What it does, with what was fitted on the train rows.';
COMMENT ON COLUMN mmdb.transform_overview.missing IS 'Train rows that are NULL.';
COMMENT ON COLUMN mmdb.transform_overview.fill IS 'What stands for NULL.';
