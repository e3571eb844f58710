-- What plans rest on: measurements of this machine and this database.

CREATE OR REPLACE FUNCTION mmdb.calibrate(
    budget_s double precision DEFAULT 60
) RETURNS TABLE (
    kind text, size double precision, size_unit text, value double precision, unit text,
    deviation double precision, samples integer, note text
)
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.plan_functions import calibrate
return calibrate(plpy, GD, budget_s)
$$;
COMMENT ON FUNCTION mmdb.calibrate(double precision)
IS 'Measure what this machine and this database cost, for plans; nothing else should be busy meanwhile.';

CREATE OR REPLACE FUNCTION mmdb.measure(
    detail jsonb
) RETURNS TABLE (
    kind text, size double precision, value double precision, unit text, deviation double precision, samples integer
)
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.plan_functions import measure
return measure(plpy, GD, detail)
$$;
COMMENT ON FUNCTION mmdb.measure(jsonb)
IS 'One part of a calibration, in this session; calibrate calls it in several.';
