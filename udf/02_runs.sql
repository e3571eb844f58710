-- Runs: factories, candidates and hops.

CREATE OR REPLACE FUNCTION mmdb.register_factory(
    name text,
    target text
) RETURNS text
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.runs import register_factory
return register_factory(plpy, GD, name, target)
$$;
COMMENT ON FUNCTION mmdb.register_factory(text, text)
IS 'Allow a Python callable, package.module:callable, to build models. Owner only.';

CREATE OR REPLACE FUNCTION mmdb.create_run(
    name text,
    dataset text,
    architecture text,
    search jsonb DEFAULT '{}',
    epochs integer DEFAULT 1,
    strategy text DEFAULT 'auto',
    warm_start text DEFAULT 'off',
    seed bigint DEFAULT 0,
    options jsonb DEFAULT '{}'
) RETURNS TABLE (run_id bigint, candidates integer)
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.runs import create_run
return create_run(plpy, GD, name, dataset, architecture, search, epochs, strategy, warm_start, seed, options)
$$;
COMMENT ON FUNCTION mmdb.create_run(text, text, text, jsonb, integer, text, text, bigint, jsonb)
IS 'Turn a search space into candidates to be trained on a dataset.';

CREATE OR REPLACE FUNCTION mmdb.train_hop(
    part_id bigint,
    candidate_id bigint,
    epoch integer DEFAULT NULL,
    publish boolean DEFAULT TRUE
) RETURNS SETOF mmdb.hop_row
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.hops import train_hop
return train_hop(plpy, GD, part_id, candidate_id, epoch, publish)
$$;
COMMENT ON FUNCTION mmdb.train_hop(bigint, bigint, integer, boolean)
IS 'Train one candidate for one pass over one partition; publish leaves its state to other sessions.';

CREATE OR REPLACE FUNCTION mmdb.warm_up() RETURNS text
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.hops import warm_up
return warm_up(plpy, GD)
$$;
COMMENT ON FUNCTION mmdb.warm_up()
IS 'Load torch into this session, so that its first hop is as fast as the next.';

CREATE OR REPLACE FUNCTION mmdb.save_candidate(
    candidate_id bigint,
    name text,
    approach text DEFAULT 'auto',
    options jsonb DEFAULT '{}'
) RETURNS SETOF mmdb.model_row
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.models import save_candidate
return save_candidate(plpy, GD, candidate_id, name, approach, options)
$$;
COMMENT ON FUNCTION mmdb.save_candidate(bigint, text, text, jsonb)
IS 'Save a candidate''s best checkpoint as a new version of a model.';
