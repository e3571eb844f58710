-- Predictions and embeddings written to tables.

-- It reads a query of the caller's, so its search_path is the caller's too.
CREATE OR REPLACE FUNCTION mmdb.predict_into(
    model text,
    query text,
    target text,
    key text DEFAULT NULL,
    probabilities boolean DEFAULT FALSE
) RETURNS bigint
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
AS $$
from mmdb.server.dataset_functions import predict_into
return predict_into(plpy, GD, model, query, target, key, probabilities)
$$;
COMMENT ON FUNCTION mmdb.predict_into(text, text, text, text, boolean)
IS 'Predict every row of a SELECT into a table, which is made as needed; returns the rows written.';

CREATE OR REPLACE FUNCTION mmdb.predict_rows(
    model_id bigint,
    key text,
    types text[],
    rows bytea[],
    has_probabilities boolean DEFAULT FALSE
) RETURNS TABLE (
    keys text[],
    prediction text[],
    probability double precision[],
    probabilities jsonb[]
)
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
ROWS 1
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.model_functions import predict_rows
return predict_rows(plpy, GD, model_id, key, types, rows, has_probabilities)
$$;
COMMENT ON FUNCTION mmdb.predict_rows(bigint, text, text[], bytea[], boolean)
IS 'Predictions for a block of the rows that a node of a cluster holds, as predict_into asks there; as one row.';

CREATE OR REPLACE FUNCTION mmdb.embed_into(
    model text,
    query text,
    target text,
    key text DEFAULT NULL,
    into_column text DEFAULT 'embedding',
    layer text DEFAULT NULL,
    normalized boolean DEFAULT FALSE
) RETURNS bigint
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
AS $$
from mmdb.server.model_functions import embed_into
return embed_into(plpy, GD, model, query, target, key, into_column, layer, normalized)
$$;
COMMENT ON FUNCTION mmdb.embed_into(text, text, text, text, text, text, boolean)
IS 'Write the embedding of every row of a SELECT to a table, which is made as needed; returns the rows written.';
