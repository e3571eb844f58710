-- DuckDB keeps the bytes of deleted rows until it writes their row group anew, so the chunks that are left
-- are copied into a new table.
DROP INDEX mmdb.tensor_chunk_tensor_idx;
ALTER TABLE mmdb.tensor_chunk RENAME TO tensor_chunk_before;
-- Here stands what duckdb.sql says of the table.
INSERT INTO mmdb.tensor_chunk (tensor_id, ordinal, codec, digest, data)
SELECT
    c.tensor_id,
    c.ordinal,
    c.codec,
    c.digest,
    c.data
FROM mmdb.tensor_chunk_before AS c
ORDER BY c.tensor_id, c.ordinal;
DROP TABLE mmdb.tensor_chunk_before;
