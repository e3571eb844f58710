-- How much memory one call may take.

ALTER TABLE mmdb.role_limit ADD COLUMN memory_bytes bigint;
COMMENT ON COLUMN mmdb.role_limit.memory_bytes IS 'Bytes of memory that one call of its may take.';
