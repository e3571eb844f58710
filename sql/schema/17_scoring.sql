-- Tables whose new rows a model predicts, and the rows that it could not.

CREATE TABLE mmdb.scoring (
    scoring_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    schema_name text NOT NULL,
    table_name text NOT NULL,
    column_name text NOT NULL,
    key_name text NOT NULL,
    model text NOT NULL,
    embedding text,
    owner text,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT scoring_pkey PRIMARY KEY (scoring_id)
);
COMMENT ON TABLE mmdb.scoring IS 'Columns that a model fills in new rows of a table.';
COMMENT ON COLUMN mmdb.scoring.schema_name IS 'Of the table, as table_name, when it was asked for.';
COMMENT ON COLUMN mmdb.scoring.key_name IS 'The column by which new rows are found again.';
COMMENT ON COLUMN mmdb.scoring.model IS 'As it was named: each insert looks up which version that is.';
COMMENT ON COLUMN mmdb.scoring.embedding IS 'Of embeddings: JSON of layer, normalized and type; null for predictions.';
COMMENT ON COLUMN mmdb.scoring.owner IS 'The role that asked for it.';

CREATE TABLE mmdb.scoring_failure (
    scoring_failure_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    scoring_id bigint NOT NULL,
    row_count bigint NOT NULL,
    row_key text,
    sqlstate text NOT NULL,
    message text NOT NULL,
    failed_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT scoring_failure_pkey PRIMARY KEY (scoring_failure_id),
    CONSTRAINT scoring_failure_scoring_fkey FOREIGN KEY (scoring_id) REFERENCES mmdb.scoring (scoring_id)
);
COMMENT ON TABLE mmdb.scoring_failure IS 'New rows that were left without a prediction, and why.';
COMMENT ON COLUMN mmdb.scoring_failure.row_key IS 'Of the first of them; null where it is not known.';
