-- What people say about models: aliases, tags, metrics, notes, probes.

CREATE TABLE mmdb.alias_event (
    event_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    model text NOT NULL,
    alias text NOT NULL,
    version integer,
    happened_at timestamptz NOT NULL DEFAULT now(),
    author text NOT NULL DEFAULT '',
    CONSTRAINT alias_event_pkey PRIMARY KEY (event_id)
);
COMMENT ON TABLE mmdb.alias_event IS 'Every move of an alias; its last event says where it is.';
COMMENT ON COLUMN mmdb.alias_event.author IS 'The session''s user on PostgreSQL; empty on DuckDB, whose file has one.';
COMMENT ON COLUMN mmdb.alias_event.version IS 'Null where the alias was taken away.';

CREATE TABLE mmdb.model_tag (
    model_id bigint NOT NULL,
    key text NOT NULL,
    value text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT model_tag_pkey PRIMARY KEY (model_id, key),
    CONSTRAINT model_tag_model_fkey FOREIGN KEY (model_id) REFERENCES mmdb.model (model_id)
);
COMMENT ON TABLE mmdb.model_tag IS 'Tags of a model, one value for each key.';

CREATE TABLE mmdb.model_metric (
    model_id bigint NOT NULL,
    metric text NOT NULL,
    dataset text NOT NULL,
    value double precision NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT model_metric_pkey PRIMARY KEY (model_id, metric, dataset),
    CONSTRAINT model_metric_model_fkey FOREIGN KEY (model_id) REFERENCES mmdb.model (model_id)
);
COMMENT ON TABLE mmdb.model_metric IS 'Metrics of a model, those of its training among them.';
COMMENT ON COLUMN mmdb.model_metric.dataset IS 'What it was measured on; empty where that was not said.';

CREATE TABLE mmdb.model_note (
    note_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    model_id bigint NOT NULL,
    note text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    author text NOT NULL DEFAULT '',
    CONSTRAINT model_note_pkey PRIMARY KEY (note_id),
    CONSTRAINT model_note_model_fkey FOREIGN KEY (model_id) REFERENCES mmdb.model (model_id)
);
COMMENT ON TABLE mmdb.model_note IS 'What people wrote about a model.';

CREATE TABLE mmdb.probe (
    probe_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    name text NOT NULL,
    model_id bigint,
    summary jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT probe_pkey PRIMARY KEY (probe_id),
    CONSTRAINT probe_model_fkey FOREIGN KEY (model_id) REFERENCES mmdb.model (model_id)
);
COMMENT ON TABLE mmdb.probe IS 'Layer-by-layer digests of forward and backward passes, to compare later.';

CREATE TABLE mmdb.trainer (
    name text NOT NULL,
    target text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT trainer_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE mmdb.trainer IS 'Allow-list of the training functions that recipes may name.';
COMMENT ON COLUMN mmdb.trainer.target IS 'package.module:callable, which trains a module in place.';

CREATE TABLE mmdb.retraining (
    run_id bigint NOT NULL,
    model_id bigint NOT NULL,
    mode text NOT NULL,
    new_model_id bigint,
    metric text,
    old_value double precision,
    new_value double precision,
    chance double precision,
    passed boolean,
    alias text,
    reason text,
    created_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    CONSTRAINT retraining_pkey PRIMARY KEY (run_id),
    CONSTRAINT retraining_run_fkey FOREIGN KEY (run_id) REFERENCES mmdb.run (run_id),
    CONSTRAINT retraining_mode_check CHECK (mode IN ('continue', 'scratch', 'search'))
);
COMMENT ON TABLE mmdb.retraining IS 'Runs that retrain a model, and whether what they came to takes its place.';
COMMENT ON COLUMN mmdb.retraining.model_id IS 'The model that is retrained.';
COMMENT ON COLUMN mmdb.retraining.mode IS 'continue: from its weights, on new rows and some old; scratch: anew; search: the run anew.';
COMMENT ON COLUMN mmdb.retraining.new_model_id IS 'The version that came of it.';
COMMENT ON COLUMN mmdb.retraining.old_value IS 'The metric of the model on the rows that are held out, of both the same.';
COMMENT ON COLUMN mmdb.retraining.chance IS 'How probable it is that the new one is not as much better as the gate asks.';
COMMENT ON COLUMN mmdb.retraining.passed IS 'Whether the gate let it through.';
COMMENT ON COLUMN mmdb.retraining.alias IS 'The alias that moved to it; null: none.';
