-- Rows that were forgotten: what they had reached, and what became of it.

CREATE TABLE mmdb.forgetting (
    forgetting_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    dataset_id bigint NOT NULL,
    row_count bigint NOT NULL,
    note text,
    author text NOT NULL DEFAULT '',
    begun_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT forgetting_pkey PRIMARY KEY (forgetting_id),
    CONSTRAINT forgetting_dataset_fkey FOREIGN KEY (dataset_id) REFERENCES mmdb.dataset (dataset_id)
);
COMMENT ON TABLE mmdb.forgetting IS 'Calls of forget: rows that were erased from a dataset and its versions.';
COMMENT ON COLUMN mmdb.forgetting.dataset_id IS 'Its last version then.';
COMMENT ON COLUMN mmdb.forgetting.row_count IS 'Rows that were erased from its blocks; which ones is not kept.';
COMMENT ON COLUMN mmdb.forgetting.note IS 'What the caller said of it, such as the number of a request.';
COMMENT ON COLUMN mmdb.forgetting.author IS 'The session''s user; empty on DuckDB, which has none.';

CREATE TABLE mmdb.forgetting_step (
    forgetting_id bigint NOT NULL,
    ordinal integer NOT NULL,
    entity text NOT NULL,
    action text NOT NULL,
    row_count bigint,
    before_hash text,
    after_hash text,
    model_id bigint,
    new_model_id bigint,
    reason text,
    done_at timestamptz,
    CONSTRAINT forgetting_step_pkey PRIMARY KEY (forgetting_id, ordinal),
    CONSTRAINT forgetting_step_forgetting_fkey FOREIGN KEY (forgetting_id) REFERENCES mmdb.forgetting (forgetting_id),
    CONSTRAINT forgetting_step_action_check CHECK (action IN ('erase', 'drop', 'withdraw', 'remake', 'check'))
);
COMMENT ON TABLE mmdb.forgetting_step IS 'Steps of calls of forget: a thing that the rows had reached, and what became of it.';
COMMENT ON COLUMN mmdb.forgetting_step.entity IS 'As lineage() takes it: partition:12, model:name@version.';
COMMENT ON COLUMN mmdb.forgetting_step.action
IS 'erase: rows of it; drop: all of it; withdraw: a version; remake: a version without the rows; check: left to people.';
COMMENT ON COLUMN mmdb.forgetting_step.row_count IS 'Forgotten rows that a partition had.';
COMMENT ON COLUMN mmdb.forgetting_step.before_hash IS 'BLAKE3-256 in hex of a partition''s content, or of a model''s weights, before.';
COMMENT ON COLUMN mmdb.forgetting_step.after_hash IS 'The same afterwards.';
COMMENT ON COLUMN mmdb.forgetting_step.model_id IS 'The model that is withdrawn or made again.';
COMMENT ON COLUMN mmdb.forgetting_step.new_model_id IS 'The version that took its place.';
COMMENT ON COLUMN mmdb.forgetting_step.done_at IS 'When it was done; null: not yet.';
