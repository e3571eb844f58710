-- Labels and inputs by name, labels that are several 0 and 1, texts as tokens, registered functions.
-- DuckDB cannot change a CHECK: the two tables are made anew.

ALTER TABLE mmdb.dataset RENAME TO dataset_before;
CREATE TABLE mmdb.dataset (
    dataset_id bigint NOT NULL DEFAULT nextval('mmdb.dataset_dataset_id_seq'),
    name text NOT NULL,
    query text NOT NULL,
    label text NOT NULL,
    task text NOT NULL,
    seed bigint NOT NULL,
    partitions integer NOT NULL,
    validation double NOT NULL,
    row_count bigint NOT NULL,
    byte_count bigint NOT NULL,
    content_hash blob NOT NULL,
    input_shape integer[] NOT NULL,
    classes json,
    options json NOT NULL,
    created_at timestamptz NOT NULL DEFAULT current_timestamp,
    dropped_at timestamptz,
    targets json,
    inputs json,
    class_counts json,
    CONSTRAINT dataset_pkey PRIMARY KEY (dataset_id),
    CONSTRAINT dataset_task_check CHECK (task IN ('classification', 'regression', 'multilabel'))
);
COMMENT ON TABLE mmdb.dataset IS 'A registered query, fixed to the rows it returned on that day.';
COMMENT ON COLUMN mmdb.dataset.validation IS 'Share of the rows held out for validation, 0 to 1.';
COMMENT ON COLUMN mmdb.dataset.content_hash IS 'BLAKE3-256 over the partitions'' hashes: equal rows and options give an equal hash.';
COMMENT ON COLUMN mmdb.dataset.input_shape IS 'Shape of one decoded row''s features; empty where there are several inputs.';
COMMENT ON COLUMN mmdb.dataset.classes IS 'The first label''s values in the order of the outputs; null where it is no classification.';
COMMENT ON COLUMN mmdb.dataset.dropped_at IS 'When its blocks were deleted; null while it can be trained on.';
COMMENT ON COLUMN mmdb.dataset.targets IS 'Each label with its task, size and classes, in order; null in older datasets.';
COMMENT ON COLUMN mmdb.dataset.inputs IS 'Each input with its columns, shape, dtype and tokenizer; null where one takes every number.';
COMMENT ON COLUMN mmdb.dataset.class_counts IS 'Train rows of each class, by label; null in older datasets.';
INSERT INTO mmdb.dataset (
    dataset_id, name, query, label, task, seed, partitions, validation, row_count, byte_count, content_hash,
    input_shape, classes, options, created_at, dropped_at
)
SELECT
    c.dataset_id,
    c.name,
    c.query,
    c.label,
    c.task,
    c.seed,
    c.partitions,
    c.validation,
    c.row_count,
    c.byte_count,
    c.content_hash,
    c.input_shape,
    c.classes,
    c.options,
    c.created_at,
    c.dropped_at
FROM mmdb.dataset_before AS c
ORDER BY c.dataset_id;
DROP TABLE mmdb.dataset_before;

ALTER TABLE mmdb.dataset_column RENAME TO dataset_column_before;
CREATE TABLE mmdb.dataset_column (
    dataset_id bigint NOT NULL,
    ordinal integer NOT NULL,
    name text NOT NULL,
    kind text NOT NULL,
    width integer NOT NULL,
    categories json,
    CONSTRAINT dataset_column_pkey PRIMARY KEY (dataset_id, ordinal),
    CONSTRAINT dataset_column_kind_check CHECK (kind IN ('numeric', 'tensor', 'bytes', 'categorical', 'tokens', 'label'))
);
COMMENT ON TABLE mmdb.dataset_column IS 'The output columns of a dataset''s query, in order.';
COMMENT ON COLUMN mmdb.dataset_column.width IS 'Values that one row holds in this column: array elements, bytes, tokens, or 1.';
COMMENT ON COLUMN mmdb.dataset_column.categories IS 'Distinct values of a categorical text feature, sorted; each becomes one 0/1 feature.';
INSERT INTO mmdb.dataset_column (
    dataset_id, ordinal, name, kind, width, categories
)
SELECT
    c.dataset_id,
    c.ordinal,
    c.name,
    c.kind,
    c.width,
    c.categories
FROM mmdb.dataset_column_before AS c
ORDER BY c.dataset_id, c.ordinal;
DROP TABLE mmdb.dataset_column_before;

ALTER TABLE mmdb.definition ADD COLUMN named json;
COMMENT ON COLUMN mmdb.definition.named IS 'Input shape and outputs by name, where there are several of either.';

CREATE TABLE mmdb.function (
    name text NOT NULL,
    kind text NOT NULL,
    target text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT current_timestamp,
    CONSTRAINT function_pkey PRIMARY KEY (kind, name),
    CONSTRAINT function_kind_check CHECK (kind IN ('tokenizer', 'augmentation', 'loss', 'metric'))
);
COMMENT ON TABLE mmdb.function IS 'Allow-list of the Python callables that datasets and runs may name besides factories.';
COMMENT ON COLUMN mmdb.function.target IS 'package.module:callable.';
