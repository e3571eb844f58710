-- What people and BI tools select from. No bytes, times with their zone.

CREATE OR REPLACE VIEW mmdb.leaderboard AS
WITH validation AS (
    SELECT
        h.candidate_id,
        h.epoch,
        h.loss,
        cast(h.metrics ->> 'accuracy' AS double precision) AS accuracy,
        cast(h.metrics ->> 'rmse' AS double precision) AS rmse,
        row_number() OVER (
            PARTITION BY h.candidate_id
            ORDER BY
                cast(h.metrics ->> 'accuracy' AS double precision) DESC NULLS LAST,
                cast(h.metrics ->> 'rmse' AS double precision) ASC NULLS LAST,
                h.epoch
        ) AS place
    FROM mmdb.hop AS h
    INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id
    WHERE p.role = 'validation'
),

training AS (
    SELECT
        h.candidate_id,
        count(*) AS hops,
        max(h.epoch) + 1 AS epochs,
        sum(h.total_s) AS total_s
    FROM mmdb.hop AS h
    INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id
    WHERE p.role = 'train'
    GROUP BY h.candidate_id
),

epoch_loss AS (
    SELECT
        h.candidate_id,
        cast(sum(h.loss * h.row_count) AS double precision) / nullif(sum(h.row_count), 0) AS loss,
        row_number() OVER (PARTITION BY h.candidate_id ORDER BY h.epoch DESC) AS place
    FROM mmdb.hop AS h
    INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id
    WHERE p.role = 'train'
    GROUP BY h.candidate_id, h.epoch
),

failure AS (
    SELECT
        e.candidate_id,
        min(e.message) AS error
    FROM mmdb.candidate_event AS e
    GROUP BY e.candidate_id
)

SELECT
    r.name AS run,
    row_number() OVER (
        PARTITION BY r.run_id
        ORDER BY
            f.error IS NULL DESC,
            v.accuracy DESC NULLS LAST,
            v.rmse ASC NULLS LAST,
            v.loss ASC NULLS LAST,
            l.loss ASC NULLS LAST,
            c.ordinal ASC
    ) AS rank,
    c.candidate_id,
    c.config,
    v.accuracy,
    v.rmse,
    v.loss AS validation_loss,
    v.epoch AS best_epoch,
    t.epochs,
    t.hops,
    t.total_s,
    f.error,
    l.loss AS training_loss
FROM mmdb.candidate AS c
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
LEFT JOIN validation AS v ON c.candidate_id = v.candidate_id AND v.place = 1
LEFT JOIN training AS t ON c.candidate_id = t.candidate_id
LEFT JOIN epoch_loss AS l ON c.candidate_id = l.candidate_id AND l.place = 1
LEFT JOIN failure AS f ON c.candidate_id = f.candidate_id;
COMMENT ON VIEW mmdb.leaderboard IS 'Candidates of each run, the best first: by best validated epoch, else by last training loss.';

CREATE OR REPLACE VIEW mmdb.run_progress AS
WITH candidate_hops AS (
    SELECT
        c.run_id,
        count(DISTINCT c.candidate_id) AS candidates,
        count(h.part_id) AS hops_done,
        min(h.started_at) AS started_at,
        max(h.finished_at) AS last_hop_at
    FROM mmdb.candidate AS c
    LEFT JOIN mmdb.hop AS h ON c.candidate_id = h.candidate_id
    GROUP BY c.run_id
),

failure AS (
    SELECT
        c.run_id,
        count(DISTINCT c.candidate_id) AS failed
    FROM mmdb.candidate AS c
    INNER JOIN mmdb.candidate_event AS e ON c.candidate_id = e.candidate_id
    GROUP BY c.run_id
),

visit AS (
    SELECT
        p.dataset_id,
        count(*) AS visits
    FROM mmdb.partition AS p
    GROUP BY p.dataset_id
),

latest AS (
    SELECT
        e.run_id,
        e.event,
        row_number() OVER (PARTITION BY e.run_id ORDER BY e.happened_at DESC) AS place
    FROM mmdb.run_event AS e
)

SELECT
    r.name AS run,
    coalesce(l.event, 'created') AS status,
    h.candidates,
    coalesce(f.failed, 0) AS failed,
    r.epochs,
    h.hops_done,
    h.candidates * r.epochs * v.visits AS hops_total,
    r.created_at,
    h.started_at,
    h.last_hop_at
FROM mmdb.run AS r
INNER JOIN candidate_hops AS h ON r.run_id = h.run_id
INNER JOIN visit AS v ON r.dataset_id = v.dataset_id
LEFT JOIN failure AS f ON r.run_id = f.run_id
LEFT JOIN latest AS l ON r.run_id = l.run_id AND l.place = 1;
COMMENT ON VIEW mmdb.run_progress IS 'How far each run is; hops include validations.';

CREATE OR REPLACE VIEW mmdb.hop_timeline AS
SELECT
    r.name AS run,
    h.candidate_id,
    c.ordinal AS candidate,
    h.epoch,
    h.ordinal,
    p.role,
    p.ordinal AS partition,
    h.part_id,
    h.worker,
    h.node,
    h.device,
    h.started_at,
    h.finished_at,
    h.row_count,
    h.steps,
    h.loss,
    h.metrics,
    h.read_s,
    h.load_s,
    h.compute_s,
    h.store_s,
    h.total_s - h.read_s - h.compute_s - h.store_s AS startup_s,
    h.total_s,
    h.state_bytes,
    h.environment
FROM mmdb.hop AS h
INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id;
COMMENT ON VIEW mmdb.hop_timeline IS 'Every hop with its phases in seconds; start-up is what reading, computing and storing leave over.';
