-- Columns that a model fills in new rows.

-- The table's name is looked up where the caller's session does.
CREATE OR REPLACE FUNCTION mmdb.score_on_insert(
    target text,
    model text,
    into_column text
) RETURNS bigint
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
AS $$
from mmdb.server.model_functions import score_on_insert
return score_on_insert(plpy, GD, target, model, into_column)
$$;
COMMENT ON FUNCTION mmdb.score_on_insert(text, text, text)
IS 'Have a model predict a column of each new row of a table that is the caller''s; returns its number.';

CREATE OR REPLACE FUNCTION mmdb.embed_on_insert(
    target text,
    model text,
    into_column text DEFAULT 'embedding',
    layer text DEFAULT NULL,
    normalized boolean DEFAULT FALSE
) RETURNS bigint
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
AS $$
from mmdb.server.model_functions import embed_on_insert
return embed_on_insert(plpy, GD, target, model, into_column, layer, normalized)
$$;
COMMENT ON FUNCTION mmdb.embed_on_insert(text, text, text, text, boolean)
IS 'Have a model fill a column of each new row of a table that is the caller''s with its embedding; returns its number.';

CREATE OR REPLACE FUNCTION mmdb.stop_scoring(
    target text,
    into_column text
) RETURNS bigint
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
AS $$
from mmdb.server.model_functions import stop_scoring
return stop_scoring(plpy, GD, target, into_column)
$$;
COMMENT ON FUNCTION mmdb.stop_scoring(text, text)
IS 'Have no model fill a column of new rows any more; returns the number that it had.';

CREATE OR REPLACE FUNCTION mmdb.score_rows(
    scoring_id bigint,
    target text,
    keys text,
    model text,
    embedding text DEFAULT NULL
) RETURNS TABLE (
    row_key text,
    prediction text
)
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
ROWS 1 -- of the 1000 that are assumed without it, its trigger would read the whole table for each statement
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.model_functions import score_rows
return score_rows(plpy, GD, scoring_id, target, keys, model, embedding)
$$;
COMMENT ON FUNCTION mmdb.score_rows(bigint, text, text, text, text)
IS 'Predictions or embeddings for rows of a table by their keys, as its trigger asks; what cannot be predicted is written down.';

CREATE OR REPLACE FUNCTION mmdb.note_unscored(
    scoring_id bigint,
    row_count bigint,
    sqlstate text,
    message text
) RETURNS bigint
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.model_functions import note_unscored
return note_unscored(plpy, GD, scoring_id, row_count, sqlstate, message)
$$;
COMMENT ON FUNCTION mmdb.note_unscored(bigint, bigint, text, text)
IS 'Write down that new rows have no prediction, as their table''s trigger asks.';
