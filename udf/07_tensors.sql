-- Below and above models: rows of one tensor, and architectures of the whole zoo.

CREATE OR REPLACE FUNCTION mmdb.tensor_values(
    model text,
    path text,
    lo bigint DEFAULT 0,
    hi bigint DEFAULT NULL
) RETURNS real[]
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.zoo_functions import tensor_values
return tensor_values(plpy, GD, model, path, lo, hi)
$$;
COMMENT ON FUNCTION mmdb.tensor_values(text, text, bigint, bigint)
IS 'Rows lo to hi of one tensor, row after row; no other byte is read.';

CREATE OR REPLACE FUNCTION mmdb.common_prefix(
    architecture text,
    dataset text DEFAULT NULL,
    input_shape mmdb.sizes DEFAULT NULL,
    outputs integer DEFAULT NULL,
    k integer DEFAULT 10
) RETURNS TABLE (model text, shared_nodes bigint, shared_bytes bigint)
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.zoo_functions import common_prefix
return common_prefix(plpy, GD, architecture, dataset, input_shape, outputs, k)
$$;
COMMENT ON FUNCTION mmdb.common_prefix(text, text, mmdb.sizes, integer, integer)
IS 'The k models that share the longest beginnings with an architecture, a factory, a layer graph or name@version.';
