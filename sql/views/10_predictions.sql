-- What went out to tables, and what came in from elsewhere.

CREATE OR REPLACE VIEW mmdb.prediction_overview AS
SELECT
    p.prediction_id,
    m.name AS model,
    m.version,
    p.schema_name,
    p.table_name,
    p.key_name,
    p.query,
    p.row_count,
    p.seconds,
    p.embedding,
    p.author,
    p.predicted_at
FROM mmdb.prediction AS p
INNER JOIN mmdb.model AS m ON p.model_id = m.model_id;
COMMENT ON VIEW mmdb.prediction_overview
IS 'Predictions and embeddings that were written to tables, one row a call of predict_into or embed_into.';
COMMENT ON COLUMN mmdb.prediction_overview.prediction_id IS 'Number of the call.';
COMMENT ON COLUMN mmdb.prediction_overview.model IS 'Name of the model that predicted.';
COMMENT ON COLUMN mmdb.prediction_overview.version IS 'Its version.';
COMMENT ON COLUMN mmdb.prediction_overview.schema_name IS 'Schema of the table that was written to.';
COMMENT ON COLUMN mmdb.prediction_overview.table_name IS 'The table that was written to; it may be gone since.';
COMMENT ON COLUMN mmdb.prediction_overview.key_name IS 'The column that names a row, in the query and in the table.';
COMMENT ON COLUMN mmdb.prediction_overview.query IS 'The SELECT whose rows were predicted.';
COMMENT ON COLUMN mmdb.prediction_overview.row_count IS 'Rows that were added.';
COMMENT ON COLUMN mmdb.prediction_overview.seconds IS 'Seconds from the call to the last row.';
COMMENT ON COLUMN mmdb.prediction_overview.embedding IS 'Of embeddings: JSON of layer and normalized; null for predictions.';
COMMENT ON COLUMN mmdb.prediction_overview.author IS 'The session''s user; empty on DuckDB, which has none.';
COMMENT ON COLUMN mmdb.prediction_overview.predicted_at IS 'When; the rows in the table have the same predicted_at.';

CREATE OR REPLACE VIEW mmdb.evaluation_overview AS
SELECT
    e.evaluation_id,
    v.ordinal,
    m.name AS model,
    m.version,
    d.name AS dataset,
    e.slice,
    e.query,
    v.metric,
    v.by_name,
    v.by_value,
    v.row_count,
    v.value,
    v.low,
    v.high,
    e.author,
    e.evaluated_at
FROM mmdb.evaluation AS e
INNER JOIN mmdb.evaluation_metric AS v ON e.evaluation_id = v.evaluation_id
INNER JOIN mmdb.model AS m ON e.model_id = m.model_id
LEFT JOIN mmdb.dataset AS d ON e.dataset_id = d.dataset_id;
COMMENT ON VIEW mmdb.evaluation_overview
IS 'Metrics that evaluate measured, one row each: of all rows, or of those with a value of a column.';
COMMENT ON COLUMN mmdb.evaluation_overview.evaluation_id IS 'Number of the call.';
COMMENT ON COLUMN mmdb.evaluation_overview.ordinal IS 'Place in its answer: all rows first.';
COMMENT ON COLUMN mmdb.evaluation_overview.model IS 'Name of the model that was measured.';
COMMENT ON COLUMN mmdb.evaluation_overview.version IS 'Its version.';
COMMENT ON COLUMN mmdb.evaluation_overview.dataset IS 'The dataset whose rows were measured; null for a query.';
COMMENT ON COLUMN mmdb.evaluation_overview.slice IS 'Slice of the dataset; null where all its rows were measured, and for a query.';
COMMENT ON COLUMN mmdb.evaluation_overview.query IS 'The SELECT whose rows were measured; null for a dataset.';
COMMENT ON COLUMN mmdb.evaluation_overview.metric IS 'Name of the metric.';
COMMENT ON COLUMN mmdb.evaluation_overview.by_name IS 'Column by whose values rows were told apart; null for all rows.';
COMMENT ON COLUMN mmdb.evaluation_overview.by_value IS 'Its value in these rows.';
COMMENT ON COLUMN mmdb.evaluation_overview.row_count IS 'Rows that were measured.';
COMMENT ON COLUMN mmdb.evaluation_overview.value IS 'Value of the metric.';
COMMENT ON COLUMN mmdb.evaluation_overview.low IS 'Lower end of the 95 % interval of the value; null where none was asked for.';
COMMENT ON COLUMN mmdb.evaluation_overview.high IS 'Upper end of the 95 % interval of the value; null where none was asked for.';
COMMENT ON COLUMN mmdb.evaluation_overview.author IS 'The session''s user; empty on DuckDB, which has none.';
COMMENT ON COLUMN mmdb.evaluation_overview.evaluated_at IS 'When.';

