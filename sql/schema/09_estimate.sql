-- What plans said of runs, before they were trained.

CREATE TABLE mmdb.plan (
    plan_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    run_id bigint NOT NULL,
    planned_at timestamptz NOT NULL DEFAULT now(),
    candidates integer NOT NULL,
    measured integer NOT NULL,
    options jsonb NOT NULL,
    notes jsonb NOT NULL,
    simulated boolean NOT NULL,
    assumed boolean NOT NULL,
    CONSTRAINT plan_pkey PRIMARY KEY (plan_id),
    CONSTRAINT plan_run_fkey FOREIGN KEY (run_id) REFERENCES mmdb.run (run_id)
);
COMMENT ON TABLE mmdb.plan IS 'What explain_train was asked, once for each call; what it said is in estimate.';
COMMENT ON COLUMN mmdb.plan.candidates IS 'How many of the run were planned for.';
COMMENT ON COLUMN mmdb.plan.measured IS 'How many of them have costs that rest on hops like theirs.';
COMMENT ON COLUMN mmdb.plan.notes IS 'What whoever reads the plan should know, a list of texts.';
COMMENT ON COLUMN mmdb.plan.simulated IS 'Whether it is for a cluster that was described, not for this machine.';
COMMENT ON COLUMN mmdb.plan.assumed IS 'Whether costs were assumed: neither a calibration nor hops had shown them.';

CREATE TABLE mmdb.estimate (
    plan_id bigint NOT NULL,
    rank integer NOT NULL,
    strategy text NOT NULL,
    workers integer NOT NULL,
    group_size integer NOT NULL,
    partitions integer NOT NULL,
    batch_size integer,
    knobs jsonb NOT NULL,
    chosen boolean NOT NULL,
    t_p10 double precision NOT NULL,
    t_p50 double precision NOT NULL,
    t_p90 double precision NOT NULL,
    lower_bound double precision NOT NULL,
    compute_s double precision NOT NULL,
    read_s double precision NOT NULL,
    hop_s double precision NOT NULL,
    communication_s double precision NOT NULL,
    validation_s double precision NOT NULL,
    idle_s double precision NOT NULL,
    bytes_moved bigint NOT NULL,
    peak_memory bigint NOT NULL,
    hops bigint NOT NULL,
    feasible boolean NOT NULL,
    why_not text,
    executed boolean NOT NULL,
    CONSTRAINT estimate_pkey PRIMARY KEY (plan_id, rank),
    CONSTRAINT estimate_plan_fkey FOREIGN KEY (plan_id) REFERENCES mmdb.plan (plan_id)
);
COMMENT ON TABLE mmdb.estimate IS 'What a plan says of each way of training a run, the best first.';
COMMENT ON COLUMN mmdb.estimate.group_size IS 'Workers that train one candidate together; 1 for one alone.';
COMMENT ON COLUMN mmdb.estimate.batch_size IS 'Of all candidates; null where each has its own.';
COMMENT ON COLUMN mmdb.estimate.knobs IS 'The policy of hops, workers of the fullest node, servers, micro-batches.';
COMMENT ON COLUMN mmdb.estimate.chosen IS 'Whether train would do it so.';
COMMENT ON COLUMN mmdb.estimate.t_p50 IS 'Median seconds from the first hop to the last; one run in ten is below t_p10, one above t_p90.';
COMMENT ON COLUMN mmdb.estimate.lower_bound IS 'Seconds that no order of hops can go below.';
COMMENT ON COLUMN mmdb.estimate.compute_s IS 'Worker-seconds in training steps; the six phases together are workers times t_p50.';
COMMENT ON COLUMN mmdb.estimate.bytes_moved IS 'Of states and gradients, between workers or to and from where states lie.';
COMMENT ON COLUMN mmdb.estimate.peak_memory IS 'Bytes of the processes of the fullest node, at most.';
COMMENT ON COLUMN mmdb.estimate.executed IS 'False for a what-if: a strategy that mmdb can only predict.';
