-- The zoo: models offered as parents for warm starts, and which tensor came from which parent.

CREATE TABLE mmdb.outline (
    architecture_id bigint NOT NULL,
    version integer NOT NULL,
    layer_count integer NOT NULL,
    parameter_count bigint NOT NULL,
    packed bytea NOT NULL,
    CONSTRAINT outline_pkey PRIMARY KEY (architecture_id, version),
    CONSTRAINT outline_architecture_fkey FOREIGN KEY (architecture_id) REFERENCES mmdb.architecture (architecture_id)
);
COMMENT ON TABLE mmdb.outline IS 'Outlines of architectures, packed for the search of parents.';
COMMENT ON COLUMN mmdb.outline.version IS 'Of how outlines are made and packed; those of another one are made anew, beside it.';
COMMENT ON COLUMN mmdb.outline.layer_count IS 'Layers with tensors, and places where results meet.';
COMMENT ON COLUMN mmdb.outline.packed IS 'As mmdb/graph/match/pack.py writes it.';

CREATE TABLE mmdb.zoo_event (
    event_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    model_id bigint NOT NULL,
    event text NOT NULL,
    reason text NOT NULL,
    by_rule boolean NOT NULL,
    happened_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT zoo_event_pkey PRIMARY KEY (event_id),
    CONSTRAINT zoo_event_model_fkey FOREIGN KEY (model_id) REFERENCES mmdb.model (model_id),
    CONSTRAINT zoo_event_event_check CHECK (event IN ('admitted', 'refused', 'evicted', 'hit'))
);
COMMENT ON TABLE mmdb.zoo_event IS 'What became of models in the zoo, with reasons: the last but hits says whether it is in.';
COMMENT ON COLUMN mmdb.zoo_event.event IS 'hit: it was taken as a parent.';
COMMENT ON COLUMN mmdb.zoo_event.by_rule IS 'False where somebody said so: rules leave that alone.';

CREATE TABLE mmdb.transfer (
    transfer_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    parent_id bigint,
    parent_candidate_id bigint,
    parent_state bytea,
    candidate_id bigint,
    model_id bigint,
    similarity double precision NOT NULL,
    coverage double precision NOT NULL,
    options jsonb NOT NULL,
    reason text NOT NULL,
    match_s double precision NOT NULL,
    transfer_s double precision NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT transfer_pkey PRIMARY KEY (transfer_id),
    CONSTRAINT transfer_parent_fkey FOREIGN KEY (parent_id) REFERENCES mmdb.model (model_id),
    CONSTRAINT transfer_parent_check CHECK ((parent_id IS NULL) <> (parent_candidate_id IS NULL))
);
COMMENT ON TABLE mmdb.transfer IS 'Warm starts: tensors carried over from a parent to a candidate, or to a module outside of runs.';
COMMENT ON COLUMN mmdb.transfer.parent_id IS 'model_id of the parent; null where it is a candidate of the same run.';
COMMENT ON COLUMN mmdb.transfer.parent_candidate_id IS 'The candidate that is the parent.';
COMMENT ON COLUMN mmdb.transfer.parent_state IS 'BLAKE3-256 of the parent''s state; of a model''s, only where its optimizer goes on.';
COMMENT ON COLUMN mmdb.transfer.candidate_id IS 'Null for a module outside of runs.';
COMMENT ON COLUMN mmdb.transfer.model_id IS 'The model that was saved from a module outside of runs; null for candidates.';
COMMENT ON COLUMN mmdb.transfer.coverage IS 'Share of the child''s parameters that come from the parent.';
COMMENT ON COLUMN mmdb.transfer.options IS 'Version of the operators, seed, shrink, and what else the bits depend on.';
COMMENT ON COLUMN mmdb.transfer.match_s IS 'Seconds that the search of a parent took.';
COMMENT ON COLUMN mmdb.transfer.transfer_s IS 'Seconds that reading the parent and making the child''s tensors took.';

CREATE TABLE mmdb.transfer_tensor (
    transfer_id bigint NOT NULL,
    ordinal integer NOT NULL,
    path text NOT NULL,
    parent_path text,
    operator text NOT NULL,
    fraction double precision NOT NULL,
    reason text,
    CONSTRAINT transfer_tensor_pkey PRIMARY KEY (transfer_id, ordinal),
    CONSTRAINT transfer_tensor_transfer_fkey FOREIGN KEY (transfer_id) REFERENCES mmdb.transfer (transfer_id)
);
COMMENT ON TABLE mmdb.transfer_tensor IS 'Where each tensor of a warm-started child came from.';
COMMENT ON COLUMN mmdb.transfer_tensor.parent_path IS 'Null where nothing of the tensor came from the parent.';
COMMENT ON COLUMN mmdb.transfer_tensor.operator IS 'copy, widen, narrow, kernel, deepen, identity, fresh ...';
COMMENT ON COLUMN mmdb.transfer_tensor.fraction IS 'Share of the tensor''s elements that come from the parent.';

CREATE TABLE mmdb.warm_start (
    candidate_id bigint NOT NULL,
    transfer_id bigint,
    state_hash bytea,
    lr_scale double precision NOT NULL,
    lr_epochs integer NOT NULL,
    reason text NOT NULL,
    match_s double precision NOT NULL,
    decided_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT warm_start_pkey PRIMARY KEY (candidate_id),
    CONSTRAINT warm_start_candidate_fkey FOREIGN KEY (candidate_id) REFERENCES mmdb.candidate (candidate_id),
    CONSTRAINT warm_start_transfer_fkey FOREIGN KEY (transfer_id) REFERENCES mmdb.transfer (transfer_id)
);
COMMENT ON TABLE mmdb.warm_start IS 'What candidates of runs with a warm start begin with, decided at their first hop, and why.';
COMMENT ON COLUMN mmdb.warm_start.transfer_id IS 'Null where it begins with fresh weights, or came from another database.';
COMMENT ON COLUMN mmdb.warm_start.state_hash IS 'BLAKE3-256 of its first state, kept as a checkpoint; null where its seed gives it.';
COMMENT ON COLUMN mmdb.warm_start.lr_scale IS 'What the learning rate is multiplied by in the first epochs.';
COMMENT ON COLUMN mmdb.warm_start.lr_epochs IS 'How many epochs that are.';
COMMENT ON COLUMN mmdb.warm_start.match_s IS 'Seconds that the search of a parent took.';
