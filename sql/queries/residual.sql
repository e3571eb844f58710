-- name: add_prediction
-- What a profile says of a candidate's steps.
INSERT INTO mmdb.step_prediction (
    candidate_id, fingerprint, profiled_at, version, batch_size, step_s, row_s, features
)
VALUES (
    %(candidate_id)s::bigint, %(fingerprint)s::text, %(profiled_at)s::timestamptz, %(version)s::integer,
    %(batch_size)s::bigint, %(step_s)s::double precision, %(row_s)s::double precision, %(features)s::jsonb
)
ON CONFLICT (candidate_id, fingerprint, profiled_at, version) DO NOTHING;

-- name: find_trained
-- The last hops of candidates whose steps a profile predicted, one of those that do the same work.
WITH predicted AS (
    SELECT
        t.candidate_id,
        t.batch_size,
        t.step_s,
        t.row_s,
        t.features,
        t.predicted_at
    FROM mmdb.step_prediction AS t
    WHERE
        t.fingerprint = %(fingerprint)s::text
        AND t.profiled_at = %(profiled_at)s::timestamptz
        AND t.version = %(version)s::integer
    ORDER BY t.predicted_at DESC, t.candidate_id DESC
    LIMIT %(planned)s::integer
),

done AS (
    SELECT
        t.candidate_id,
        h.compute_s,
        h.steps,
        h.row_count,
        s.workers,
        row_number() OVER (PARTITION BY t.candidate_id ORDER BY h.ordinal DESC, h.part_id ASC) AS place,
        count(*) OVER (PARTITION BY t.candidate_id) AS hops
    FROM predicted AS t
    INNER JOIN mmdb.hop AS h ON t.candidate_id = h.candidate_id
    INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
    INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id
    LEFT JOIN (
        SELECT
            e.run_id,
            max(e.workers) AS workers
        FROM mmdb.run_event AS e
        WHERE e.event = 'started'
        GROUP BY e.run_id
    ) AS s ON c.run_id = s.run_id
    WHERE
        p.role = 'train'
        AND h.group_size IS NULL
        AND h.steps > 0
        AND h.compute_s > 0
        AND h.node = %(node)s::text
        AND h.device = %(device)s::text
        AND h.environment LIKE %(environment)s::text
),

trained AS (
    SELECT
        t.candidate_id,
        t.step_s,
        t.row_s,
        t.features,
        t.predicted_at,
        row_number() OVER (
            PARTITION BY t.batch_size, t.step_s, t.row_s
            ORDER BY t.predicted_at DESC, t.candidate_id DESC
        ) AS place
    FROM predicted AS t
    INNER JOIN done AS d ON t.candidate_id = d.candidate_id
    WHERE d.place = 1 AND d.hops >= %(few)s::integer
),

latest AS (
    SELECT
        t.candidate_id,
        t.step_s,
        t.row_s,
        t.features
    FROM trained AS t
    WHERE t.place = 1
    ORDER BY t.predicted_at DESC, t.candidate_id DESC
    LIMIT %(most)s::integer
)

SELECT
    l.candidate_id,
    l.step_s,
    l.row_s,
    l.features::text AS features,
    d.compute_s,
    d.steps,
    d.row_count,
    d.workers
FROM done AS d
INNER JOIN latest AS l ON d.candidate_id = l.candidate_id
WHERE d.place <= %(hops)s::integer
ORDER BY l.candidate_id;
