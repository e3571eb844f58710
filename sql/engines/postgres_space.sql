-- Bytes of the tables that hold tensors, checkpoints and features, with their indexes and what is free in them.
SELECT cast(sum(pg_catalog.pg_total_relation_size(c.oid)) AS bigint) AS bytes
FROM pg_catalog.pg_class AS c
WHERE
    c.relnamespace = cast('mmdb' AS regnamespace) AND c.relkind = 'r'
    AND (
        cast(c.relname AS text) LIKE 'tensor%' OR cast(c.relname AS text) LIKE 'checkpoint%' OR cast(c.relname AS text) LIKE 'feature%'
        OR c.relname IN ('encoding', 'manifest_tensor')
    );
