-- The zoo of parents: finding one, and saying who is in it.

CREATE OR REPLACE FUNCTION mmdb.match(
    architecture text,
    k integer DEFAULT 10,
    dataset text DEFAULT NULL,
    metric text DEFAULT NULL,
    input_shape mmdb.sizes DEFAULT NULL,
    outputs integer DEFAULT NULL,
    sample integer DEFAULT 0
) RETURNS SETOF mmdb.match_row
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.zoo_functions import match
return match(plpy, GD, architecture, k, dataset, metric, input_shape, outputs, sample)
$$;
COMMENT ON FUNCTION mmdb.match(text, integer, text, text, mmdb.sizes, integer, integer)
IS 'Models that an architecture could be begun with, the best parent first, each with its reason.';

CREATE OR REPLACE FUNCTION mmdb.zoo_admit(
    model text,
    reason text DEFAULT 'on request'
) RETURNS text
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.zoo_functions import zoo_admit
return zoo_admit(plpy, GD, model, reason)
$$;
COMMENT ON FUNCTION mmdb.zoo_admit(text, text)
IS 'Offer a model as a parent, whatever the rules say of its metrics.';

CREATE OR REPLACE FUNCTION mmdb.zoo_refuse(
    model text,
    reason text DEFAULT 'on request'
) RETURNS text
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.zoo_functions import zoo_refuse
return zoo_refuse(plpy, GD, model, reason)
$$;
COMMENT ON FUNCTION mmdb.zoo_refuse(text, text)
IS 'Offer a model as a parent no longer; the model itself stays.';

CREATE OR REPLACE FUNCTION mmdb.manage_zoo(
    budget_bytes bigint DEFAULT NULL,
    dry_run boolean DEFAULT TRUE
) RETURNS SETOF mmdb.zoo_row
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.zoo_functions import manage_zoo
return manage_zoo(plpy, GD, budget_bytes, dry_run)
$$;
COMMENT ON FUNCTION mmdb.manage_zoo(bigint, boolean)
IS 'Refuse outliers and near-duplicates as parents, and drop the models worth least until the rest fits a budget.';

CREATE OR REPLACE FUNCTION mmdb.similar_models(
    model text,
    k integer DEFAULT 10
) RETURNS TABLE (
    other text, similarity double precision, relation text, reason text
)
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.zoo_functions import similar_models
return similar_models(plpy, GD, model, k)
$$;
COMMENT ON FUNCTION mmdb.similar_models(text, integer)
IS 'Models whose weights are like those of a model: the parent that they suggest first.';

CREATE OR REPLACE FUNCTION mmdb.propose_parents() RETURNS TABLE (
    model text, parent text, similarity double precision, reason text
)
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.zoo_functions import propose_parents
return propose_parents(plpy, GD)
$$;
COMMENT ON FUNCTION mmdb.propose_parents()
IS 'The parent that the weights suggest for each model without lineage; nothing is written.';

CREATE OR REPLACE FUNCTION mmdb.accept_parent(
    model text,
    parent text
) RETURNS text
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.zoo_functions import accept_parent
return accept_parent(plpy, GD, model, parent)
$$;
COMMENT ON FUNCTION mmdb.accept_parent(text, text)
IS 'Say what a model without lineage was made from; null takes that back.';
