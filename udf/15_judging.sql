-- How good a model is: metrics, comparisons and curves on a dataset's rows or a query's.

-- They read a query of the caller's, so their search_path is the caller's too.
CREATE OR REPLACE FUNCTION mmdb.evaluate(
    model text,
    data text,
    slice text DEFAULT NULL,
    metrics jsonb DEFAULT NULL,
    by text DEFAULT NULL,
    intervals boolean DEFAULT FALSE
) RETURNS TABLE (
    metric text,
    value double precision,
    by_name text,
    by_value text,
    row_count bigint,
    low double precision,
    high double precision
)
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
AS $$
from mmdb.server.model_functions import evaluate
return evaluate(plpy, GD, model, data, slice, metrics, by, intervals)
$$;
COMMENT ON FUNCTION mmdb.evaluate(text, text, text, jsonb, text, boolean)
IS 'Metrics of a model on a slice of a dataset, or on the rows of a SELECT that has the label: of all, and by a column.';

CREATE OR REPLACE FUNCTION mmdb.compare_models(
    a text,
    b text,
    data text,
    metrics jsonb DEFAULT NULL
) RETURNS TABLE (
    metric text,
    a_value double precision,
    b_value double precision,
    difference double precision,
    low double precision,
    high double precision,
    p_value double precision,
    better text
)
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
AS $$
from mmdb.server.model_functions import compare_models
return compare_models(plpy, GD, a, b, data, metrics)
$$;
COMMENT ON FUNCTION mmdb.compare_models(text, text, text, jsonb)
IS 'Two models on the same rows, metric by metric: which is better, and whether the difference is more than noise.';

CREATE OR REPLACE FUNCTION mmdb.confusion_matrix(
    model text,
    data text
) RETURNS TABLE (
    label text,
    prediction text,
    rows double precision,
    share double precision
)
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
AS $$
from mmdb.server.model_functions import confusion_matrix
return confusion_matrix(plpy, GD, model, data)
$$;
COMMENT ON FUNCTION mmdb.confusion_matrix(text, text)
IS 'Rows, or their weights, by label and predicted class, and their share of the label''s.';

CREATE OR REPLACE FUNCTION mmdb.roc_curve(
    model text,
    data text,
    positive text DEFAULT NULL
) RETURNS TABLE (
    threshold double precision,
    false_positive_rate double precision,
    true_positive_rate double precision
)
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
AS $$
from mmdb.server.model_functions import roc_curve
return roc_curve(plpy, GD, model, data, positive)
$$;
COMMENT ON FUNCTION mmdb.roc_curve(text, text, text)
IS 'By the probability of a class: the share of other rows, and of its own, that have it or a greater one.';

CREATE OR REPLACE FUNCTION mmdb.precision_recall(
    model text,
    data text,
    positive text DEFAULT NULL
) RETURNS TABLE (
    threshold double precision,
    "precision" double precision,
    recall double precision
)
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
AS $$
from mmdb.server.model_functions import precision_recall
return precision_recall(plpy, GD, model, data, positive)
$$;
COMMENT ON FUNCTION mmdb.precision_recall(text, text, text)
IS 'By the probability of a class: which share of the rows that have it or a greater one are of the class, and of its rows.';

CREATE OR REPLACE FUNCTION mmdb.calibration(
    model text,
    data text,
    positive text DEFAULT NULL,
    bins integer DEFAULT 10
) RETURNS TABLE (
    low double precision,
    high double precision,
    row_count bigint,
    score double precision,
    share double precision
)
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
AS $$
from mmdb.server.model_functions import calibration
return calibration(plpy, GD, model, data, positive, bins)
$$;
COMMENT ON FUNCTION mmdb.calibration(text, text, text, integer)
IS 'What came of the probabilities of a class: in ranges of these, their mean and the share that was of the class.';

CREATE OR REPLACE FUNCTION mmdb.thresholds(
    model text,
    data text,
    goal jsonb,
    positive text DEFAULT NULL
) RETURNS TABLE (
    threshold double precision,
    "precision" double precision,
    recall double precision,
    false_positive_rate double precision,
    cost double precision
)
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
AS $$
from mmdb.server.model_functions import thresholds
return thresholds(plpy, GD, model, data, goal, positive)
$$;
COMMENT ON FUNCTION mmdb.thresholds(text, text, jsonb, text)
IS 'The probability from which on a class is worth to be predicted, for a recall, a precision or what errors cost.';

