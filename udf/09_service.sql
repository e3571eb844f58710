-- Runs handed to worker processes.

CREATE OR REPLACE FUNCTION mmdb.submit(
    run text,
    priority integer DEFAULT NULL
) RETURNS SETOF mmdb.request_row
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.run_functions import submit
return submit(plpy, GD, run, priority)
$$;
COMMENT ON FUNCTION mmdb.submit(text, integer)
IS 'Hand a run to the worker processes, at once; again, to change its priority (-5 to 5).';

CREATE OR REPLACE FUNCTION mmdb.cancel_run(
    run text
) RETURNS SETOF mmdb.request_row
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.run_functions import cancel_run
return cancel_run(plpy, GD, run)
$$;
COMMENT ON FUNCTION mmdb.cancel_run(text)
IS 'Let whoever trains a run stop within a second; what is done is kept.';

CREATE OR REPLACE FUNCTION mmdb.resume_run(
    run text
) RETURNS SETOF mmdb.request_row
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.run_functions import resume_run
return resume_run(plpy, GD, run)
$$;
COMMENT ON FUNCTION mmdb.resume_run(text)
IS 'Hand a run to the worker processes again, with the priority that it had.';

CREATE OR REPLACE FUNCTION mmdb.node() RETURNS text
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.run_functions import node
return node(plpy, GD)
$$;
COMMENT ON FUNCTION mmdb.node()
IS 'The machine that this session computes on, as hops record it.';
