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
from mmdb.server.training import train
return train(plpy, GD, run, workers)
$$;
COMMENT ON PROCEDURE mmdb.train (text, integer, integer, integer, integer, double precision, bigint, text)
IS 'Train a run to its end with sessions of its own, by the login in mmdb.setting ''worker_dsn''.';