CREATE OR REPLACE VIEW mmdb.group_overview AS
SELECT
    m.name AS model,
    m.version,
    min(v.ordinal) AS code,
    v.by_name AS column_name,
    v.by_value AS group_value,
    max(v.row_count) FILTER (WHERE e.slice = 'train') AS train_rows,
    max(v.value) FILTER (WHERE e.slice = 'train') AS train_loss,
    max(v.row_count) FILTER (WHERE e.slice = 'validation') AS held_out_rows,
    max(v.value) FILTER (WHERE e.slice = 'validation' AND v.metric = 'loss') AS held_out_loss,
    r.metric,
    max(v.value) FILTER (WHERE e.slice = 'validation' AND v.metric = r.metric) AS value,
    r.maximize
FROM mmdb.evaluation AS e
INNER JOIN mmdb.evaluation_metric AS v ON e.evaluation_id = v.evaluation_id
INNER JOIN mmdb.model AS m ON e.model_id = m.model_id
LEFT JOIN mmdb.candidate AS c ON m.candidate_id = c.candidate_id
LEFT JOIN mmdb.run AS r ON c.run_id = r.run_id
WHERE e.slice IN ('train', 'validation') AND v.by_name IS NOT NULL
GROUP BY m.name, m.version, v.by_name, v.by_value, r.metric, r.maximize;
COMMENT ON VIEW mmdb.group_overview
IS 'What each group of a model per group was measured by when it was saved, one row a group.';
COMMENT ON COLUMN mmdb.group_overview.model IS 'Name of the model.';
COMMENT ON COLUMN mmdb.group_overview.version IS 'Its version.';
COMMENT ON COLUMN mmdb.group_overview.code IS 'Place of the group''s network among the rows of the model''s tensors.';
COMMENT ON COLUMN mmdb.group_overview.column_name IS 'The column whose values are the groups.';
COMMENT ON COLUMN mmdb.group_overview.group_value IS 'Its value in the group; null of the group of NULL.';
COMMENT ON COLUMN mmdb.group_overview.train_rows IS 'Rows that the group learned from.';
COMMENT ON COLUMN mmdb.group_overview.train_loss IS 'Mean loss of these rows, by the weights that were saved.';
COMMENT ON COLUMN mmdb.group_overview.held_out_rows IS 'Rows of the group that are held out; null where there are none.';
COMMENT ON COLUMN mmdb.group_overview.held_out_loss IS 'Mean loss of these rows.';
COMMENT ON COLUMN mmdb.group_overview.metric IS 'What the run compares its candidates by.';
COMMENT ON COLUMN mmdb.group_overview.value IS 'Its value on the rows held out; null where it is not defined on them.';
COMMENT ON COLUMN mmdb.group_overview.maximize IS 'Whether more of the metric is better.';

CREATE OR REPLACE VIEW mmdb.evaluation_figures AS
SELECT
    e.evaluation_id,
    m.name AS model,
    m.version,
    d.name AS dataset,
    e.slice,
    e.query,
    e.row_count,
    e.figures,
    e.author,
    e.evaluated_at
FROM mmdb.evaluation AS e
INNER JOIN mmdb.model AS m ON e.model_id = m.model_id
LEFT JOIN mmdb.dataset AS d ON e.dataset_id = d.dataset_id
WHERE e.figures IS NOT NULL;
COMMENT ON VIEW mmdb.evaluation_figures IS 'Figures that reports draw of evaluate and importance, one row a call.';
COMMENT ON COLUMN mmdb.evaluation_figures.evaluation_id IS 'Number of the call.';
COMMENT ON COLUMN mmdb.evaluation_figures.model IS 'Name of the model that was measured.';
COMMENT ON COLUMN mmdb.evaluation_figures.version IS 'Its version.';
COMMENT ON COLUMN mmdb.evaluation_figures.dataset IS 'The dataset whose rows were measured; null for a query.';
COMMENT ON COLUMN mmdb.evaluation_figures.slice IS 'Slice of the dataset; null where all its rows were measured, and for a query.';
COMMENT ON COLUMN mmdb.evaluation_figures.query IS 'The SELECT whose rows were measured; null for a dataset.';
COMMENT ON COLUMN mmdb.evaluation_figures.row_count IS 'Rows that were measured.';
COMMENT ON COLUMN mmdb.evaluation_figures.figures IS 'Confusion, curves, residuals and the worst rows; of importance the columns.';
COMMENT ON COLUMN mmdb.evaluation_figures.author IS 'The session''s user; empty on DuckDB, which has none.';
COMMENT ON COLUMN mmdb.evaluation_figures.evaluated_at IS 'When.';

