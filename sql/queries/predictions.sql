-- name: add_prediction
-- Record that a model's predictions were written to a table.
INSERT INTO mmdb.prediction (
    model_id, schema_name, table_name, key_name, query, row_count, seconds, embedding
)
VALUES (
    %(model_id)s::bigint,
    %(schema_name)s::text,
    %(table_name)s::text,
    %(key_name)s::text,
    %(query)s::text,
    %(row_count)s::bigint,
    %(seconds)s::double precision,
    %(embedding)s::text
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

-- name: find_vector
-- The type of pgvector's vectors of a size, and of any size, where the extension is installed.
SELECT
    pg_catalog.format_type(t.oid, %(size)s::integer) AS type,
    pg_catalog.format_type(t.oid, -1) AS open_type
FROM pg_catalog.pg_extension AS e
INNER JOIN pg_catalog.pg_type AS t ON e.extnamespace = t.typnamespace AND t.typname = 'vector'
WHERE e.extname = 'vector';

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
