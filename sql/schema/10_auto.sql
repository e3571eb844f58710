-- What strategy => 'auto' came to, and the steps that were measured so as to decide.

CREATE TABLE mmdb.run_strategy (
    run_id bigint NOT NULL,
    strategy text NOT NULL,
    group_size integer NOT NULL,
    workers integer,
    plan_id bigint,
    reason text NOT NULL,
    decided_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT run_strategy_pkey PRIMARY KEY (run_id),
    CONSTRAINT run_strategy_run_fkey FOREIGN KEY (run_id) REFERENCES mmdb.run (run_id)
);
COMMENT ON TABLE mmdb.run_strategy IS 'How runs with the strategy auto are trained, from their first hop on.';
COMMENT ON COLUMN mmdb.run_strategy.group_size IS 'Workers that train one candidate together; 1 for one alone.';
COMMENT ON COLUMN mmdb.run_strategy.workers IS 'How many of them the plan takes; null where they were given.';
COMMENT ON COLUMN mmdb.run_strategy.plan_id IS 'The plan that decided; null without one.';

CREATE TABLE mmdb.step_time (
    candidate_id bigint NOT NULL,
    node text NOT NULL,
    device text NOT NULL,
    environment text NOT NULL,
    row_count bigint NOT NULL,
    steps integer NOT NULL,
    seconds double precision NOT NULL,
    state_bytes bigint NOT NULL,
    measured_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT step_time_candidate_fkey FOREIGN KEY (candidate_id) REFERENCES mmdb.candidate (candidate_id)
);
COMMENT ON TABLE mmdb.step_time IS 'Training steps that a plan measured, on a copy that was thrown away.';
COMMENT ON COLUMN mmdb.step_time.environment IS 'As in hop.';
COMMENT ON COLUMN mmdb.step_time.row_count IS 'Rows of all the steps together.';
COMMENT ON COLUMN mmdb.step_time.seconds IS 'Of all the steps: the median one times their number.';
COMMENT ON COLUMN mmdb.step_time.state_bytes IS 'Of the state encoded: weights, buffers, optimizer.';
