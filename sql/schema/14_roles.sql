-- Whose things are, who else may read them, and how much a role may use; sql/engines/postgres_teams.sql.

CREATE TABLE mmdb.share (
    kind text NOT NULL,
    object_id bigint NOT NULL,
    role text NOT NULL,
    shared_at timestamptz NOT NULL DEFAULT now(),
    author text NOT NULL DEFAULT '',
    CONSTRAINT share_pkey PRIMARY KEY (kind, object_id, role),
    CONSTRAINT share_kind_check CHECK (kind IN ('dataset', 'run', 'model'))
);
COMMENT ON TABLE mmdb.share IS 'What teams let other roles read; it means something in databases with teams.';
COMMENT ON COLUMN mmdb.share.object_id IS 'dataset_id, run_id or model_id, as kind says.';
COMMENT ON COLUMN mmdb.share.role IS 'The role that may read it, with its members; public is everybody.';
COMMENT ON COLUMN mmdb.share.author IS 'The session''s user.';

CREATE TABLE mmdb.role_limit (
    role text NOT NULL,
    workers integer,
    bytes bigint,
    seconds double precision,
    predict_rows bigint,
    memory_bytes bigint,
    CONSTRAINT role_limit_pkey PRIMARY KEY (role),
    CONSTRAINT role_limit_check CHECK (workers >= 0 AND bytes >= 0 AND seconds >= 0 AND predict_rows >= 0)
);
COMMENT ON TABLE mmdb.role_limit IS 'How much the owners of datasets, runs and models may use; null is without limit.';
COMMENT ON COLUMN mmdb.role_limit.role IS 'The owner; the row of public holds for each owner that has none.';
COMMENT ON COLUMN mmdb.role_limit.workers IS 'Workers of its runs at one time.';
COMMENT ON COLUMN mmdb.role_limit.bytes IS 'Bytes of its datasets'' blocks and its models'' tensors together.';
COMMENT ON COLUMN mmdb.role_limit.seconds IS 'Seconds of work on its runs within 24 hours.';
COMMENT ON COLUMN mmdb.role_limit.predict_rows IS 'Rows that one statement of its may predict.';
COMMENT ON COLUMN mmdb.role_limit.memory_bytes IS 'Bytes of memory that one call of its may take.';
