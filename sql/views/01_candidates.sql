-- What people and BI tools select from: candidates. No bytes, times with their zone.
-- A filter on the run's name must reach the hops before they are gathered: each part groups by it.
-- Runs that have finished are read from their totals, which mmdb/db/totals.py took of these same views.

-- Where nearly all runs have totals, PostgreSQL expects no other one; DISTINCT, which changes nothing, lets it count on one
-- run with its candidates in what joins this view, rather than on one candidate.
CREATE OR REPLACE VIEW mmdb.open_run AS
SELECT DISTINCT
    r.run_id,
    r.name AS run,
    r.dataset_id,
    r.epochs,
    r.metric,
    r.maximize
FROM mmdb.run AS r
LEFT JOIN mmdb.run_total AS t ON r.run_id = t.run_id
WHERE t.run_id IS NULL;
COMMENT ON VIEW mmdb.open_run IS 'The runs without totals, whose hops the other views add up themselves: most have not finished.';

CREATE OR REPLACE VIEW mmdb.open_candidate AS
WITH visit AS (
    SELECT
        p.dataset_id,
        count(*) AS visits
    FROM mmdb.partition AS p
    WHERE p.role != 'test' AND p.row_count > 0  -- of those that were forgotten none is met again
    GROUP BY p.dataset_id
),

done AS (
    SELECT
        r.run,
        c.ordinal,
        count(*) AS hops,
        sum(h.total_s) AS total_s,
        count(*) FILTER (WHERE p.role = 'train') AS train_hops,
        sum(h.total_s) FILTER (WHERE p.role = 'train') AS train_s,
        max(h.epoch) FILTER (WHERE p.role = 'train') + 1 AS epochs_begun,
        min(h.started_at) AS started_at,
        max(h.finished_at) AS last_hop_at
    FROM mmdb.hop AS h
    INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
    INNER JOIN mmdb.open_run AS r ON c.run_id = r.run_id
    INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id
    GROUP BY r.run, c.ordinal
),

validation AS (
    SELECT
        r.run,
        c.ordinal,
        h.epoch,
        h.objective,
        h.loss,
        h.metrics,
        row_number() OVER (
            PARTITION BY r.run, c.ordinal
            ORDER BY
                CASE WHEN r.maximize THEN -h.objective ELSE h.objective END ASC NULLS LAST,
                h.epoch ASC
        ) AS place
    FROM mmdb.hop AS h
    INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
    INNER JOIN mmdb.open_run AS r ON c.run_id = r.run_id
    INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id
    WHERE p.role = 'validation'
),

epoch_loss AS (
    SELECT
        r.run,
        c.ordinal,
        cast(sum(h.loss * h.row_count) AS double precision) / nullif(sum(h.row_count), 0) AS loss,
        row_number() OVER (PARTITION BY r.run, c.ordinal ORDER BY h.epoch DESC) AS place
    FROM mmdb.hop AS h
    INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
    INNER JOIN mmdb.open_run AS r ON c.run_id = r.run_id
    INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id
    WHERE p.role = 'train'
    GROUP BY r.run, c.ordinal, h.epoch
),

named AS (
    SELECT
        r.run,
        d.kind,
        d.epoch,
        d.ordinal AS place,
        coalesce(d.candidate, row_number() OVER (PARTITION BY r.run, d.kind ORDER BY d.ordinal) - 1) AS ordinal
    FROM mmdb.decision AS d
    INNER JOIN mmdb.open_run AS r ON d.run_id = r.run_id
    WHERE d.kind IN ('start', 'goal', 'stop')
),

decided AS (
    SELECT
        n.run,
        n.ordinal,
        n.kind,
        n.epoch,
        row_number() OVER (PARTITION BY n.run, n.ordinal ORDER BY n.place DESC) AS place
    FROM named AS n
),

failure AS (
    SELECT
        r.run,
        c.ordinal,
        coalesce(min(e.message), 'failed') AS error
    FROM mmdb.candidate_event AS e
    INNER JOIN mmdb.candidate AS c ON e.candidate_id = c.candidate_id
    INNER JOIN mmdb.open_run AS r ON c.run_id = r.run_id
    GROUP BY r.run, c.ordinal
),

