-- A chunk's digest is of its place, too.
COMMENT ON COLUMN mmdb.tensor_chunk.digest IS 'The first 16 bytes of the BLAKE3 of the chunk''s tensor, place and data, in the first ones of data alone; null before 0.2.';
