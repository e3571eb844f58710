-- What plans expected of steps, beside which hops show what they took.

CREATE TABLE mmdb.step_prediction (
    candidate_id bigint NOT NULL,
    fingerprint text NOT NULL,
    profiled_at timestamptz NOT NULL,
    version integer NOT NULL,
    batch_size bigint NOT NULL,
    step_s double precision NOT NULL,
    row_s double precision NOT NULL,
    features jsonb NOT NULL,
    predicted_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT step_prediction_pkey PRIMARY KEY (candidate_id, fingerprint, profiled_at, version),
    CONSTRAINT step_prediction_candidate_fkey FOREIGN KEY (candidate_id) REFERENCES mmdb.candidate (candidate_id),
    CONSTRAINT step_prediction_seconds_check CHECK (step_s >= 0 AND row_s >= 0)
);
COMMENT ON TABLE mmdb.step_prediction IS 'What a profile says of a candidate''s steps: what hops took beside it corrects later plans.';
COMMENT ON COLUMN mmdb.step_prediction.fingerprint IS 'Of the profile, as profiled_at: what another one missed is not comparable.';
COMMENT ON COLUMN mmdb.step_prediction.version IS 'Of the features and of what predicted; rows of another one are not used.';
COMMENT ON COLUMN mmdb.step_prediction.step_s IS 'Seconds of a step, to which row_s is added for each of its rows.';
COMMENT ON COLUMN mmdb.step_prediction.features IS 'Of the step, a list of numbers: mmdb/plan/step/corrections.py.';