candidate AS (
    SELECT
        r.run_id,
        r.run,
        c.candidate_id,
        c.ordinal AS candidate,
        c.parent_id,
        c.config,
        f.error,
        coalesce(d.kind = 'stop', FALSE) AS is_stopped,
        coalesce(d.epoch, h.epochs_begun, r.epochs) AS goal,  -- a copied run comes without decisions, and with what was done
        r.epochs AS run_epochs,
        v.visits,
        coalesce(h.hops, 0) AS hops_done,
        h.total_s AS spent_s,
        coalesce(h.train_hops, 0) AS hops,
        h.train_s AS total_s,
        h.epochs_begun AS epochs,
        r.metric,
        r.maximize,
        b.objective AS best_value,
        b.epoch AS best_epoch,
        b.loss AS validation_loss,
        b.metrics,
        h.started_at,
        h.last_hop_at,
        l.loss AS training_loss
    FROM mmdb.candidate AS c
    INNER JOIN mmdb.open_run AS r ON c.run_id = r.run_id
    INNER JOIN visit AS v ON r.dataset_id = v.dataset_id
    LEFT JOIN done AS h ON r.run = h.run AND c.ordinal = h.ordinal
    LEFT JOIN validation AS b ON r.run = b.run AND c.ordinal = b.ordinal AND b.place = 1
    LEFT JOIN epoch_loss AS l ON r.run = l.run AND c.ordinal = l.ordinal AND l.place = 1
    LEFT JOIN decided AS d ON r.run = d.run AND c.ordinal = d.ordinal AND d.place = 1
    LEFT JOIN failure AS f ON r.run = f.run AND c.ordinal = f.ordinal
)

SELECT
    c.run_id,
    c.run,
    c.candidate_id,
    c.candidate,
    c.parent_id,
    c.config,
    CASE
        WHEN c.error IS NOT NULL THEN 'failed'
        WHEN c.hops_done >= c.run_epochs * c.visits THEN 'trained'
        WHEN c.is_stopped THEN 'stopped'
        WHEN c.hops_done >= c.goal * c.visits THEN 'resting'
        ELSE 'training'
    END AS status,
    c.goal,
    c.epochs,
    c.hops,
    c.total_s,
    c.hops_done,
    CASE
        WHEN c.error IS NOT NULL OR c.is_stopped OR c.hops_done > c.goal * c.visits THEN c.hops_done
        ELSE c.goal * c.visits
    END AS hops_total,
    c.spent_s,
    c.metric,
    c.maximize,
    c.best_value,
    c.best_epoch,
    c.validation_loss,
    c.metrics,
    c.error,
    c.started_at,
    c.last_hop_at,
    c.training_loss,
    row_number() OVER (
        PARTITION BY c.run
        ORDER BY
            c.error IS NULL DESC,
            CASE WHEN c.maximize THEN -c.best_value ELSE c.best_value END ASC NULLS LAST,
            c.validation_loss ASC NULLS LAST,
            c.training_loss ASC NULLS LAST,
            c.candidate ASC
    ) AS rank
FROM candidate AS c;
COMMENT ON VIEW mmdb.open_candidate IS 'The candidates of open runs, as candidate_overview shows them.';

CREATE OR REPLACE VIEW mmdb.candidate_overview AS
SELECT
    r.name AS run,
    t.candidate_id,
    c.ordinal AS candidate,
    c.parent_id,
    c.config,
    t.status,
    t.goal,
    t.epochs,
    t.hops,
    t.total_s,
    t.hops_done,
    t.hops_total,
    t.spent_s,
    r.metric,
    r.maximize,
    t.best_value,
    t.best_epoch,
    t.validation_loss,
    t.metrics,
    t.error,
    t.started_at,
    t.last_hop_at,
    t.training_loss,
    t.rank
