-- What 0003_training_service.sql needs on PostgreSQL alone.

CREATE INDEX run_request_run_idx ON mmdb.run_request (run_id);
CREATE INDEX candidate_request_candidate_idx ON mmdb.candidate_request (candidate_id);
CREATE INDEX assignment_worker_idx ON mmdb.assignment (worker_id) WHERE finished_at IS NULL;

DROP FUNCTION mmdb.warm_up();
ALTER TYPE mmdb.hop_row ADD ATTRIBUTE objective double precision;
ALTER TYPE mmdb.hop_row ADD ATTRIBUTE state_bytes bigint;
ALTER TYPE mmdb.hop_row ADD ATTRIBUTE group_size integer;
CREATE TYPE mmdb.merge_row AS (
    candidate_id bigint,
    epoch integer,
    part_id bigint,
    state_out text,
    total_s double precision
);
COMMENT ON TYPE mmdb.merge_row IS 'What merge_epoch returns; the state is named by its BLAKE3-256 in hex.';
CREATE TYPE mmdb.request_row AS (
    request_id bigint,
    run text,
    request text,
    priority integer,
    status text,
    hops_done bigint,
    hops_total bigint
);
COMMENT ON TYPE mmdb.request_row IS 'A request about a run, and how far the run is.';
