-- What training a run would take.

CREATE OR REPLACE FUNCTION mmdb.explain_train(
    run text,
    options jsonb DEFAULT '{}'
) RETURNS TABLE (
    rank integer, strategy text, workers integer, group_size integer,
    t_p10 double precision, t_p50 double precision, t_p90 double precision, lower_bound double precision,
    compute_s double precision, read_s double precision, hop_s double precision,
    communication_s double precision, validation_s double precision, idle_s double precision,
    bytes_moved bigint, peak_memory bigint, feasible boolean, why_not text,
    chosen boolean, executed boolean, simulated boolean, assumed boolean, knobs jsonb, note text,
    actual_s double precision, actual_compute_s double precision, actual_read_s double precision,
    actual_hop_s double precision, actual_validation_s double precision, actual_idle_s double precision
)
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.plan_functions import explain_train
return explain_train(plpy, GD, run, options)
$$;
COMMENT ON FUNCTION mmdb.explain_train(text, jsonb)
IS 'What each way of training a run would take, the best first; of a run that was trained, beside what it took.';
