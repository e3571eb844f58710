-- Datasets freeze the rows of a query, shuffled into partitions of packed blocks.

CREATE TABLE mmdb.dataset (
    dataset_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    name text NOT NULL,
    query text NOT NULL,
    label text NOT NULL,
    task text NOT NULL,
    seed bigint NOT NULL,
    partitions integer NOT NULL,
    validation double precision NOT NULL,
    row_count bigint NOT NULL,
    byte_count bigint NOT NULL,
    content_hash bytea NOT NULL,
    input_shape integer[] NOT NULL,
    classes jsonb,
    options jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    dropped_at timestamptz,
    targets jsonb,
    inputs jsonb,
    class_counts jsonb,
    owner text,
    version integer NOT NULL DEFAULT 1,
    origin_id bigint,
    changes jsonb,
    CONSTRAINT dataset_pkey PRIMARY KEY (dataset_id),
    CONSTRAINT dataset_task_check CHECK (task IN ('classification', 'regression', 'multilabel', 'next_token'))
);
COMMENT ON TABLE mmdb.dataset IS 'A registered query, fixed to the rows it returned on that day.';
COMMENT ON COLUMN mmdb.dataset.validation IS 'Share of the rows held out for validation, 0 to 1.';
COMMENT ON COLUMN mmdb.dataset.content_hash IS 'BLAKE3-256 over the partitions'' hashes: equal rows and options give an equal hash.';
COMMENT ON COLUMN mmdb.dataset.input_shape IS 'Shape of one decoded row''s features; empty where there are several inputs.';
COMMENT ON COLUMN mmdb.dataset.classes IS 'The first label''s values in the order of the outputs; null where it is no classification.';
COMMENT ON COLUMN mmdb.dataset.dropped_at IS 'When its blocks were deleted; null while it can be trained on.';
COMMENT ON COLUMN mmdb.dataset.targets IS 'Each label with its task, size and classes, in order.';
COMMENT ON COLUMN mmdb.dataset.inputs IS 'Each input with its columns, shape, dtype and tokenizer; null where one takes every number.';
COMMENT ON COLUMN mmdb.dataset.class_counts IS 'Train rows of each class, by label.';
COMMENT ON COLUMN mmdb.dataset.owner IS 'The role whose team it belongs to; null, as on DuckDB: everybody''s.';
COMMENT ON COLUMN mmdb.dataset.version IS 'How often its query has been read anew, from 1; 0: a sample of a version, to retrain on.';
COMMENT ON COLUMN mmdb.dataset.origin_id IS 'Its first version; null of that one.';
COMMENT ON COLUMN mmdb.dataset.changes
IS 'Rows added, changed and deleted since the version before, and how far a growing column had come.';

CREATE TABLE mmdb.dataset_column (
    dataset_id bigint NOT NULL,
    ordinal integer NOT NULL,
    name text NOT NULL,
    kind text NOT NULL,
    width integer NOT NULL,
    CONSTRAINT dataset_column_pkey PRIMARY KEY (dataset_id, ordinal),
    CONSTRAINT dataset_column_dataset_fkey FOREIGN KEY (dataset_id) REFERENCES mmdb.dataset (dataset_id),
    CONSTRAINT dataset_column_kind_check CHECK (
        kind IN (
            'numeric', 'tensor', 'bytes', 'categorical', 'tokens', 'label', 'weight', 'key', 'excluded', 'dropped'
        )
    )
);
COMMENT ON TABLE mmdb.dataset_column IS 'The output columns of a dataset''s query, in order.';
COMMENT ON COLUMN mmdb.dataset_column.width IS 'Values that a row holds in this column: array elements, bytes, tokens, or 1; 0: not kept.';

CREATE TABLE mmdb.transform (
    dataset_id bigint NOT NULL,
    ordinal integer NOT NULL,
    kind text NOT NULL,
    source text NOT NULL,
    parameters jsonb NOT NULL,
    statistics jsonb NOT NULL,
    categories jsonb,
    CONSTRAINT transform_pkey PRIMARY KEY (dataset_id, ordinal),
    CONSTRAINT transform_dataset_fkey FOREIGN KEY (dataset_id) REFERENCES mmdb.dataset (dataset_id)
);
COMMENT ON TABLE mmdb.transform IS 'What the values of a dataset''s column become, fitted on its train rows.';
COMMENT ON COLUMN mmdb.transform.source IS 'What the values are: number, moment, clock, span (seconds, in UTC), text or picture.';
COMMENT ON COLUMN mmdb.transform.parameters IS 'As create_dataset was told.';
COMMENT ON COLUMN mmdb.transform.statistics IS 'Of the train rows: missing counts NULLs, fill takes their place.';
COMMENT ON COLUMN mmdb.transform.categories IS 'Of a text: the values that have a code or 0/1 number of their own, sorted.';

