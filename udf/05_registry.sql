-- What people say about models, comparing and dropping them, and garbage collection.

CREATE OR REPLACE FUNCTION mmdb.set_alias(
    model text,
    version integer,
    alias text
) RETURNS text
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.registry_functions import set_alias
return set_alias(plpy, GD, model, version, alias)
$$;
COMMENT ON FUNCTION mmdb.set_alias(text, integer, text)
IS 'Let an alias point at a version of a model; its earlier places are kept.';

CREATE OR REPLACE FUNCTION mmdb.drop_alias(
    model text,
    alias text
) RETURNS text
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.registry_functions import drop_alias
return drop_alias(plpy, GD, model, alias)
$$;
COMMENT ON FUNCTION mmdb.drop_alias(text, text)
IS 'Take an alias away and return the version that it was at.';

CREATE OR REPLACE FUNCTION mmdb.rollback_alias(
    model text,
    alias text
) RETURNS text
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.registry_functions import rollback_alias
return rollback_alias(plpy, GD, model, alias)
$$;
COMMENT ON FUNCTION mmdb.rollback_alias(text, text)
IS 'Let an alias point at the version where it was before, and return that.';

CREATE OR REPLACE FUNCTION mmdb.tag_model(
    model text,
    key text,
    value text
) RETURNS text
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.registry_functions import tag_model
return tag_model(plpy, GD, model, key, value)
$$;
COMMENT ON FUNCTION mmdb.tag_model(text, text, text)
IS 'Give a model a tag, or take it away where the value is null.';

CREATE OR REPLACE FUNCTION mmdb.log_metric(
    model text,
    metric text,
    value double precision,
    dataset text DEFAULT ''
) RETURNS text
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.registry_functions import log_metric
return log_metric(plpy, GD, model, metric, value, dataset)
$$;
COMMENT ON FUNCTION mmdb.log_metric(text, text, double precision, text)
IS 'Give a model a metric, in place of an older value.';

CREATE OR REPLACE FUNCTION mmdb.note_model(
    model text,
    note text
) RETURNS text
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.registry_functions import note_model
return note_model(plpy, GD, model, note)
$$;
COMMENT ON FUNCTION mmdb.note_model(text, text)
IS 'Write a note about a model.';

CREATE OR REPLACE FUNCTION mmdb.model_diff(
    a text,
    b text,
    norms boolean DEFAULT TRUE
) RETURNS TABLE (
    path text, change text, dtype text, shape bigint[], l2 double precision, max_abs double precision
)
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.registry_functions import model_diff
return model_diff(plpy, GD, a, b, norms)
$$;
COMMENT ON FUNCTION mmdb.model_diff(text, text, boolean)
IS 'The tensors in which two models differ, and how far; without norms no tensor is read.';

CREATE OR REPLACE FUNCTION mmdb.drop_model(
    model text,
    version integer DEFAULT NULL
) RETURNS SETOF mmdb.dropped_row
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.registry_functions import drop_model
return drop_model(plpy, GD, model, version)
$$;
COMMENT ON FUNCTION mmdb.drop_model(text, integer)
IS 'Drop one version of a model; its lineage stays, gc takes its tensors later.';

CREATE OR REPLACE FUNCTION mmdb.gc(
    dry_run boolean DEFAULT TRUE,
    grace interval DEFAULT '7 days'
) RETURNS TABLE (what text, items bigint, bytes bigint, goes boolean, reason text)
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.registry_functions import gc
return gc(plpy, GD, dry_run, grace)
$$;
COMMENT ON FUNCTION mmdb.gc(boolean, interval)
IS 'Delete what no model needs, or say what would go and how many bytes, and what stays and why.';
