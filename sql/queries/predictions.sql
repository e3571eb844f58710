-- name: add_prediction
-- Record that a model's predictions were written to a table.
INSERT INTO mmdb.prediction (
    model_id, schema_name, table_name, key_name, query, row_count, seconds
)
VALUES (
    %(model_id)s::bigint,
    %(schema_name)s::text,
    %(table_name)s::text,
    %(key_name)s::text,
    %(query)s::text,
    %(row_count)s::bigint,
    %(seconds)s::double precision
)
RETURNING prediction_id;

-- name: add_source
-- Record a table or column that a prediction's query reads.
INSERT INTO mmdb.prediction_source (
    prediction_id, ordinal, schema_name, table_name, column_name, output_name, via, resolution
)
VALUES (
    %(prediction_id)s::bigint,
    %(ordinal)s::integer,
    %(schema_name)s::text,
    %(table_name)s::text,
    %(column_name)s::text,
    %(output_name)s::text,
    %(via)s::text,
    %(resolution)s::text
);

-- name: add_origin
-- Record where a model came from that was not made in this database.
INSERT INTO mmdb.model_origin (model_id, kind, source, format, digest)
VALUES (
    %(model_id)s::bigint,
    %(kind)s::text,
    %(source)s::text,
    %(format)s::text,
    %(digest)s::bytea
);