CREATE TABLE mmdb.dataset_source (
    dataset_id bigint NOT NULL,
    ordinal integer NOT NULL,
    table_name text NOT NULL,
    column_name text,
    output_name text,
    schema_name text,
    via text,
    resolution text,
    CONSTRAINT dataset_source_pkey PRIMARY KEY (dataset_id, ordinal),
    CONSTRAINT dataset_source_dataset_fkey FOREIGN KEY (dataset_id) REFERENCES mmdb.dataset (dataset_id)
);
COMMENT ON TABLE mmdb.dataset_source IS 'Tables and columns that a dataset''s query reads.';
COMMENT ON COLUMN mmdb.dataset_source.column_name IS 'Null where only the table could be resolved.';
COMMENT ON COLUMN mmdb.dataset_source.output_name IS 'The output column it feeds; null where it only filters or joins.';
COMMENT ON COLUMN mmdb.dataset_source.schema_name IS 'Null where it is not known.';
COMMENT ON COLUMN mmdb.dataset_source.via IS 'Views through which it is read, outermost first, joined by " > "; else null.';
COMMENT ON COLUMN mmdb.dataset_source.resolution IS 'column; table: no more is sure; unresolved: of an unknown source.';
COMMENT ON COLUMN mmdb.dataset_source.table_name IS 'Empty where an output''s source could not be resolved at all.';

CREATE TABLE mmdb.partition (
    part_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    dataset_id bigint NOT NULL,
    ordinal integer NOT NULL,
    role text NOT NULL,
    row_count bigint NOT NULL,
    byte_count bigint NOT NULL,
    content_hash bytea NOT NULL,
    CONSTRAINT partition_pkey PRIMARY KEY (part_id),
    CONSTRAINT partition_dataset_fkey FOREIGN KEY (dataset_id) REFERENCES mmdb.dataset (dataset_id),
    CONSTRAINT partition_role_check CHECK (role IN ('train', 'validation', 'test'))
);
COMMENT ON TABLE mmdb.partition IS 'Shuffled slices of a dataset: train slices 0..P-1, and the validation slice.';
COMMENT ON COLUMN mmdb.partition.content_hash IS 'BLAKE3-256 over the blocks'' hashes and the decoding; the key of the node''s cache.';

CREATE TABLE mmdb.block (
    part_id bigint NOT NULL,
    ordinal integer NOT NULL,
    row_count integer NOT NULL,
    digest bytea NOT NULL,
    data bytea NOT NULL,
    row_hashes bytea,
    CONSTRAINT block_pkey PRIMARY KEY (part_id, ordinal),
    CONSTRAINT block_partition_fkey FOREIGN KEY (part_id) REFERENCES mmdb.partition (part_id)
);
COMMENT ON TABLE mmdb.block IS 'Packed runs of a partition''s rows.';
COMMENT ON COLUMN mmdb.block.digest IS 'BLAKE3-256 of data.';
COMMENT ON COLUMN mmdb.block.data IS 'One Arrow IPC stream with one record batch.';
COMMENT ON COLUMN mmdb.block.row_hashes
IS 'Hashes of 8 bytes by which rows are known again: of each row''s values, then of each row''s key if it has one.';

CREATE TABLE mmdb.shared_block (
    part_id bigint NOT NULL,
    ordinal integer NOT NULL,
    source_id bigint NOT NULL,
    source_ordinal integer NOT NULL,
    masked integer[],
    CONSTRAINT shared_block_pkey PRIMARY KEY (part_id, ordinal),
    CONSTRAINT shared_block_partition_fkey FOREIGN KEY (part_id) REFERENCES mmdb.partition (part_id)
);
COMMENT ON TABLE mmdb.shared_block IS 'The blocks of a partition that reads blocks of other partitions, all of them in order.';
COMMENT ON COLUMN mmdb.shared_block.source_id IS 'The partition that keeps the block.';
COMMENT ON COLUMN mmdb.shared_block.source_ordinal IS 'Its place there.';
COMMENT ON COLUMN mmdb.shared_block.masked IS 'Places in the block, from 0, of rows that are left out; null: none.';
