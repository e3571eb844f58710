-- Runs can be dropped.

ALTER TABLE mmdb.run ADD COLUMN dropped_at timestamptz;
COMMENT ON COLUMN mmdb.run.name IS 'Of a run that was dropped with # and its run_id behind it: the name is free again.';
COMMENT ON COLUMN mmdb.run.dropped_at IS 'When its checkpoints were deleted; null while it can be trained.';
