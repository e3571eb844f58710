-- What came from what.

CREATE OR REPLACE FUNCTION mmdb.lineage(
    entity text,
    direction text DEFAULT 'up',
    hops boolean DEFAULT NULL,
    max_depth integer DEFAULT NULL
) RETURNS TABLE (
    depth integer, kind text, parent text, child text, via text
)
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.zoo_functions import lineage
return lineage(plpy, GD, entity, direction, hops, max_depth)
$$;
COMMENT ON FUNCTION mmdb.lineage(text, text, boolean, integer)
IS 'What an entity came from (up), or what came of it (down), edge by edge; readers may call it.';
