-- Searches that decide while a run is trained, other strategies than hopping, worker processes.

ALTER TABLE mmdb.run ADD COLUMN metric text;
ALTER TABLE mmdb.run ADD COLUMN maximize boolean;
COMMENT ON COLUMN mmdb.run.metric IS 'What its candidates are compared by; null where there is nothing to validate on.';
COMMENT ON COLUMN mmdb.run.maximize IS 'Whether more of the metric is better.';
ALTER TABLE mmdb.candidate ADD COLUMN parent_id bigint;
ALTER TABLE mmdb.candidate ADD COLUMN parent_state bytea;
COMMENT ON COLUMN mmdb.candidate.parent_id IS 'The candidate it was cloned from; null for fresh weights.';
COMMENT ON COLUMN mmdb.candidate.parent_state IS 'The parent''s state that it starts from; the clone has a checkpoint of it.';
ALTER TABLE mmdb.candidate_event ADD COLUMN trace text;
COMMENT ON COLUMN mmdb.candidate_event.trace IS 'The last frames of the Python traceback, where the model''s own code raised.';
ALTER TABLE mmdb.hop ADD COLUMN objective double precision;
ALTER TABLE mmdb.hop ADD COLUMN peak_bytes bigint;
ALTER TABLE mmdb.hop ADD COLUMN group_size integer;
COMMENT ON COLUMN mmdb.hop.objective IS 'The run''s metric on the validation slice; null for a train hop.';
COMMENT ON COLUMN mmdb.hop.peak_bytes IS 'The most memory of the device in use during the hop; null where it is not counted.';
COMMENT ON COLUMN mmdb.hop.group_size IS 'Workers that trained the candidate together; null for one alone.';

UPDATE mmdb.run SET metric = 'accuracy', maximize = TRUE
WHERE dataset_id IN (
    SELECT d.dataset_id FROM mmdb.dataset AS d
    WHERE d.task = 'classification' AND d.validation > 0
);
UPDATE mmdb.run SET metric = 'rmse', maximize = FALSE
WHERE dataset_id IN (
    SELECT d.dataset_id FROM mmdb.dataset AS d
    WHERE d.task = 'regression' AND d.validation > 0
);
UPDATE mmdb.hop
SET
    objective = coalesce(
        cast(metrics ->> 'accuracy' AS double precision), cast(metrics ->> 'rmse' AS double precision)
    )
WHERE part_id IN (
    SELECT p.part_id FROM mmdb.partition AS p
    WHERE p.role = 'validation'
);

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
COMMENT ON TABLE mmdb.decision IS 'What a run''s search was told and what it decided, in order; a resumed run goes through it again.';
COMMENT ON COLUMN mmdb.decision.kind IS 'Told: report (a validated epoch), want (workers were idle). Decided: start, goal, stop.';
COMMENT ON COLUMN mmdb.decision.candidate IS 'Ordinal of the candidate in its run.';
COMMENT ON COLUMN mmdb.decision.epoch IS 'Of a report: epochs done; of a start or goal: epochs to train up to.';
COMMENT ON COLUMN mmdb.decision.value IS 'The run''s metric in a report.';
COMMENT ON COLUMN mmdb.decision.detail IS 'Configuration and parent of a start; the reason of a stop.';

CREATE TABLE mmdb.run_request (
    request_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    run_id bigint NOT NULL,
    request text NOT NULL,
    priority integer NOT NULL DEFAULT 0,
    requested_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT run_request_pkey PRIMARY KEY (request_id),
    CONSTRAINT run_request_run_fkey FOREIGN KEY (run_id) REFERENCES mmdb.run (run_id),
    CONSTRAINT run_request_request_check CHECK (request IN ('submit', 'cancel', 'resume'))
);
COMMENT ON TABLE mmdb.run_request IS 'Runs handed to the worker processes, and taken back.';
COMMENT ON COLUMN mmdb.run_request.priority IS 'A run''s share of the workers doubles with each step.';

CREATE TABLE mmdb.run_outcome (
    request_id bigint NOT NULL,
    run_id bigint NOT NULL,
    ended_at timestamptz NOT NULL DEFAULT now(),
    sqlstate text,
    message text,
    CONSTRAINT run_outcome_pkey PRIMARY KEY (request_id),
    CONSTRAINT run_outcome_run_fkey FOREIGN KEY (run_id) REFERENCES mmdb.run (run_id)
);
COMMENT ON TABLE mmdb.run_outcome IS 'How the worker processes ended what was handed to them; a request without a row is under way.';
COMMENT ON COLUMN mmdb.run_outcome.sqlstate IS 'Of the error that ended the run; null if it finished.';

CREATE TABLE mmdb.candidate_request (
    request_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    candidate_id bigint NOT NULL,
    request text NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT candidate_request_pkey PRIMARY KEY (request_id),
    CONSTRAINT candidate_request_candidate_fkey FOREIGN KEY (candidate_id) REFERENCES mmdb.candidate (candidate_id),
    CONSTRAINT candidate_request_request_check CHECK (request IN ('stop', 'resume'))
);
COMMENT ON TABLE mmdb.candidate_request IS 'Candidates that someone stopped or let go on while their run was trained.';

CREATE TABLE mmdb.worker (
    worker_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    name text NOT NULL,
    process text NOT NULL,
    node text NOT NULL,
    device text NOT NULL,
    mode text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT worker_pkey PRIMARY KEY (worker_id),
    CONSTRAINT worker_mode_check CHECK (mode IN ('server', 'client'))
);
COMMENT ON TABLE mmdb.worker IS 'Slots that worker processes have offered: one device each.';
COMMENT ON COLUMN mmdb.worker.process IS 'Name of the worker process that holds the slot; it keeps a lock on it.';
COMMENT ON COLUMN mmdb.worker.mode IS 'Where its hops compute: in the server, or in the worker process.';

CREATE TABLE mmdb.worker_beat (
    worker_id bigint NOT NULL,
    beat_at timestamptz NOT NULL DEFAULT now(),
    stopped_at timestamptz,
    CONSTRAINT worker_beat_pkey PRIMARY KEY (worker_id)
);
COMMENT ON TABLE mmdb.worker_beat IS 'Signs of life, one row a slot, updated every few seconds.';
COMMENT ON COLUMN mmdb.worker_beat.stopped_at IS 'When the slot was given up in order; null while it serves, or died.';

CREATE TABLE mmdb.assignment (
    assignment_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    worker_id bigint NOT NULL,
    candidate_id bigint NOT NULL,
    epoch integer NOT NULL,
    part_id bigint,
    detail jsonb NOT NULL,
    assigned_at timestamptz NOT NULL DEFAULT now(),
    taken_at timestamptz,
    finished_at timestamptz,
    sqlstate text,
    message text,
    hint text,
    trace text,
    CONSTRAINT assignment_pkey PRIMARY KEY (assignment_id)
);
COMMENT ON TABLE mmdb.assignment IS 'Hops that the dispatcher has given to slots.';
COMMENT ON COLUMN mmdb.assignment.part_id IS 'Null for the merge of an epoch''s states.';
COMMENT ON COLUMN mmdb.assignment.detail IS 'The whole order, as the slot needs it.';
COMMENT ON COLUMN mmdb.assignment.sqlstate IS 'Of the error that ended the hop; null if it is under way or done.';
