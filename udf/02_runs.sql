-- Runs: factories, candidates and hops.

CREATE OR REPLACE FUNCTION mmdb.register_factory(
    name text,
    target text
) RETURNS text
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.run_functions import register_factory
return register_factory(plpy, GD, name, target)
$$;
COMMENT ON FUNCTION mmdb.register_factory(text, text)
IS 'Allow a Python callable, package.module:callable, to build models. Owner only.';

CREATE OR REPLACE FUNCTION mmdb.create_run(
    name text,
    dataset text,
    architecture text DEFAULT NULL,
    search jsonb DEFAULT '{}',
    epochs integer DEFAULT NULL,
    strategy text DEFAULT 'auto',
    warm_start text DEFAULT 'off',
    seed bigint DEFAULT 0,
    options jsonb DEFAULT '{}',
    budget text DEFAULT NULL,
    per text DEFAULT NULL
) RETURNS TABLE (run_id bigint, candidates integer)
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.run_functions import create_run
return create_run(
    plpy, GD, name, dataset, architecture, search, epochs, strategy, warm_start, seed, options, budget, per
)
$$;
COMMENT ON FUNCTION mmdb.create_run(text, text, text, jsonb, integer, text, text, bigint, jsonb, text, text)
IS 'Turn a search space into candidates to be trained on a dataset.';

CREATE OR REPLACE FUNCTION mmdb.drop_run(
    run text
) RETURNS bigint
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.run_functions import drop_run
return drop_run(plpy, GD, run)
$$;
COMMENT ON FUNCTION mmdb.drop_run(text)
IS 'Delete a run''s checkpoints, free its name and return the bytes freed; its models and lineage stay.';

CREATE OR REPLACE FUNCTION mmdb.train_hop(
    part_id bigint,
    candidate_id bigint,
    epoch integer DEFAULT NULL,
    publish boolean DEFAULT TRUE
) RETURNS SETOF mmdb.hop_row
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.hop_functions import train_hop
return train_hop(plpy, GD, part_id, candidate_id, epoch, publish)
$$;
COMMENT ON FUNCTION mmdb.train_hop(bigint, bigint, integer, boolean)
IS 'Train one candidate for one pass over one partition; publish leaves its state to other sessions.';

CREATE OR REPLACE FUNCTION mmdb.warm_up(
    device text DEFAULT 'cpu'
) RETURNS text
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.hop_functions import warm_up
return warm_up(plpy, GD, device)
$$;
COMMENT ON FUNCTION mmdb.warm_up(text)
IS 'Load torch into this session, so that its first hop is as fast as the next; its hops run on the device.';

CREATE OR REPLACE FUNCTION mmdb.save_candidate(
    candidate_id bigint,
    name text,
    approach text DEFAULT 'auto',
    options jsonb DEFAULT '{}'
) RETURNS SETOF mmdb.model_row
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.model_functions import save_candidate
return save_candidate(plpy, GD, candidate_id, name, approach, options)
$$;
COMMENT ON FUNCTION mmdb.save_candidate(bigint, text, text, jsonb)
IS 'Save a candidate''s best checkpoint as a new version of a model.';

CREATE OR REPLACE FUNCTION mmdb.train_group(
    part_ids mmdb.ids,
    candidate_id bigint,
    epoch integer,
    member jsonb
) RETURNS SETOF mmdb.hop_row
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.hop_functions import train_group
return train_group(plpy, GD, part_ids, candidate_id, epoch, member)
$$;
COMMENT ON FUNCTION mmdb.train_group(mmdb.ids, bigint, integer, jsonb)
IS 'Train a candidate together with other sessions, each on one partition; a driver calls it in all of them.';

CREATE OR REPLACE FUNCTION mmdb.merge_epoch(
    candidate_id bigint,
    epoch integer
) RETURNS SETOF mmdb.merge_row
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.hop_functions import merge_epoch
return merge_epoch(plpy, GD, candidate_id, epoch)
$$;
COMMENT ON FUNCTION mmdb.merge_epoch(bigint, integer)
IS 'Average the states that a candidate''s hops of an epoch have left; strategy model_average.';

CREATE OR REPLACE FUNCTION mmdb.stop_candidate(
    candidate_id bigint
) RETURNS bigint
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.run_functions import stop_candidate
return stop_candidate(plpy, GD, candidate_id)
$$;
COMMENT ON FUNCTION mmdb.stop_candidate(bigint)
IS 'Let a candidate do no more hops; its run goes on, and it can be resumed.';

CREATE OR REPLACE FUNCTION mmdb.resume_candidate(
    candidate_id bigint
) RETURNS bigint
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.run_functions import resume_candidate
return resume_candidate(plpy, GD, candidate_id)
$$;
COMMENT ON FUNCTION mmdb.resume_candidate(bigint)
IS 'Let a candidate that was stopped, or rests, train for all epochs of its run.';

CREATE OR REPLACE FUNCTION mmdb.clone_candidate(
    candidate_id bigint,
    config jsonb DEFAULT '{}'
) RETURNS bigint
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.run_functions import clone_candidate
return clone_candidate(plpy, GD, candidate_id, config)
$$;
COMMENT ON FUNCTION mmdb.clone_candidate(bigint, jsonb)
IS 'Add a candidate that goes on from another one''s last checkpoint, with other hyper-parameters.';

CREATE OR REPLACE FUNCTION mmdb.begin_candidate(
    candidate_id bigint
) RETURNS SETOF mmdb.warm_start_row
LANGUAGE plpython3u VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
from mmdb.server.hop_functions import begin_candidate
return begin_candidate(plpy, GD, candidate_id)
$$;
COMMENT ON FUNCTION mmdb.begin_candidate(bigint)
IS 'Settle what a candidate of a run with a warm start begins with, as its first hop does.';