CREATE OR REPLACE FUNCTION mmdb.calibrate_model(
    model text,
    data text,
    method text DEFAULT NULL,
    goal jsonb DEFAULT NULL,
    positive text DEFAULT NULL,
    slice text DEFAULT NULL
) RETURNS TABLE (
    model_id bigint,
    name text,
    version integer,
    calibration jsonb
)
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
AS $$
from mmdb.server.model_functions import calibrate_model
return calibrate_model(plpy, GD, model, data, method, goal, positive, slice)
$$;
COMMENT ON FUNCTION mmdb.calibrate_model(text, text, text, jsonb, text, text)
IS 'Save a model''s next version, which predicts by probabilities calibrated on some rows, or by a threshold.';

CREATE OR REPLACE FUNCTION mmdb.residuals(
    model text,
    query text,
    key text DEFAULT NULL
) RETURNS TABLE (
    row_key text,
    label double precision,
    prediction double precision,
    residual double precision
)
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
AS $$
from mmdb.server.model_functions import residuals
return residuals(plpy, GD, model, query, key)
$$;
COMMENT ON FUNCTION mmdb.residuals(text, text, text)
IS 'Each row of a SELECT with its number, what is predicted, and the difference.';

CREATE OR REPLACE FUNCTION mmdb.importance(
    model text,
    query text,
    metric text DEFAULT NULL,
    by_table boolean DEFAULT FALSE,
    repeats integer DEFAULT 20
) RETURNS TABLE (
    column_name text,
    tables text,
    metric_name text,
    importance double precision,
    low double precision,
    high double precision
)
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
AS $$
from mmdb.server.model_functions import importance
return importance(plpy, GD, model, query, metric, by_table, repeats)
$$;
COMMENT ON FUNCTION mmdb.importance(text, text, text, boolean, integer)
IS 'Columns, or tables, of a SELECT by what a metric of the model loses where their values are shuffled.';

CREATE OR REPLACE FUNCTION mmdb.explain_predict(
    model text,
    query text,
    top integer DEFAULT 3,
    key text DEFAULT NULL,
    method text DEFAULT NULL,
    baseline jsonb DEFAULT NULL
) RETURNS TABLE (
    row_key text,
    prediction text,
    answer double precision,
    rank integer,
    column_name text,
    value text,
    contribution double precision,
    gap double precision
)
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
AS $$
from mmdb.server.model_functions import explain_predict
return explain_predict(plpy, GD, model, query, top, key, method, baseline)
$$;
COMMENT ON FUNCTION mmdb.explain_predict(text, text, integer, text, text, jsonb)
IS 'For each row of a SELECT the columns that moved its prediction most, and by how much.';

CREATE OR REPLACE FUNCTION mmdb.training_rows(
    model text,
    query text,
    trained text DEFAULT NULL,
    top integer DEFAULT 10,
    key text DEFAULT NULL,
    checkpoints integer DEFAULT 1
) RETURNS TABLE (
    row_key text,
    effect text,
    influence double precision,
    label text,
    loss double precision
)
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
AS $$
from mmdb.server.model_functions import training_rows
return training_rows(plpy, GD, model, query, trained, top, key, checkpoints)
$$;
COMMENT ON FUNCTION mmdb.training_rows(text, text, text, integer, text, integer)
IS 'The training rows that helped, and those that hurt, what a model says of a SELECT''s rows.';

CREATE OR REPLACE FUNCTION mmdb.drift(
    model text,
    query text
) RETURNS TABLE (
    column_name text,
    role text,
    psi double precision,
    distance double precision,
    p_value double precision,
    nulls_before double precision,
    nulls_now double precision,
    unseen double precision,
    value_before double precision,
    value_now double precision,
    drifted boolean
)
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
AS $$
from mmdb.server.model_functions import drift
return drift(plpy, GD, model, query)
$$;
COMMENT ON FUNCTION mmdb.drift(text, text)
IS 'How far the rows of a SELECT, and what a model predicts of them, have moved from those that it learned from.';
