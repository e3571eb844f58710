-- Models retrained on what is new, judged and promoted.

CREATE OR REPLACE FUNCTION mmdb.begin_retraining(
    model text,
    mode text DEFAULT 'continue',
    replay double precision DEFAULT 0.2,
    epochs integer DEFAULT NULL,
    refresh boolean DEFAULT TRUE
) RETURNS TABLE (run text, model text, dataset text, reason text)
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
AS $$
from mmdb.server.model_functions import begin_retraining
return begin_retraining(plpy, GD, model, mode, replay, epochs, refresh)
$$;
COMMENT ON FUNCTION mmdb.begin_retraining(text, text, double precision, integer, boolean)
IS 'Create the run that retrains a model on the last version of its dataset; no run where nothing is new.';

CREATE OR REPLACE FUNCTION mmdb.end_retraining(
    run text,
    gate jsonb DEFAULT NULL,
    alias text DEFAULT NULL
) RETURNS TABLE (
    run text,
    model text,
    new_model text,
    dataset text,
    metric text,
    old_value double precision,
    new_value double precision,
    chance double precision,
    passed boolean,
    alias text,
    reason text
)
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.model_functions import end_retraining
return end_retraining(plpy, GD, run, gate, alias)
$$;
COMMENT ON FUNCTION mmdb.end_retraining(text, jsonb, text)
IS 'Save what a retraining came to as the next version, and let an alias point at it if it passes a gate.';

CREATE OR REPLACE PROCEDURE mmdb.retrain(
    INOUT model text,
    mode text DEFAULT 'continue',
    replay double precision DEFAULT 0.2,
    epochs integer DEFAULT NULL,
    refresh boolean DEFAULT TRUE,
    gate jsonb DEFAULT NULL,
    alias text DEFAULT NULL,
    workers integer DEFAULT NULL,
    INOUT run text DEFAULT NULL,
    INOUT new_model text DEFAULT NULL,
    INOUT dataset text DEFAULT NULL,
    INOUT metric text DEFAULT NULL,
    INOUT old_value double precision DEFAULT NULL,
    INOUT new_value double precision DEFAULT NULL,
    INOUT chance double precision DEFAULT NULL,
    INOUT passed boolean DEFAULT NULL,
    INOUT moved text DEFAULT NULL,
    INOUT reason text DEFAULT NULL
)
LANGUAGE plpython3u
AS $$
from mmdb.server.model_functions import retrain
return retrain(plpy, GD, model, mode, replay, epochs, refresh, gate, alias, workers)
$$;
COMMENT ON PROCEDURE mmdb.retrain (
    text, text, double precision, integer, boolean, jsonb, text, integer, text, text, text, text, double precision, double precision,
    double precision, boolean, text, text
)
IS 'Refresh a model''s dataset, retrain the model on what is new, judge it, and promote it if it passes a gate.';
