-- What no other row says of lineage: predictions that were written to tables, where models came from.

CREATE TABLE mmdb.prediction (
    prediction_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    model_id bigint NOT NULL,
    schema_name text NOT NULL,
    table_name text NOT NULL,
    key_name text NOT NULL,
    query text NOT NULL,
    row_count bigint NOT NULL,
    seconds double precision NOT NULL,
    embedding text,
    author text NOT NULL DEFAULT '',
    predicted_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT prediction_pkey PRIMARY KEY (prediction_id),
    CONSTRAINT prediction_model_fkey FOREIGN KEY (model_id) REFERENCES mmdb.model (model_id)
);
COMMENT ON TABLE mmdb.prediction IS 'Predictions of a model that were written to a table.';
COMMENT ON COLUMN mmdb.prediction.schema_name IS 'Of the table that was written to, as table_name; the table may be gone since.';
COMMENT ON COLUMN mmdb.prediction.key_name IS 'The column of the query that names a row.';
COMMENT ON COLUMN mmdb.prediction.embedding IS 'Of embeddings: JSON of layer and normalized; null for predictions.';
COMMENT ON COLUMN mmdb.prediction.query IS 'The SELECT whose rows were predicted.';
COMMENT ON COLUMN mmdb.prediction.row_count IS 'Rows that were added.';
COMMENT ON COLUMN mmdb.prediction.author IS 'The session''s user; empty on DuckDB, which has none.';

CREATE TABLE mmdb.prediction_source (
    prediction_id bigint NOT NULL,
    ordinal integer NOT NULL,
    schema_name text,
    table_name text NOT NULL,
    column_name text,
    output_name text,
    via text,
    resolution text NOT NULL,
    CONSTRAINT prediction_source_pkey PRIMARY KEY (prediction_id, ordinal),
    CONSTRAINT prediction_source_prediction_fkey FOREIGN KEY (prediction_id) REFERENCES mmdb.prediction (prediction_id),
    CONSTRAINT prediction_source_resolution_check CHECK (resolution IN ('column', 'table', 'unresolved'))
);
COMMENT ON TABLE mmdb.prediction_source IS 'Tables and columns that a prediction''s query reads.';
COMMENT ON COLUMN mmdb.prediction_source.schema_name IS 'Null where it is not known.';
COMMENT ON COLUMN mmdb.prediction_source.table_name IS 'Empty where an output''s source could not be resolved at all.';
COMMENT ON COLUMN mmdb.prediction_source.column_name IS 'Null where only the table could be resolved.';
COMMENT ON COLUMN mmdb.prediction_source.output_name IS 'The output column it feeds; null where it only filters or joins.';
COMMENT ON COLUMN mmdb.prediction_source.via IS 'Views through which it is read, outermost first, joined by " > "; else null.';
COMMENT ON COLUMN mmdb.prediction_source.resolution IS 'column; table: no more is sure; unresolved: an output of unknown source.';

CREATE TABLE mmdb.model_origin (
    model_id bigint NOT NULL,
    kind text NOT NULL,
    source text NOT NULL,
    format text,
    digest bytea,
    happened_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT model_origin_pkey PRIMARY KEY (model_id),
    CONSTRAINT model_origin_model_fkey FOREIGN KEY (model_id) REFERENCES mmdb.model (model_id),
    CONSTRAINT model_origin_kind_check CHECK (kind IN ('import', 'pull', 'push'))
);
COMMENT ON TABLE mmdb.model_origin IS 'Where a model came from that was not made in this database.';
COMMENT ON COLUMN mmdb.model_origin.kind IS 'import: from a file; pull, push: from another database.';
COMMENT ON COLUMN mmdb.model_origin.source IS 'The file, or the database''s URL without its password.';
COMMENT ON COLUMN mmdb.model_origin.format IS 'Of the file; null for a database.';
COMMENT ON COLUMN mmdb.model_origin.digest IS 'BLAKE3-256 of the file; null where it was not read whole.';

