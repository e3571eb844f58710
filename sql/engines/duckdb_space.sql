-- Bytes of the file that are in use.
SELECT cast(s.used_blocks * s.block_size AS bigint) AS bytes
FROM pragma_database_size() AS s
WHERE s.database_name = current_database();
