-- Columns that models fill in new rows.

CREATE OR REPLACE VIEW mmdb.scoring_overview AS
SELECT
    s.schema_name,
    s.table_name,
    s.column_name,
    s.key_name,
    s.model,
    s.embedding,
    s.owner,
    s.created_at,
    cast(coalesce(sum(f.row_count), 0) AS bigint) AS unscored,
    max(f.failed_at) AS last_failure,
    s.scoring_id
FROM mmdb.scoring AS s
LEFT JOIN mmdb.scoring_failure AS f ON s.scoring_id = f.scoring_id
GROUP BY
    s.schema_name, s.table_name, s.column_name, s.key_name, s.model, s.embedding, s.owner, s.created_at,
    s.scoring_id;
COMMENT ON VIEW mmdb.scoring_overview IS 'Columns that models fill in new rows.';
COMMENT ON COLUMN mmdb.scoring_overview.schema_name IS 'Schema of the table.';
COMMENT ON COLUMN mmdb.scoring_overview.table_name IS 'The table, as it was called.';
COMMENT ON COLUMN mmdb.scoring_overview.column_name IS 'The column that is filled.';
COMMENT ON COLUMN mmdb.scoring_overview.key_name IS 'The column by which new rows are found again.';
COMMENT ON COLUMN mmdb.scoring_overview.model IS 'The model, as it was named.';
COMMENT ON COLUMN mmdb.scoring_overview.embedding IS 'Of embeddings: JSON of layer, normalized and type; null for predictions.';
COMMENT ON COLUMN mmdb.scoring_overview.owner IS 'The role that asked for it.';
COMMENT ON COLUMN mmdb.scoring_overview.created_at IS 'When it was asked for.';
COMMENT ON COLUMN mmdb.scoring_overview.unscored IS 'Rows that were left without a prediction.';
COMMENT ON COLUMN mmdb.scoring_overview.last_failure IS 'When the last of them was inserted.';
COMMENT ON COLUMN mmdb.scoring_overview.scoring_id IS 'Number of the record.';
