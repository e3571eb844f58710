-- Functions that datasets and runs may name: tokenizers, augmentations, losses, metrics.

CREATE OR REPLACE FUNCTION mmdb.register_function(
    name text,
    target text,
    kind text
) RETURNS text
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.run_functions import register_function
return register_function(plpy, GD, name, target, kind)
$$;
COMMENT ON FUNCTION mmdb.register_function(text, text, text)
IS 'Allow a Python callable, package.module:callable, as a tokenizer, augmentation, loss or metric. Owner only.';
