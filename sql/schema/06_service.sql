-- Runs that are trained by long-lived worker processes: who asked, who serves, what each does.

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
COMMENT ON TABLE mmdb.assignment IS 'Hops that the leader has given to slots.';
COMMENT ON COLUMN mmdb.assignment.part_id IS 'Null for the merge of an epoch''s states.';
COMMENT ON COLUMN mmdb.assignment.detail IS 'The whole order, as the slot needs it.';
COMMENT ON COLUMN mmdb.assignment.sqlstate IS 'Of the error that ended the hop; null if it is under way or done.';
