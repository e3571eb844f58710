-- Datasets.

CREATE OR REPLACE FUNCTION mmdb.create_dataset(
    name text,
    query text,
    label text DEFAULT 'y',
    partitions integer DEFAULT 4,
    validation double precision DEFAULT 0.2,
    seed bigint DEFAULT 0,
    options jsonb DEFAULT '{}'
) RETURNS SETOF mmdb.dataset_row
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
AS $$
from mmdb.server.dataset_functions import create_dataset
return create_dataset(plpy, GD, name, query, label, partitions, validation, seed, options)
$$;
COMMENT ON FUNCTION mmdb.create_dataset(text, text, text, integer, double precision, bigint, jsonb)
IS 'Read a SELECT once and keep its rows, shuffled into partitions, as a dataset.';

CREATE OR REPLACE FUNCTION mmdb.refresh_dataset(
    name text,
    grows text DEFAULT NULL,
    fit boolean DEFAULT FALSE,
    dry_run boolean DEFAULT FALSE
) RETURNS TABLE (
    name text, version integer, rows bigint, partitions integer, added bigint, changed bigint, deleted bigint, is_new boolean
)
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
AS $$
from mmdb.server.dataset_functions import refresh_dataset
return refresh_dataset(plpy, GD, name, grows, fit, dry_run)
$$;
COMMENT ON FUNCTION mmdb.refresh_dataset(text, text, boolean, boolean)
IS 'Add what a dataset''s query has come to return, and mask what is gone, as its next version.';

CREATE OR REPLACE FUNCTION mmdb.transformed(
    dataset text,
    row_count integer DEFAULT 5
) RETURNS TABLE (label jsonb, features jsonb)
LANGUAGE plpython3u STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.dataset_functions import transformed
return transformed(plpy, GD, dataset, row_count)
$$;
COMMENT ON FUNCTION mmdb.transformed(text, integer)
IS 'Train rows of a dataset, in their order, with what models read of them.';

CREATE OR REPLACE FUNCTION mmdb.drop_dataset(
    name text,
    force boolean DEFAULT FALSE
) RETURNS bigint
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.dataset_functions import drop_dataset
return drop_dataset(plpy, GD, name, force)
$$;
COMMENT ON FUNCTION mmdb.drop_dataset(text, boolean)
IS 'Delete a dataset''s blocks and return the bytes freed; its lineage stays.';

CREATE OR REPLACE FUNCTION mmdb.drop_features(
    dataset text,
    layer text DEFAULT NULL
) RETURNS bigint
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.dataset_functions import drop_features
return drop_features(plpy, GD, dataset, layer)
$$;
COMMENT ON FUNCTION mmdb.drop_features(text, text)
IS 'Delete what is stored of the outputs of a dataset''s frozen layers and return the bytes freed; hops compute them again.';
