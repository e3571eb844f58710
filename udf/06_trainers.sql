-- Trainers: the functions that recipes of models may name.

CREATE OR REPLACE FUNCTION mmdb.register_trainer(
    name text,
    target text
) RETURNS text
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.run_functions import register_trainer
return register_trainer(plpy, GD, name, target)
$$;
COMMENT ON FUNCTION mmdb.register_trainer(text, text)
IS 'Allow a Python callable, package.module:callable, to train models as their recipes say. Owner only.';
