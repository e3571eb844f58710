-- As it was before runs had totals: what the views of today are compared with.

CREATE OR REPLACE VIEW mmdb.leaderboard AS
WITH epoch_loss AS (
    SELECT
        t.run,
        t.candidate_id,
        t.training_loss AS loss,
        row_number() OVER (PARTITION BY t.run, t.candidate_id ORDER BY t.epoch DESC) AS place
    FROM mmdb.candidate_progress AS t
)

SELECT
    o.run,
    row_number() OVER (
        PARTITION BY o.run
        ORDER BY
            o.error IS NULL DESC,
            CASE WHEN o.maximize THEN -o.best_value ELSE o.best_value END ASC NULLS LAST,
            o.validation_loss ASC NULLS LAST,
            l.loss ASC NULLS LAST,
            o.candidate ASC
    ) AS rank,
    o.candidate_id,
    o.config,
    cast(o.metrics ->> 'accuracy' AS double precision) AS accuracy,
    cast(o.metrics ->> 'rmse' AS double precision) AS rmse,
    o.validation_loss,
    o.best_epoch,
    o.epochs,
    o.hops,
    o.total_s,
    o.error,
    l.loss AS training_loss,
    o.metric,
    o.best_value AS objective,
    o.status,
    o.candidate,
    o.parent_id,
    w.parent,
    w.similarity,
    w.coverage,
    w.target,
    w.steps_to_target,
    w.cold_steps,
    w.steps_saved
FROM mmdb.candidate_overview AS o
LEFT JOIN epoch_loss AS l ON o.run = l.run AND o.candidate_id = l.candidate_id AND l.place = 1
LEFT JOIN mmdb.warm_start_overview AS w ON o.run = w.run AND o.candidate_id = w.candidate_id;
COMMENT ON VIEW mmdb.leaderboard IS 'Candidates of each run, the best first: by best validated epoch, else by last training loss.';

CREATE OR REPLACE VIEW mmdb.run_progress AS
WITH member AS (
    SELECT
        o.run,
        o.candidate_id,
        o.status,
        o.error,
        o.hops_done,
        o.hops_total,
        o.started_at,
        o.last_hop_at,
        o.best_value,
        cast(o.hops_total - o.hops_done AS double precision) * coalesce(
            cast(o.spent_s AS double precision) / nullif(o.hops_done, 0),
            cast(sum(o.spent_s) OVER (PARTITION BY o.run) AS double precision)
            / nullif(sum(o.hops_done) OVER (PARTITION BY o.run), 0)
        ) AS left_s,
        row_number() OVER (
            PARTITION BY o.run
            ORDER BY
                o.error IS NULL DESC,
                CASE WHEN o.maximize THEN -o.best_value ELSE o.best_value END ASC NULLS LAST,
                o.validation_loss ASC NULLS LAST,
                o.candidate ASC
        ) AS place
    FROM mmdb.candidate_overview AS o
),

progress AS (
    SELECT
        m.run,
        count(*) AS candidates,
        count(*) FILTER (WHERE m.status = 'failed') AS failed,
        count(*) FILTER (WHERE m.status = 'training') AS training,
        count(*) FILTER (WHERE m.status = 'resting') AS resting,
        count(*) FILTER (WHERE m.status = 'trained') AS trained,
        count(*) FILTER (WHERE m.status = 'stopped') AS stopped,
        cast(sum(m.hops_done) AS bigint) AS hops_done,
        cast(sum(m.hops_total) AS bigint) AS hops_total,
        min(m.started_at) AS started_at,
        max(m.last_hop_at) AS last_hop_at,
        sum(m.left_s) AS left_s,
        max(m.left_s) AS longest_s,
        max(m.candidate_id) FILTER (WHERE m.place = 1 AND m.error IS NULL AND m.best_value IS NOT NULL)
            AS best_candidate_id,
        max(m.best_value) FILTER (WHERE m.place = 1 AND m.error IS NULL) AS best_value
    FROM member AS m
    GROUP BY m.run
),

timed AS (
    SELECT
        r.name,
        h.finished_at,
        min(h.started_at) OVER (PARTITION BY r.name) AS first_at,
        max(h.finished_at) OVER (PARTITION BY r.name) AS last_at
    FROM mmdb.hop AS h
    INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
    INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
),

recent AS (
    SELECT
        t.name,
        cast(count(*) AS double precision) / nullif(
            CASE
                WHEN min(t.first_at) > min(t.last_at) - cast('1 minute' AS interval)
                    THEN extract(EPOCH FROM min(t.last_at)) - extract(EPOCH FROM min(t.first_at))
                ELSE 60
            END,
            0
        ) AS hops_per_s
    FROM timed AS t
    WHERE t.finished_at > t.last_at - cast('1 minute' AS interval)
    GROUP BY t.name
),

latest AS (
    SELECT
        r.name,
        e.event,
        e.workers,
        row_number() OVER (PARTITION BY r.name ORDER BY e.happened_at DESC) AS place
    FROM mmdb.run_event AS e
    INNER JOIN mmdb.run AS r ON e.run_id = r.run_id
)

SELECT
    r.name AS run,
    coalesce(l.event, 'created') AS status,
    coalesce(p.candidates, 0) AS candidates,
    coalesce(p.failed, 0) AS failed,
    r.epochs,
    coalesce(p.hops_done, 0) AS hops_done,
    coalesce(p.hops_total, 0) AS hops_total,
    r.created_at,
    p.started_at,
    p.last_hop_at,
    coalesce(s.strategy, r.strategy) AS strategy,
    coalesce(p.training, 0) AS training,
    coalesce(p.resting, 0) AS resting,
    coalesce(p.trained, 0) AS trained,
    coalesce(p.stopped, 0) AS stopped,
    r.metric,
    p.best_candidate_id,
    p.best_value,
    t.hops_per_s,
    CASE
        WHEN l.event <> 'started' THEN NULL
        WHEN p.longest_s * l.workers > p.left_s THEN p.longest_s
        ELSE cast(p.left_s AS double precision) / nullif(l.workers, 0)
    END AS seconds_left,
    d.name AS dataset
FROM mmdb.run AS r
INNER JOIN mmdb.dataset AS d ON r.dataset_id = d.dataset_id
LEFT JOIN mmdb.run_strategy AS s ON r.run_id = s.run_id
LEFT JOIN progress AS p ON r.name = p.run
LEFT JOIN recent AS t ON r.name = t.name
LEFT JOIN latest AS l ON r.name = l.name AND l.place = 1;
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
    h.environment,
    h.total_s - h.compute_s AS overhead_s,
    r.metric,
    h.objective,
    h.peak_bytes,
    h.group_size
FROM mmdb.hop AS h
INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id;
COMMENT ON VIEW mmdb.hop_timeline IS 'Every hop with its phases in seconds; start-up is what reading, computing and storing leave over.';