FROM mmdb.candidate_total AS t
INNER JOIN mmdb.candidate AS c ON t.run_id = c.run_id AND t.candidate_id = c.candidate_id
INNER JOIN mmdb.run AS r ON t.run_id = r.run_id
UNION ALL
SELECT
    o.run,
    o.candidate_id,
    o.candidate,
    o.parent_id,
    o.config,
    o.status,
    o.goal,
    o.epochs,
    o.hops,
    o.total_s,
    o.hops_done,
    o.hops_total,
    o.spent_s,
    o.metric,
    o.maximize,
    o.best_value,
    o.best_epoch,
    o.validation_loss,
    o.metrics,
    o.error,
    o.started_at,
    o.last_hop_at,
    o.training_loss,
    o.rank
FROM mmdb.open_candidate AS o;
COMMENT ON VIEW mmdb.candidate_overview IS 'Each candidate of each run: how far it is, what it has reached and what it took.';

CREATE OR REPLACE VIEW mmdb.candidate_progress AS
WITH training AS (
    SELECT
        r.run,
        h.candidate_id,
        c.ordinal AS candidate,
        h.epoch,
        r.metric,
        r.maximize,
        count(*) AS hops,
        cast(CASE WHEN sum(h.row_count) < 9000000000000000000 THEN sum(h.row_count) ELSE 9000000000000000000 END AS bigint) AS row_count,
        cast(sum(h.steps) AS bigint) AS steps,
        cast(sum(h.loss * h.row_count) AS double precision) / nullif(sum(h.row_count), 0) AS training_loss,
        sum(h.compute_s) AS compute_s,
        sum(h.total_s) AS total_s,
        max(h.finished_at) AS trained_at
    FROM mmdb.hop AS h
    INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
    INNER JOIN mmdb.open_run AS r ON c.run_id = r.run_id
    INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id
    WHERE p.role = 'train'
    GROUP BY r.run, h.candidate_id, c.ordinal, h.epoch, r.metric, r.maximize
),

validation AS (
    SELECT
        r.run,
        h.candidate_id,
        h.epoch,
        h.loss,
        h.objective,
        h.metrics,
        h.finished_at
    FROM mmdb.hop AS h
    INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
    INNER JOIN mmdb.open_run AS r ON c.run_id = r.run_id
    INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id
    WHERE p.role = 'validation'
)

SELECT
    r.name AS run,
    t.candidate_id,
    t.candidate,
    t.epoch,
    t.hops,
    t.row_count,
    t.steps,
    t.training_loss,
    t.validation_loss,
    r.metric,
    t.objective,
    t.metrics,
    t.compute_s,
    t.total_s,
    t.trained_at,
    t.validated_at,
    t.best_so_far
FROM mmdb.epoch_total AS t
INNER JOIN mmdb.run AS r ON t.run_id = r.run_id
UNION ALL
SELECT
    t.run,
    t.candidate_id,
    t.candidate,
    t.epoch,
    t.hops,
    t.row_count,
    t.steps,
    t.training_loss,
    v.loss AS validation_loss,
    t.metric,
    v.objective,
    v.metrics,
    t.compute_s,
    t.total_s,
    t.trained_at,
    v.finished_at AS validated_at,
    CASE -- the least of what is to be low: NaN, which is above all numbers, is then the best of nothing
        WHEN t.maximize THEN -min(-v.objective) OVER (PARTITION BY t.run, t.candidate_id ORDER BY t.epoch)
        ELSE min(v.objective) OVER (PARTITION BY t.run, t.candidate_id ORDER BY t.epoch)
    END AS best_so_far
FROM training AS t
LEFT JOIN validation AS v ON t.run = v.run AND t.candidate_id = v.candidate_id AND t.epoch = v.epoch;
COMMENT ON VIEW mmdb.candidate_progress IS 'The learning curves: each epoch of each candidate.';

CREATE OR REPLACE VIEW mmdb.candidate_failures AS
SELECT
    r.name AS run,
    e.candidate_id,
    c.ordinal AS candidate,
    c.config,
    e.sqlstate,
    e.message,
    e.trace,
    e.happened_at
FROM mmdb.candidate_event AS e
INNER JOIN mmdb.candidate AS c ON e.candidate_id = c.candidate_id
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id;
COMMENT ON VIEW mmdb.candidate_failures IS 'What ended candidates before their last epoch, with the traceback.';
