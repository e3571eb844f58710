-- What the hops of finished runs add up to: views of them need not read a million hops.
-- A run's totals are written when it finishes and deleted when it goes on; views add up the rest.

CREATE TABLE mmdb.run_total (
    run_id bigint NOT NULL,
    candidates bigint NOT NULL,
    failed bigint NOT NULL,
    training bigint NOT NULL,
    resting bigint NOT NULL,
    trained bigint NOT NULL,
    stopped bigint NOT NULL,
    hops_done bigint NOT NULL,
    hops_total bigint NOT NULL,
    started_at timestamptz,
    last_hop_at timestamptz,
    best_candidate_id bigint,
    best_value double precision,
    hops_per_s double precision,
    visits bigint,
    seconds double precision,
    compute_s double precision,
    read_s double precision,
    hop_s double precision,
    validation_s double precision,
    busy_s double precision,
    bytes_moved bigint,
    sealed_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT run_total_pkey PRIMARY KEY (run_id)
);
COMMENT ON TABLE mmdb.run_total
IS 'Runs that have finished, as run_progress and run_time show them; a run is here only while all its totals are.';
COMMENT ON COLUMN mmdb.run_total.visits IS 'Hops and merges; null where there are none, as all that follows.';
COMMENT ON COLUMN mmdb.run_total.sealed_at IS 'When its totals were written.';

CREATE TABLE mmdb.candidate_total (
    run_id bigint NOT NULL,
    candidate_id bigint NOT NULL,
    status text NOT NULL,
    goal integer NOT NULL,
    epochs integer,
    hops bigint NOT NULL,
    total_s double precision,
    hops_done bigint NOT NULL,
    hops_total bigint NOT NULL,
    spent_s double precision,
    best_value double precision,
    best_epoch integer,
    validation_loss double precision,
    metrics jsonb,
    error text,
    started_at timestamptz,
    last_hop_at timestamptz,
    training_loss double precision,
    rank bigint NOT NULL,
    CONSTRAINT candidate_total_pkey PRIMARY KEY (run_id, candidate_id)
);
COMMENT ON TABLE mmdb.candidate_total IS 'Candidates of the runs in run_total, as candidate_overview shows them.';

CREATE TABLE mmdb.epoch_total (
    run_id bigint NOT NULL,
    candidate_id bigint NOT NULL,
    epoch integer NOT NULL,
    candidate integer NOT NULL,
    hops bigint NOT NULL,
    row_count bigint NOT NULL,
    steps bigint NOT NULL,
    training_loss double precision,
    validation_loss double precision,
    objective double precision,
    metrics jsonb,
    compute_s double precision NOT NULL,
    total_s double precision NOT NULL,
    trained_at timestamptz NOT NULL,
    validated_at timestamptz,
    best_so_far double precision,
    CONSTRAINT epoch_total_pkey PRIMARY KEY (run_id, candidate_id, epoch)
);
COMMENT ON TABLE mmdb.epoch_total IS 'Epochs of the candidates of the runs in run_total, as candidate_progress shows them.';
COMMENT ON COLUMN mmdb.epoch_total.candidate IS 'Ordinal of the candidate in its run.';

CREATE TABLE mmdb.hour_total (
    run_id bigint NOT NULL,
    hour timestamptz NOT NULL,
    node text NOT NULL,
    worker text NOT NULL,
    hops bigint NOT NULL,
    train_hops bigint NOT NULL,
    row_count bigint NOT NULL,
    busy_s double precision NOT NULL,
    CONSTRAINT hour_total_pkey PRIMARY KEY (run_id, hour, node, worker)
);
COMMENT ON TABLE mmdb.hour_total IS 'Hours of the workers in the runs in run_total, as hops_per_hour shows them.';
