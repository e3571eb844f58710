-- Bytes of the tables that hold tensors, checkpoints and features, with their indexes and what is free in them.
SELECT cast(sum(pg_catalog.pg_total_relation_size(c.oid)) AS bigint) AS bytes
FROM pg_catalog.pg_class AS c
WHERE
    c.relnamespace = cast('mmdb' AS regnamespace) AND c.relkind = 'r'
    AND (
        c.relname LIKE 'tensor%' OR c.relname LIKE 'checkpoint%' OR c.relname LIKE 'feature%'
        OR c.relname IN ('encoding', 'manifest_tensor')
    );
