-- Rows forgotten, with all that came of them.

CREATE OR REPLACE FUNCTION mmdb.forget(
    dataset text,
    condition text DEFAULT NULL,
    models text DEFAULT 'remake',
    note text DEFAULT NULL,
    dry_run boolean DEFAULT FALSE
) RETURNS TABLE (entity text, action text, row_count bigint, reason text)
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
AS $$
from mmdb.server.model_functions import forget
return forget(plpy, GD, dataset, condition, models, note, dry_run)
$$;
COMMENT ON FUNCTION mmdb.forget(text, text, text, text, boolean)
IS 'Erase rows from a dataset, and what came of them, for an admin; NULL: the rows that its query returns no more.';

CREATE OR REPLACE FUNCTION mmdb.next_remake() RETURNS TABLE (run text, model text)
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.model_functions import next_remake
return next_remake(plpy, GD)
$$;
COMMENT ON FUNCTION mmdb.next_remake()
IS 'Create the run that makes the next model without its forgotten rows; no row where none is left.';

CREATE OR REPLACE PROCEDURE mmdb.remake(workers integer DEFAULT NULL, INOUT trained integer DEFAULT NULL)
LANGUAGE plpython3u
AS $$
from mmdb.server.model_functions import remake
return remake(plpy, GD, workers)
$$;
COMMENT ON PROCEDURE mmdb.remake (integer, integer)
IS 'Train models again without rows that were forgotten, and let them take the place of the old ones; for an admin.';
