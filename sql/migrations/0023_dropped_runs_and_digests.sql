-- Runs can be dropped; a chunk's digest is of its place, too.

ALTER TABLE mmdb.run ADD COLUMN dropped_at timestamptz;
COMMENT ON COLUMN mmdb.run.name IS 'Of a run that was dropped with # and its run_id behind it: the name is free again.';
COMMENT ON COLUMN mmdb.run.dropped_at IS 'When its checkpoints were deleted; null while it can be trained.';
COMMENT ON COLUMN mmdb.tensor_chunk.digest IS 'The first 16 bytes of the BLAKE3 of its place and data; null before 0.2.';
