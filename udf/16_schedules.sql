-- Statements that workers run again and again.

-- Names in the statement are looked up where its author's session does, so this function's search_path is the caller's.
CREATE OR REPLACE FUNCTION mmdb.schedule(
    name text,
    statement text,
    every text,
    starts text DEFAULT NULL
) RETURNS bigint
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
AS $$
from mmdb.server.run_functions import schedule
return schedule(plpy, GD, name, statement, every, starts)
$$;
COMMENT ON FUNCTION mmdb.schedule(text, text, text, text)
IS 'Have workers run a statement again and again, with the rights of the login that stores it; returns its number.';

CREATE OR REPLACE FUNCTION mmdb.unschedule(
    name text
) RETURNS text
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.run_functions import unschedule
return unschedule(plpy, GD, name)
$$;
COMMENT ON FUNCTION mmdb.unschedule(text)
IS 'Delete a schedule with its history.';
