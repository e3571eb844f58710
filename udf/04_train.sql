-- Whole runs.

CREATE OR REPLACE PROCEDURE mmdb.train(
    INOUT run text,
    workers integer DEFAULT NULL,
    INOUT candidates integer DEFAULT NULL,
    INOUT failed integer DEFAULT NULL,
    INOUT hops integer DEFAULT NULL,
    INOUT seconds double precision DEFAULT NULL,
    INOUT best_candidate_id bigint DEFAULT NULL,
    INOUT model text DEFAULT NULL
)
LANGUAGE plpython3u
AS $$
from mmdb.server.run_functions import train
return train(plpy, GD, run, workers)
$$;
COMMENT ON PROCEDURE mmdb.train (text, integer, integer, integer, integer, double precision, bigint, text)
IS 'Train a run to its end with sessions of its own, by the login in mmdb.setting ''worker_dsn''.';

CREATE OR REPLACE FUNCTION mmdb.train_hops(
    part_id bigint,
    candidate_ids mmdb.ids,
    epoch integer DEFAULT NULL,
    publish boolean DEFAULT TRUE
) RETURNS SETOF mmdb.hop_row
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.hop_functions import train_hops
return train_hops(plpy, GD, part_id, candidate_ids, epoch, publish)
$$;
COMMENT ON FUNCTION mmdb.train_hops(bigint, mmdb.ids, integer, boolean)
IS 'Train several candidates, one after the other, for one pass over the same partition: all of their hops, or none.';

CREATE OR REPLACE FUNCTION mmdb.run_order(
    part_id bigint,
    detail jsonb
) RETURNS SETOF mmdb.hop_row
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.hop_functions import run_order
return run_order(plpy, GD, part_id, detail)
$$;
COMMENT ON FUNCTION mmdb.run_order(bigint, jsonb)
IS 'Do what a driver orders, such as a hop; on a cluster it runs on the node of the partition.';

CREATE OR REPLACE FUNCTION mmdb.warm_node(
    part_id bigint,
    detail jsonb
) RETURNS jsonb
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.hop_functions import warm_node
return warm_node(plpy, GD, part_id, detail)
$$;
COMMENT ON FUNCTION mmdb.warm_node(bigint, jsonb)
IS 'Let the session on the node of a partition serve a driver''s worker, and load torch there.';

CREATE OR REPLACE FUNCTION mmdb.read_state(
    candidate_id bigint,
    state_hash bytea
) RETURNS TABLE (ordinal integer, data bytea)
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.hop_functions import read_state
return read_state(plpy, GD, candidate_id, state_hash)
$$;
COMMENT ON FUNCTION mmdb.read_state(bigint, bytea)
IS 'A state between two hops that lies on this node, in chunks of 1 MiB; a hop on another node pulls it.';

CREATE OR REPLACE FUNCTION mmdb.drop_state(
    candidate_id bigint,
    state_hash bytea
) RETURNS boolean
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.hop_functions import drop_state
return drop_state(plpy, GD, candidate_id, state_hash)
$$;
COMMENT ON FUNCTION mmdb.drop_state(bigint, bytea)
IS 'Delete a state between two hops from this node; without it the hops that made it are repeated.';

CREATE OR REPLACE FUNCTION mmdb.clear_cache() RETURNS boolean
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.hop_functions import clear_cache
return clear_cache(plpy, GD)
$$;
COMMENT ON FUNCTION mmdb.clear_cache()
IS 'Delete partitions, features and models from the cache of this node of a cluster, as forget has it; false on one server.';