CREATE TABLE mmdb.evaluation (
    evaluation_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    model_id bigint NOT NULL,
    dataset_id bigint,
    slice text,
    query text,
    row_count bigint NOT NULL,
    seconds double precision NOT NULL,
    author text NOT NULL DEFAULT '',
    evaluated_at timestamptz NOT NULL DEFAULT now(),
    figures jsonb,
    CONSTRAINT evaluation_pkey PRIMARY KEY (evaluation_id),
    CONSTRAINT evaluation_model_fkey FOREIGN KEY (model_id) REFERENCES mmdb.model (model_id),
    CONSTRAINT evaluation_dataset_fkey FOREIGN KEY (dataset_id) REFERENCES mmdb.dataset (dataset_id),
    CONSTRAINT evaluation_rows_check CHECK (dataset_id IS NOT NULL OR query IS NOT NULL)
);
COMMENT ON TABLE mmdb.evaluation IS 'Calls of evaluate and importance: a model on a dataset, or on the rows of a query.';
COMMENT ON COLUMN mmdb.evaluation.slice IS 'Of the dataset; null where all its rows were measured, and of a query.';
COMMENT ON COLUMN mmdb.evaluation.query IS 'The SELECT whose rows were measured; null for a dataset.';
COMMENT ON COLUMN mmdb.evaluation.row_count IS 'Rows that were measured.';
COMMENT ON COLUMN mmdb.evaluation.author IS 'The session''s user; empty on DuckDB, which has none.';
COMMENT ON COLUMN mmdb.evaluation.figures IS 'What a report draws: confusion, curves, residuals, the worst rows; or columns by importance.';

CREATE TABLE mmdb.evaluation_metric (
    evaluation_id bigint NOT NULL,
    ordinal integer NOT NULL,
    metric text NOT NULL,
    by_name text,
    by_value text,
    row_count bigint NOT NULL,
    value double precision NOT NULL,
    low double precision,
    high double precision,
    CONSTRAINT evaluation_metric_pkey PRIMARY KEY (evaluation_id, ordinal),
    CONSTRAINT evaluation_metric_evaluation_fkey
    FOREIGN KEY (evaluation_id) REFERENCES mmdb.evaluation (evaluation_id)
);
COMMENT ON TABLE mmdb.evaluation_metric IS 'What evaluate measured: of all rows, and of those with a value of a column.';
COMMENT ON COLUMN mmdb.evaluation_metric.ordinal IS 'Place in the answer: all rows first.';
COMMENT ON COLUMN mmdb.evaluation_metric.by_name IS 'The column by whose values rows were told apart; null for all rows.';
COMMENT ON COLUMN mmdb.evaluation_metric.by_value IS 'Its value in these rows.';
COMMENT ON COLUMN mmdb.evaluation_metric.row_count IS 'Rows that were measured.';
COMMENT ON COLUMN mmdb.evaluation_metric.low IS 'End of the 95 % interval of the value, as high; null if not asked for.';

CREATE TABLE mmdb.evaluation_source (
    evaluation_id bigint NOT NULL,
    ordinal integer NOT NULL,
    schema_name text,
    table_name text NOT NULL,
    column_name text,
    output_name text,
    via text,
    resolution text NOT NULL,
    CONSTRAINT evaluation_source_pkey PRIMARY KEY (evaluation_id, ordinal),
    CONSTRAINT evaluation_source_evaluation_fkey
    FOREIGN KEY (evaluation_id) REFERENCES mmdb.evaluation (evaluation_id),
    CONSTRAINT evaluation_source_resolution_check CHECK (resolution IN ('column', 'table', 'unresolved'))
);
COMMENT ON TABLE mmdb.evaluation_source IS 'Tables and columns that an evaluation''s query reads, as mmdb.prediction_source has them.';

CREATE TABLE mmdb.drift_check (
    model_id bigint NOT NULL,
    checked_at timestamptz NOT NULL,
    ordinal integer NOT NULL,
    column_name text NOT NULL,
    role text NOT NULL,
    row_count bigint NOT NULL,
    psi double precision,
    distance double precision,
    p_value double precision NOT NULL,
    nulls_before double precision,
    nulls_now double precision,
    unseen double precision,
    value_before double precision,
    value_now double precision,
    drifted boolean NOT NULL,
    author text NOT NULL DEFAULT '',
    CONSTRAINT drift_check_pkey PRIMARY KEY (model_id, checked_at, ordinal),
    CONSTRAINT drift_check_model_fkey FOREIGN KEY (model_id) REFERENCES mmdb.model (model_id),
    CONSTRAINT drift_check_role_check CHECK (role IN ('feature', 'prediction', 'label', 'relation', 'metric'))
);
COMMENT ON TABLE mmdb.drift_check IS 'What drift found, column by column: the last 100 calls of each model.';
COMMENT ON COLUMN mmdb.drift_check.checked_at IS 'When the call ended, which tells calls apart.';
COMMENT ON COLUMN mmdb.drift_check.ordinal IS 'Place in the answer.';
COMMENT ON COLUMN mmdb.drift_check.row_count IS 'Rows of the query.';
COMMENT ON COLUMN mmdb.drift_check.value_before IS 'Of a metric: on the rows that are held out; value_now: on those of the query.';
COMMENT ON COLUMN mmdb.drift_check.author IS 'The session''s user; empty on DuckDB, which has none.';
