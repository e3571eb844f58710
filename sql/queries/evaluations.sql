-- name: may_keep
-- Whether the transaction may write, as none on a replica may.
SELECT current_setting('transaction_read_only') = 'off' AS may;

-- name: add_evaluation
-- Record that a model was measured.
INSERT INTO mmdb.evaluation (
    model_id, dataset_id, slice, query, row_count, seconds, figures
)
VALUES (
    %(model_id)s::bigint,
    %(dataset_id)s::bigint,
    %(slice)s::text,
    %(query)s::text,
    %(row_count)s::bigint,
    %(seconds)s::double precision,
    %(figures)s::jsonb
)
RETURNING evaluation_id;

-- name: add_metric
-- Record what was measured.
INSERT INTO mmdb.evaluation_metric (
    evaluation_id, ordinal, metric, by_name, by_value, row_count, value, low, high
)
VALUES (
    %(evaluation_id)s::bigint,
    %(ordinal)s::integer,
    %(metric)s::text,
    %(by_name)s::text,
    %(by_value)s::text,
    %(row_count)s::bigint,
    %(value)s::double precision,
    %(low)s::double precision,
    %(high)s::double precision
);

-- name: add_source
-- Record a table or column that an evaluation's query reads.
INSERT INTO mmdb.evaluation_source (
    evaluation_id, ordinal, schema_name, table_name, column_name, output_name, via, resolution
)
VALUES (
    %(evaluation_id)s::bigint,
    %(ordinal)s::integer,
    %(schema_name)s::text,
    %(table_name)s::text,
    %(column_name)s::text,
    %(output_name)s::text,
    %(via)s::text,
    %(resolution)s::text
);

-- name: add_drift
-- Record how far one column has moved; two calls of one microsecond are one.
INSERT INTO mmdb.drift_check (
    model_id, checked_at, ordinal, column_name, role, row_count, psi, distance, p_value,
    nulls_before, nulls_now, unseen, value_before, value_now, drifted
)
VALUES (
    %(model_id)s::bigint,
    %(checked_at)s::timestamptz,
    %(ordinal)s::integer,
    %(column_name)s::text,
    %(role)s::text,
    %(row_count)s::bigint,
    %(psi)s::double precision,
    %(distance)s::double precision,
    %(p_value)s::double precision,
    %(nulls_before)s::double precision,
    %(nulls_now)s::double precision,
    %(unseen)s::double precision,
    %(value_before)s::double precision,
    %(value_now)s::double precision,
    %(drifted)s::boolean
)
ON CONFLICT DO NOTHING;

-- name: forget_drifts
-- Delete what drift found of a model, but for its last calls.
DELETE FROM mmdb.drift_check
WHERE model_id = %(model_id)s::bigint AND checked_at NOT IN (
    SELECT c.checked_at FROM mmdb.drift_check AS c
    WHERE c.model_id = %(model_id)s::bigint AND c.ordinal = 0
    ORDER BY c.checked_at DESC
    LIMIT %(kept)s::integer
);
