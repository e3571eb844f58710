-- Labels and inputs by name, labels that are several 0 and 1, texts as tokens, registered functions.

ALTER TABLE mmdb.dataset ADD COLUMN targets jsonb;
ALTER TABLE mmdb.dataset ADD COLUMN inputs jsonb;
ALTER TABLE mmdb.dataset ADD COLUMN class_counts jsonb;
ALTER TABLE mmdb.dataset DROP CONSTRAINT dataset_task_check;
ALTER TABLE mmdb.dataset ADD CONSTRAINT dataset_task_check
CHECK (task IN ('classification', 'regression', 'multilabel'));
ALTER TABLE mmdb.dataset_column DROP CONSTRAINT dataset_column_kind_check;
ALTER TABLE mmdb.dataset_column ADD CONSTRAINT dataset_column_kind_check
CHECK (kind IN ('numeric', 'tensor', 'bytes', 'categorical', 'tokens', 'label'));
COMMENT ON COLUMN mmdb.dataset.input_shape IS 'Shape of one decoded row''s features; empty where there are several inputs.';
COMMENT ON COLUMN mmdb.dataset.classes IS 'The first label''s values in the order of the outputs; null where it is no classification.';
COMMENT ON COLUMN mmdb.dataset.targets IS 'Each label with its task, size and classes, in order; null in older datasets.';
COMMENT ON COLUMN mmdb.dataset.inputs IS 'Each input with its columns, shape, dtype and tokenizer; null where one takes every number.';
COMMENT ON COLUMN mmdb.dataset.class_counts IS 'Train rows of each class, by label; null in older datasets.';
COMMENT ON COLUMN mmdb.dataset_column.width IS 'Values that one row holds in this column: array elements, bytes, tokens, or 1.';
COMMENT ON COLUMN mmdb.dataset_column.categories IS 'Distinct values of a categorical text feature, sorted; each becomes one 0/1 feature.';

ALTER TABLE mmdb.definition ADD COLUMN named jsonb;
COMMENT ON COLUMN mmdb.definition.named IS 'Input shape and outputs by name, where there are several of either.';

CREATE TABLE mmdb.function (
    name text NOT NULL,
    kind text NOT NULL,
    target text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT function_pkey PRIMARY KEY (kind, name),
    CONSTRAINT function_kind_check CHECK (kind IN ('tokenizer', 'augmentation', 'loss', 'metric'))
);
COMMENT ON TABLE mmdb.function IS 'Allow-list of the Python callables that datasets and runs may name besides factories.';
COMMENT ON COLUMN mmdb.function.target IS 'package.module:callable.';
