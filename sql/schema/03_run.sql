-- Runs train candidates hop by hop; every row is inserted once and never updated, but for a run that is dropped.

CREATE TABLE mmdb.run (
    run_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    name text NOT NULL,
    dataset_id bigint NOT NULL,
    architecture jsonb NOT NULL,
    search jsonb NOT NULL,
    epochs integer NOT NULL,
    strategy text NOT NULL,
    warm_start text NOT NULL,
    seed bigint NOT NULL,
    options jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    metric text,
    maximize boolean,
    owner text,
    dropped_at timestamptz,
    CONSTRAINT run_pkey PRIMARY KEY (run_id),
    CONSTRAINT run_name_key UNIQUE (name),
    CONSTRAINT run_dataset_fkey FOREIGN KEY (dataset_id) REFERENCES mmdb.dataset (dataset_id),
    CONSTRAINT run_epochs_check CHECK (epochs > 0)
);
COMMENT ON TABLE mmdb.run IS 'Model-selection workloads: a dataset, candidates, epochs and a strategy.';
COMMENT ON COLUMN mmdb.run.architecture IS 'A factory with its arguments, or a layer graph.';
COMMENT ON COLUMN mmdb.run.metric IS 'What its candidates are compared by; null where there is nothing to validate on.';
COMMENT ON COLUMN mmdb.run.maximize IS 'Whether more of the metric is better.';
COMMENT ON COLUMN mmdb.run.owner IS 'As in dataset.';
COMMENT ON COLUMN mmdb.run.name IS 'Of a run that was dropped with # and its run_id behind it: the name is free again.';
COMMENT ON COLUMN mmdb.run.dropped_at IS 'When its checkpoints were deleted; null while it can be trained.';

CREATE TABLE mmdb.run_event (
    run_id bigint NOT NULL,
    happened_at timestamptz NOT NULL DEFAULT now(),
    event text NOT NULL,
    workers integer,
    message text,
    CONSTRAINT run_event_run_fkey FOREIGN KEY (run_id) REFERENCES mmdb.run (run_id),
    CONSTRAINT run_event_event_check CHECK (event IN ('started', 'replanned', 'finished', 'interrupted'))
);
COMMENT ON TABLE mmdb.run_event IS 'A row records an event of a run; the last event other than replanned is the run''s status.';
COMMENT ON COLUMN mmdb.run_event.message IS 'Of a run that was planned anew: what was said, what it has taken, and what is said now.';

CREATE TABLE mmdb.candidate (
    candidate_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    run_id bigint NOT NULL,
    ordinal integer NOT NULL,
    config jsonb NOT NULL,
    seed bigint NOT NULL,
    parent_id bigint,
    parent_state bytea,
    architecture_hash bytea,
    CONSTRAINT candidate_pkey PRIMARY KEY (candidate_id),
    CONSTRAINT candidate_run_ordinal_key UNIQUE (run_id, ordinal),
    CONSTRAINT candidate_run_fkey FOREIGN KEY (run_id) REFERENCES mmdb.run (run_id)
);
COMMENT ON TABLE mmdb.candidate IS 'The configurations of a run, 0..C-1.';
COMMENT ON COLUMN mmdb.candidate.config IS 'Hyper-parameters, and architecture arguments below "architecture.".';
COMMENT ON COLUMN mmdb.candidate.seed IS 'Seed of the initial weights, from the run''s seed and the ordinal.';
COMMENT ON COLUMN mmdb.candidate.parent_id IS 'The candidate it was cloned from; null for fresh weights.';
COMMENT ON COLUMN mmdb.candidate.parent_state IS 'The parent''s state that it starts from; the clone has a checkpoint of it.';
COMMENT ON COLUMN mmdb.candidate.architecture_hash IS 'BLAKE3-256 of the architecture with its arguments.';

CREATE TABLE mmdb.candidate_event (
    candidate_id bigint NOT NULL,
    happened_at timestamptz NOT NULL DEFAULT now(),
    event text NOT NULL,
    sqlstate text,
    message text,
    trace text,
    CONSTRAINT candidate_event_candidate_fkey FOREIGN KEY (candidate_id) REFERENCES mmdb.candidate (candidate_id),
    CONSTRAINT candidate_event_event_check CHECK (event IN ('failed'))
);
COMMENT ON TABLE mmdb.candidate_event IS 'A row records the error that ended a candidate before its last epoch.';
COMMENT ON COLUMN mmdb.candidate_event.trace IS 'The last frames of the Python traceback, where the model''s own code raised.';

