-- Columns that a dataset reads: their schema, the views between, and how sure it is.

ALTER TABLE mmdb.dataset_source ADD COLUMN schema_name text;
ALTER TABLE mmdb.dataset_source ADD COLUMN via text;
ALTER TABLE mmdb.dataset_source ADD COLUMN resolution text;
COMMENT ON COLUMN mmdb.dataset_source.schema_name IS 'Null in datasets older than this column, and where it is not known.';
COMMENT ON COLUMN mmdb.dataset_source.via IS 'Views through which it is read, outermost first, joined by " > "; else null.';
COMMENT ON COLUMN mmdb.dataset_source.resolution IS 'column; table: no more is sure; unresolved: of an unknown source; null in older ones.';
COMMENT ON COLUMN mmdb.dataset_source.table_name IS 'Empty where an output''s source could not be resolved at all.';

-- Names were kept as they were written in the query; one dot parts the schema from the table.
UPDATE mmdb.dataset_source
SET schema_name = split_part(table_name, '.', 1), table_name = split_part(table_name, '.', 2)
WHERE table_name LIKE '%.%' AND table_name NOT LIKE '%.%.%';

CREATE INDEX dataset_source_column_idx ON mmdb.dataset_source (table_name, column_name);
CREATE INDEX prediction_model_idx ON mmdb.prediction (model_id);
CREATE INDEX prediction_table_idx ON mmdb.prediction (table_name);
CREATE INDEX prediction_source_column_idx ON mmdb.prediction_source (table_name, column_name);

ALTER TABLE mmdb.prediction ALTER COLUMN author SET DEFAULT session_user;
