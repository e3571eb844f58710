-- name: find_uses
-- Where the features of a bench's run came from.
SELECT
    u.feature_id,
    u.layer,
    u.choice,
    u.reason,
    u.candidates,
    u.hops,
    u.byte_count,
    u.compute_s,
    u.store_s,
    u.read_s
FROM mmdb.run_features AS u
WHERE u.run = %(run)s::text
ORDER BY u.feature_id;

-- name: measure_blocks
-- Bytes of the features of a dataset that the database keeps.
SELECT coalesce(sum(octet_length(b.data)), 0)::bigint AS bytes
FROM mmdb.feature_block AS b
INNER JOIN mmdb.feature AS f ON b.feature_id = f.feature_id
INNER JOIN mmdb.dataset AS d ON f.dataset_id = d.dataset_id
WHERE d.name = %(dataset)s::text;

-- name: find_parts
-- The partitions of a dataset, by what is in them.
SELECT p.content_hash
FROM mmdb.partition AS p
INNER JOIN mmdb.dataset AS d ON p.dataset_id = d.dataset_id
WHERE d.name = %(dataset)s::text;

-- name: delete_blocks
-- Delete what is stored of a dataset's features.
DELETE FROM mmdb.feature_block
WHERE feature_id IN (
    SELECT f.feature_id
    FROM mmdb.feature AS f
    INNER JOIN mmdb.dataset AS d ON f.dataset_id = d.dataset_id
    WHERE d.name = %(dataset)s::text
);

-- name: delete_parts
-- Forget which partitions of a dataset's features are stored.
DELETE FROM mmdb.feature_part
WHERE feature_id IN (
    SELECT f.feature_id
    FROM mmdb.feature AS f
    INNER JOIN mmdb.dataset AS d ON f.dataset_id = d.dataset_id
    WHERE d.name = %(dataset)s::text
);
