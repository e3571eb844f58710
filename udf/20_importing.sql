-- Models out of files of the server, and what they are.

CREATE OR REPLACE FUNCTION mmdb.import_model(
    path text,
    name text,
    dataset text DEFAULT NULL,
    architecture text DEFAULT NULL,
    input_shape mmdb.sizes DEFAULT NULL,
    outputs integer DEFAULT NULL,
    parent text DEFAULT NULL,
    format text DEFAULT 'auto',
    key text DEFAULT NULL,
    skip boolean DEFAULT FALSE
) RETURNS SETOF mmdb.imported_row
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.model_functions import import_model
return import_model(plpy, GD, path, name, dataset, architecture, input_shape, outputs, parent, format, key, skip)
$$;
COMMENT ON FUNCTION mmdb.import_model(text, text, text, text, mmdb.sizes, integer, text, text, text, boolean)
IS 'Save a file or folder of the server, from below the folder that the owner has named, as the next version of a model.';

CREATE OR REPLACE FUNCTION mmdb.attach(
    model text,
    architecture text DEFAULT NULL,
    dataset text DEFAULT NULL,
    input_shape mmdb.sizes DEFAULT NULL,
    outputs integer DEFAULT NULL
) RETURNS TABLE (name text, version integer, notes text[])
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.model_functions import attach
return attach(plpy, GD, model, architecture, dataset, input_shape, outputs)
$$;
COMMENT ON FUNCTION mmdb.attach(text, text, text, mmdb.sizes, integer)
IS 'Give a model that has none its architecture, or the dataset whose rows it reads; its tensors stay as they are.';
