-- A chunk's digest is of its place, too.
COMMENT ON COLUMN mmdb.tensor_chunk.digest IS 'The first 16 bytes of the BLAKE3 of its place and data; null before 0.2.';