CREATE TABLE mmdb.hop (
    part_id bigint NOT NULL,
    candidate_id bigint NOT NULL,
    epoch integer NOT NULL,
    ordinal integer NOT NULL,
    seed bigint NOT NULL,
    row_count bigint NOT NULL,
    steps integer NOT NULL,
    loss double precision NOT NULL,
    metrics jsonb NOT NULL,
    read_s double precision NOT NULL,
    load_s double precision NOT NULL,
    compute_s double precision NOT NULL,
    store_s double precision NOT NULL,
    total_s double precision NOT NULL,
    state_in bytea NOT NULL,
    state_out bytea NOT NULL,
    state_bytes bigint NOT NULL,
    worker text NOT NULL,
    node text NOT NULL,
    device text NOT NULL,
    environment text NOT NULL,
    started_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    objective double precision,
    peak_bytes bigint,
    group_size integer,
    CONSTRAINT hop_pkey PRIMARY KEY (part_id, candidate_id, epoch),
    CONSTRAINT hop_partition_fkey FOREIGN KEY (part_id) REFERENCES mmdb.partition (part_id),
    CONSTRAINT hop_candidate_fkey FOREIGN KEY (candidate_id) REFERENCES mmdb.candidate (candidate_id)
);
COMMENT ON TABLE mmdb.hop IS 'One candidate trained for one pass over one partition, or validated on the validation slice.';
COMMENT ON COLUMN mmdb.hop.ordinal IS 'Place of the hop in its candidate''s order, from 0.';
COMMENT ON COLUMN mmdb.hop.seed IS 'Seed of row order and dropout, from (run seed, candidate, epoch, partition).';
COMMENT ON COLUMN mmdb.hop.loss IS 'Mean loss over the rows, each counted before the step that its batch caused.';
COMMENT ON COLUMN mmdb.hop.read_s IS 'Seconds that fetched and decoded the partition; 0 when it was mapped already.';
COMMENT ON COLUMN mmdb.hop.load_s IS 'Seconds that fetched and decoded the state; 0 when the session held it.';
COMMENT ON COLUMN mmdb.hop.compute_s IS 'Seconds in forward, backward and optimizer steps.';
COMMENT ON COLUMN mmdb.hop.store_s IS 'Seconds that encoded, hashed, moved and wrote the state.';
COMMENT ON COLUMN mmdb.hop.total_s IS 'Seconds of the whole hop; what the phases leave over is its start-up.';
COMMENT ON COLUMN mmdb.hop.state_in IS 'BLAKE3-256 of the encoded state before the hop.';
COMMENT ON COLUMN mmdb.hop.state_out IS 'BLAKE3-256 of the encoded state after the hop.';
COMMENT ON COLUMN mmdb.hop.environment IS 'What the bits depend on: torch build, CPU capability, threads.';
COMMENT ON COLUMN mmdb.hop.objective IS 'The run''s metric on the validation slice; null for a train hop.';
COMMENT ON COLUMN mmdb.hop.peak_bytes IS 'The most memory of the device in use during the hop; null where it is not counted.';
COMMENT ON COLUMN mmdb.hop.group_size IS 'Workers that trained the candidate together; null for one alone.';

CREATE TABLE mmdb.checkpoint (
    part_id bigint NOT NULL,
    candidate_id bigint NOT NULL,
    state_hash bytea NOT NULL,
    epoch integer NOT NULL,
    byte_count bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT checkpoint_pkey PRIMARY KEY (part_id, candidate_id, state_hash)
);
COMMENT ON TABLE mmdb.checkpoint IS 'States made durable at an epoch''s end; the last and the best of each candidate are kept.';
COMMENT ON COLUMN mmdb.checkpoint.part_id IS 'Partition of the hop that left the state, whose node holds its chunks.';

CREATE TABLE mmdb.checkpoint_chunk (
    part_id bigint NOT NULL,
    candidate_id bigint NOT NULL,
    state_hash bytea NOT NULL,
    ordinal integer NOT NULL,
    data bytea NOT NULL,
    CONSTRAINT checkpoint_chunk_pkey PRIMARY KEY (part_id, candidate_id, state_hash, ordinal)
);
COMMENT ON TABLE mmdb.checkpoint_chunk IS 'The bytes of checkpoints, in chunks of 1 MiB.';

CREATE TABLE mmdb.merge (
    candidate_id bigint NOT NULL,
    epoch integer NOT NULL,
    part_id bigint NOT NULL,
    state_out bytea NOT NULL,
    state_bytes bigint NOT NULL,
    total_s double precision NOT NULL,
    worker text NOT NULL,
    node text NOT NULL,
    started_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    CONSTRAINT merge_pkey PRIMARY KEY (candidate_id, epoch)
);
COMMENT ON TABLE mmdb.merge IS 'Model averaging: one state for each candidate and epoch, out of those that its hops left.';
COMMENT ON COLUMN mmdb.merge.part_id IS 'Partition whose node holds the merged state.';
COMMENT ON COLUMN mmdb.merge.state_out IS 'BLAKE3-256 of the mean of the epoch''s states, weighted by their rows.';

CREATE TABLE mmdb.decision (
    run_id bigint NOT NULL,
    ordinal integer NOT NULL,
    kind text NOT NULL,
    candidate integer,
    epoch integer,
    value double precision,
    detail jsonb,
    decided_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT decision_pkey PRIMARY KEY (run_id, ordinal),
    CONSTRAINT decision_kind_check CHECK (kind IN ('report', 'want', 'start', 'goal', 'stop'))
);
COMMENT ON TABLE mmdb.decision IS 'A row records a report to a run''s search or one of its decisions; a resumed run replays them in order.';
COMMENT ON COLUMN mmdb.decision.kind IS 'Told: report (a validated epoch), want (workers were idle). Decided: start, goal, stop.';
COMMENT ON COLUMN mmdb.decision.candidate IS 'Ordinal of the candidate in its run.';
COMMENT ON COLUMN mmdb.decision.epoch IS 'Of a report: epochs done; of a start or goal: epochs to train up to.';
COMMENT ON COLUMN mmdb.decision.value IS 'The run''s metric in a report.';
COMMENT ON COLUMN mmdb.decision.detail IS 'Configuration and parent of a start; the reason of a stop.';