CREATE OR REPLACE VIEW mmdb.origin_overview AS
SELECT
    m.name AS model,
    m.version,
    o.kind,
    o.source,
    o.format,
    o.happened_at
FROM mmdb.model_origin AS o
INNER JOIN mmdb.model AS m ON o.model_id = m.model_id;
COMMENT ON VIEW mmdb.origin_overview IS 'Models that were not made in this database, and where they came from.';
COMMENT ON COLUMN mmdb.origin_overview.model IS 'Name of the model.';
COMMENT ON COLUMN mmdb.origin_overview.version IS 'Its version.';
COMMENT ON COLUMN mmdb.origin_overview.kind IS 'import: from a file; pull, push: from another database.';
COMMENT ON COLUMN mmdb.origin_overview.source IS 'The file or folder, or the database''s URL without its password.';
COMMENT ON COLUMN mmdb.origin_overview.format IS 'Of the file; null for a database.';
COMMENT ON COLUMN mmdb.origin_overview.happened_at IS 'When it came in.';

CREATE OR REPLACE VIEW mmdb.drift_overview AS
WITH told AS (
    SELECT
        t.*,
        max(CASE WHEN t.drifted THEN NULL ELSE t.checked_at END)
            OVER (PARTITION BY t.model_id, t.role, t.column_name ORDER BY t.checked_at) AS still_at
    FROM mmdb.drift_check AS t
)

SELECT
    m.name AS model,
    m.version,
    t.checked_at,
    t.ordinal,
    t.column_name,
    t.role,
    t.row_count,
    t.psi,
    t.distance,
    t.p_value,
    t.nulls_before,
    t.nulls_now,
    t.unseen,
    t.value_before,
    t.value_now,
    t.drifted,
    CASE
        WHEN t.drifted
            THEN
                min(CASE WHEN t.drifted THEN t.checked_at END)
                    OVER (PARTITION BY t.model_id, t.role, t.column_name, t.still_at)
    END AS drifted_since,
    t.author
FROM told AS t
INNER JOIN mmdb.model AS m ON t.model_id = m.model_id;
COMMENT ON VIEW mmdb.drift_overview IS 'What drift found of the last 100 calls of each model, one row a column.';
COMMENT ON COLUMN mmdb.drift_overview.model IS 'Name of the model.';
COMMENT ON COLUMN mmdb.drift_overview.version IS 'Its version.';
COMMENT ON COLUMN mmdb.drift_overview.checked_at IS 'When the call ended, which tells calls apart.';
COMMENT ON COLUMN mmdb.drift_overview.ordinal IS 'Place in its answer.';
COMMENT ON COLUMN mmdb.drift_overview.column_name IS 'The column, or the name of the metric.';
COMMENT ON COLUMN mmdb.drift_overview.role IS 'feature, prediction, label, relation of label and features, or metric.';
COMMENT ON COLUMN mmdb.drift_overview.row_count IS 'Rows of the query.';
COMMENT ON COLUMN mmdb.drift_overview.psi IS 'Population stability index; null of a metric.';
COMMENT ON COLUMN mmdb.drift_overview.distance IS 'From 0 to 1: of Kolmogorov and Smirnov, or of Jensen and Shannon; null of a metric.';
COMMENT ON COLUMN mmdb.drift_overview.p_value IS 'How probable as much is by chance, corrected for the number of columns.';
COMMENT ON COLUMN mmdb.drift_overview.nulls_before IS 'Share of NULLs in the rows that the model learned from.';
COMMENT ON COLUMN mmdb.drift_overview.nulls_now IS 'Share of NULLs in the rows of the query.';
COMMENT ON COLUMN mmdb.drift_overview.unseen IS 'Share of texts that were not seen before.';
COMMENT ON COLUMN mmdb.drift_overview.value_before IS 'The metric on the rows that are held out.';
COMMENT ON COLUMN mmdb.drift_overview.value_now IS 'The metric on the rows of the query.';
COMMENT ON COLUMN mmdb.drift_overview.drifted IS 'Whether it is more than chance and more than a trifle.';
COMMENT ON COLUMN mmdb.drift_overview.drifted_since IS 'First of the calls in a row that found it; null where this one did not.';
COMMENT ON COLUMN mmdb.drift_overview.author IS 'The session''s user; empty on DuckDB, which has none.';
