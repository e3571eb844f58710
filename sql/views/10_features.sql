-- Features of frozen layers: what is stored of them, and how runs get theirs.

CREATE OR REPLACE VIEW mmdb.feature_overview AS
SELECT
    f.feature_id,
    d.name AS dataset,
    f.layer,
    f.pool,
    f.backbone,
    f.seed,
    f.storage,
    f.shape,
    f.row_bytes,
    f.max_error,
    f.mean_error,
    w.partitions,
    coalesce(p.partitions, 0) AS stored_partitions,
    coalesce(p.byte_count, 0) AS byte_count,
    coalesce(u.runs, 0) AS runs,
    coalesce(u.candidates, 0) AS candidates,
    f.created_at,
    f.used_at,
    d.dropped_at
FROM mmdb.feature AS f
INNER JOIN mmdb.dataset AS d ON f.dataset_id = d.dataset_id
LEFT JOIN (
    SELECT
        t.dataset_id,
        count(*) AS partitions
    FROM mmdb.partition AS t
    WHERE t.role != 'test' AND t.row_count > 0
    GROUP BY t.dataset_id
) AS w ON f.dataset_id = w.dataset_id
LEFT JOIN (
    SELECT
        t.feature_id,
        count(*) AS partitions,
        cast(CASE WHEN sum(t.byte_count) < 9000000000000000000 THEN sum(t.byte_count) ELSE 9000000000000000000 END AS bigint) AS byte_count
    FROM mmdb.feature_part AS t
    GROUP BY t.feature_id
) AS p ON f.feature_id = p.feature_id
LEFT JOIN (
    SELECT
        t.feature_id,
        count(*) AS runs,
        cast(sum(t.candidates) AS bigint) AS candidates
    FROM mmdb.run_feature AS t
    GROUP BY t.feature_id
) AS u ON f.feature_id = u.feature_id;
COMMENT ON VIEW mmdb.feature_overview IS 'Outputs of frozen layers for the rows of datasets, and how much of them is stored.';

-- Where a run is shared and its dataset is not, the columns that say what the features are stay null.
CREATE OR REPLACE VIEW mmdb.run_features AS
SELECT
    r.name AS run,
    u.feature_id,
    u.layer,
    f.pool,
    u.backbone,
    f.storage,
    f.shape,
    u.choice,
    u.reason,
    u.candidates,
    u.uses,
    coalesce(h.hops, 0) AS hops,
    u.byte_count,
    u.compute_s,
    u.store_s,
    u.read_s,
    u.saved_s,
    u.planned_s,
    u.created_at
FROM mmdb.run_feature AS u
INNER JOIN mmdb.run AS r ON u.run_id = r.run_id
LEFT JOIN mmdb.feature AS f ON u.feature_id = f.feature_id
LEFT JOIN (
    SELECT
        x.name AS run,
        c.feature_id,
        count(*) AS hops
    FROM mmdb.candidate_feature AS c
    INNER JOIN mmdb.run AS x ON c.run_id = x.run_id
    INNER JOIN mmdb.hop AS t ON c.candidate_id = t.candidate_id
    GROUP BY x.name, c.feature_id
) AS h ON r.name = h.run AND u.feature_id = h.feature_id;
COMMENT ON VIEW mmdb.run_features IS 'Where the features of each run came from, why, and what that cost and saved.';
