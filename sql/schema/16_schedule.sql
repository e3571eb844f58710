-- Statements that workers run again and again, and how each run went.

CREATE TABLE mmdb.schedule (
    schedule_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    name text NOT NULL,
    statement text NOT NULL,
    search_path text,
    every_s double precision NOT NULL,
    starts_at timestamptz NOT NULL,
    is_outside boolean NOT NULL,
    owner text,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT schedule_pkey PRIMARY KEY (schedule_id),
    CONSTRAINT schedule_name_key UNIQUE (name),
    CONSTRAINT schedule_every_check CHECK (every_s >= 1)
);
COMMENT ON TABLE mmdb.schedule IS 'Statements that workers run again and again.';
COMMENT ON COLUMN mmdb.schedule.search_path IS 'Where its names are looked up: the search_path of the session that stored it.';
COMMENT ON COLUMN mmdb.schedule.every_s IS 'Seconds from one due time to the next.';
COMMENT ON COLUMN mmdb.schedule.starts_at IS 'The first due time.';
COMMENT ON COLUMN mmdb.schedule.is_outside IS 'Whether it runs outside of a transaction, as a procedure that commits must.';
COMMENT ON COLUMN mmdb.schedule.owner IS 'The role with whose rights it runs; null on DuckDB.';

CREATE TABLE mmdb.schedule_run (
    schedule_run_id bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    schedule_id bigint NOT NULL,
    due_at timestamptz NOT NULL,
    tries integer NOT NULL DEFAULT 1,
    failures integer NOT NULL,
    retry_at timestamptz NOT NULL,
    started_at timestamptz NOT NULL,
    ended_at timestamptz,
    outcome text,
    sqlstate text,
    message text,
    CONSTRAINT schedule_run_pkey PRIMARY KEY (schedule_run_id),
    CONSTRAINT schedule_run_due_key UNIQUE (schedule_id, due_at),
    CONSTRAINT schedule_run_schedule_fkey FOREIGN KEY (schedule_id) REFERENCES mmdb.schedule (schedule_id),
    CONSTRAINT schedule_run_outcome_check CHECK (outcome IN ('done', 'failed'))
);
COMMENT ON TABLE mmdb.schedule_run IS 'Runs of schedules, one for each due time that was served.';
COMMENT ON COLUMN mmdb.schedule_run.tries IS 'How often it was begun.';
COMMENT ON COLUMN mmdb.schedule_run.failures IS 'Tries of the schedule that failed in a row, up to this one.';
COMMENT ON COLUMN mmdb.schedule_run.retry_at IS 'From when on it is tried again, unless it is done.';
COMMENT ON COLUMN mmdb.schedule_run.started_at IS 'Of the last try.';
COMMENT ON COLUMN mmdb.schedule_run.outcome IS 'Of the last try; null while it is under way, or where its worker died.';
