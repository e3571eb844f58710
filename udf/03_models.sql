-- Saved models at work.

CREATE OR REPLACE FUNCTION mmdb.predict(
    model text,
    x mmdb.numbers
) RETURNS real[]
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.model_functions import predict
return predict(plpy, GD, model, x)
$$;
COMMENT ON FUNCTION mmdb.predict(text, mmdb.numbers)
IS 'Class probabilities, or the value of a regression, for one row of features.';

-- What is written in quotes is a text to PostgreSQL, which finds this function alone for it.
CREATE OR REPLACE FUNCTION mmdb.predict(
    model text,
    x text
) RETURNS real[]
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.model_functions import predict
return predict(plpy, GD, model, x)
$$;
COMMENT ON FUNCTION mmdb.predict(text, text)
IS 'The same for a row as the text of a JSON object, or of a JSON list of numbers.';

CREATE OR REPLACE FUNCTION mmdb.predict(
    model text,
    x jsonb
) RETURNS real[]
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.model_functions import predict
return predict(plpy, GD, model, x)
$$;
COMMENT ON FUNCTION mmdb.predict(text, jsonb)
IS 'The same for a row as an object with the dataset''s column names.';

-- PL/Python takes neither of these two.
CREATE OR REPLACE FUNCTION mmdb.predict(
    model text,
    x json
) RETURNS real[]
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN mmdb.predict(model, x::jsonb);
END
$$;
COMMENT ON FUNCTION mmdb.predict(text, json)
IS 'The same for a row as row_to_json makes it.';

CREATE OR REPLACE FUNCTION mmdb.predict(
    model text,
    x record
) RETURNS real[]
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET extra_float_digits = 1
SET intervalstyle = 'postgres'
SET bytea_output = 'hex'
SET datestyle = 'ISO'
AS $$
BEGIN
    RETURN mmdb.predict(model, to_jsonb(x));
END
$$;
COMMENT ON FUNCTION mmdb.predict(text, record)
IS 'The same for a row of a table: SELECT mmdb.predict(model, t) FROM t.';

CREATE OR REPLACE FUNCTION mmdb.embed(
    model text,
    x mmdb.numbers,
    layer text DEFAULT NULL,
    normalized boolean DEFAULT FALSE
) RETURNS real[]
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.model_functions import embed
return embed(plpy, GD, model, x, layer, normalized)
$$;
COMMENT ON FUNCTION mmdb.embed(text, mmdb.numbers, text, boolean)
IS 'What a layer makes of one row of features, or what the last layer reads: a vector.';

CREATE OR REPLACE FUNCTION mmdb.embed(
    model text,
    x text,
    layer text DEFAULT NULL,
    normalized boolean DEFAULT FALSE
) RETURNS real[]
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.model_functions import embed
return embed(plpy, GD, model, x, layer, normalized)
$$;
COMMENT ON FUNCTION mmdb.embed(text, text, text, boolean)
IS 'The same for a row as the text of a JSON object, or of a JSON list of numbers.';

CREATE OR REPLACE FUNCTION mmdb.embed(
    model text,
    x jsonb,
    layer text DEFAULT NULL,
    normalized boolean DEFAULT FALSE
) RETURNS real[]
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.model_functions import embed
return embed(plpy, GD, model, x, layer, normalized)
$$;
COMMENT ON FUNCTION mmdb.embed(text, jsonb, text, boolean)
IS 'The same for a row as an object with the dataset''s column names.';

CREATE OR REPLACE FUNCTION mmdb.predict_query(
    model text,
    query text,
    key text DEFAULT NULL,
    probabilities boolean DEFAULT FALSE
) RETURNS SETOF mmdb.prediction_row
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
AS $$
from mmdb.server.model_functions import predict_query
return predict_query(plpy, GD, model, query, key, probabilities)
$$;
COMMENT ON FUNCTION mmdb.predict_query(text, text, text, boolean)
IS 'Predictions for every row of a SELECT, with its key; on request the probability of every class.';

CREATE OR REPLACE FUNCTION mmdb.generate(
    model text,
    prompt text,
    max_tokens integer DEFAULT 50,
    temperature double precision DEFAULT 0,
    top_k integer DEFAULT NULL,
    seed bigint DEFAULT 0,
    time_limit double precision DEFAULT NULL
) RETURNS TABLE (
    generated text,
    tokens integer,
    stopped text
)
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.model_functions import generate
return generate(plpy, GD, model, prompt, max_tokens, temperature, top_k, seed, time_limit)
$$;
COMMENT ON FUNCTION mmdb.generate(text, text, integer, double precision, integer, bigint, double precision)
IS 'How a language model goes on with a text, and why it stopped: end, tokens, time or context.';
