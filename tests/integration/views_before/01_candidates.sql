-- As it was before runs had totals: what the views of today are compared with.

CREATE OR REPLACE VIEW mmdb.candidate_overview AS
WITH visit AS (
    SELECT
        p.dataset_id,
        count(*) AS visits
    FROM mmdb.partition AS p
    GROUP BY p.dataset_id
),

done AS (
    SELECT
        r.name,
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
    INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
    INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id
    GROUP BY r.name, c.ordinal
),

validation AS (
    SELECT
        r.name,
        c.ordinal,
        h.epoch,
        h.objective,
        h.loss,
        h.metrics,
        row_number() OVER (
            PARTITION BY r.name, c.ordinal
            ORDER BY
                CASE WHEN r.maximize THEN -h.objective ELSE h.objective END ASC NULLS LAST,
                h.epoch ASC
        ) AS place
    FROM mmdb.hop AS h
    INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
    INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
    INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id
    WHERE p.role = 'validation'
),

named AS (
    SELECT
        r.name,
        d.kind,
        d.epoch,
        d.ordinal AS place,
        coalesce(d.candidate, row_number() OVER (PARTITION BY r.name, d.kind ORDER BY d.ordinal) - 1) AS ordinal
    FROM mmdb.decision AS d
    INNER JOIN mmdb.run AS r ON d.run_id = r.run_id
    WHERE d.kind IN ('start', 'goal', 'stop')
),

decided AS (
    SELECT
        n.name,
        n.ordinal,
        n.kind,
        n.epoch,
        row_number() OVER (PARTITION BY n.name, n.ordinal ORDER BY n.place DESC) AS place
    FROM named AS n
),

failure AS (
    SELECT
        r.name,
        c.ordinal,
        coalesce(min(e.message), 'failed') AS error
    FROM mmdb.candidate_event AS e
    INNER JOIN mmdb.candidate AS c ON e.candidate_id = c.candidate_id
    INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
    GROUP BY r.name, c.ordinal
),

candidate AS (
    SELECT
        r.name AS run,
        c.candidate_id,
        c.ordinal AS candidate,
        c.parent_id,
        c.config,
        f.error,
        coalesce(d.kind = 'stop', FALSE) AS is_stopped,
        coalesce(d.epoch, r.epochs) AS goal,
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
        h.last_hop_at
    FROM mmdb.candidate AS c
    INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
    INNER JOIN visit AS v ON r.dataset_id = v.dataset_id
    LEFT JOIN done AS h ON r.name = h.name AND c.ordinal = h.ordinal
    LEFT JOIN validation AS b ON r.name = b.name AND c.ordinal = b.ordinal AND b.place = 1
    LEFT JOIN decided AS d ON r.name = d.name AND c.ordinal = d.ordinal AND d.place = 1
    LEFT JOIN failure AS f ON r.name = f.name AND c.ordinal = f.ordinal
)

SELECT
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
    c.last_hop_at
FROM candidate AS c;
COMMENT ON VIEW mmdb.candidate_overview IS 'Each candidate of each run: how far it is, what it has reached and what it took.';

CREATE OR REPLACE VIEW mmdb.candidate_progress AS
WITH training AS (
    SELECT
        r.name AS run,
        h.candidate_id,
        c.ordinal AS candidate,
        h.epoch,
        r.metric,
        count(*) AS hops,
        cast(sum(h.row_count) AS bigint) AS row_count,
        cast(sum(h.steps) AS bigint) AS steps,
        cast(sum(h.loss * h.row_count) AS double precision) / nullif(sum(h.row_count), 0) AS training_loss,
        sum(h.compute_s) AS compute_s,
        sum(h.total_s) AS total_s,
        max(h.finished_at) AS trained_at
    FROM mmdb.hop AS h
    INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
    INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
    INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id
    WHERE p.role = 'train'
    GROUP BY r.name, h.candidate_id, c.ordinal, h.epoch, r.metric
),

validation AS (
    SELECT
        r.name AS run,
        h.candidate_id,
        h.epoch,
        h.loss,
        h.objective,
        h.metrics,
        h.finished_at
    FROM mmdb.hop AS h
    INNER JOIN mmdb.candidate AS c ON h.candidate_id = c.candidate_id
    INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
    INNER JOIN mmdb.partition AS p ON h.part_id = p.part_id
    WHERE p.role = 'validation'
)

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
    v.finished_at AS validated_at
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

CREATE OR REPLACE VIEW mmdb.warm_start_overview AS
WITH asked AS ( -- what a candidate began with a parent for, of any run: its cold arm is gathered once for all of them
    SELECT DISTINCT
        c.architecture_hash,
        r.dataset_id,
        r.metric,
        r.maximize
    FROM mmdb.warm_start AS w
    INNER JOIN mmdb.candidate AS c ON w.candidate_id = c.candidate_id
    INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
    WHERE w.state_hash IS NOT NULL
),

cold AS ( -- the validations of the candidates that had no parent for it
    SELECT
        a.architecture_hash,
        a.dataset_id,
        a.metric,
        a.maximize,
        h.candidate_id,
        h.epoch,
        h.objective,
        CASE
            WHEN a.maximize THEN max(h.objective) OVER (PARTITION BY a.architecture_hash, a.dataset_id, a.metric, a.maximize)
            ELSE min(h.objective) OVER (PARTITION BY a.architecture_hash, a.dataset_id, a.metric, a.maximize)
        END AS target
    FROM asked AS a
    INNER JOIN mmdb.candidate AS c ON a.architecture_hash = c.architecture_hash
    INNER JOIN mmdb.run AS r
        ON c.run_id = r.run_id AND a.dataset_id = r.dataset_id AND a.metric = r.metric AND a.maximize = r.maximize
    INNER JOIN mmdb.hop AS h ON c.candidate_id = h.candidate_id
    LEFT JOIN mmdb.warm_start AS w ON c.candidate_id = w.candidate_id
    WHERE c.parent_id IS NULL AND w.state_hash IS NULL AND h.objective IS NOT NULL
),

best AS (
    SELECT
        k.architecture_hash,
        k.dataset_id,
        k.metric,
        k.maximize,
        k.candidate_id,
        k.target,
        min(k.epoch) AS epoch
    FROM cold AS k
    WHERE k.objective = k.target
    GROUP BY k.architecture_hash, k.dataset_id, k.metric, k.maximize, k.candidate_id, k.target
),

best_steps AS (
    SELECT
        b.architecture_hash,
        b.dataset_id,
        b.metric,
        b.maximize,
        b.target,
        cast(
            sum(cast(h.steps AS double precision) / nullif(coalesce(h.group_size, 1), 0)) AS bigint
        ) AS steps
    FROM best AS b
    INNER JOIN mmdb.hop AS h ON b.candidate_id = h.candidate_id AND b.epoch >= h.epoch
    GROUP BY b.architecture_hash, b.dataset_id, b.metric, b.maximize, b.candidate_id, b.target
),

aim AS (
    SELECT
        s.architecture_hash,
        s.dataset_id,
        s.metric,
        s.maximize,
        s.target,
        min(s.steps) AS steps
    FROM best_steps AS s
    GROUP BY s.architecture_hash, s.dataset_id, s.metric, s.maximize, s.target
),

reached AS (
    SELECT
        r.name,
        c.candidate_id,
        min(h.epoch) AS epoch
    FROM mmdb.run AS r
    INNER JOIN mmdb.candidate AS c ON r.run_id = c.run_id
    INNER JOIN mmdb.warm_start AS w ON c.candidate_id = w.candidate_id
    INNER JOIN mmdb.hop AS h ON c.candidate_id = h.candidate_id
    INNER JOIN aim AS m
        ON
            c.architecture_hash = m.architecture_hash AND r.dataset_id = m.dataset_id
            AND r.metric = m.metric AND r.maximize = m.maximize
    WHERE
        w.state_hash IS NOT NULL
        AND CASE WHEN r.maximize THEN h.objective >= m.target ELSE h.objective <= m.target END
    GROUP BY r.name, c.candidate_id
),

taken AS (
    SELECT
        e.name,
        e.candidate_id,
        cast(
            sum(cast(h.steps AS double precision) / nullif(coalesce(h.group_size, 1), 0)) AS bigint
        ) AS steps
    FROM reached AS e
    INNER JOIN mmdb.hop AS h ON e.candidate_id = h.candidate_id AND e.epoch >= h.epoch
    GROUP BY e.name, e.candidate_id
)

SELECT
    r.name AS run,
    w.candidate_id,
    c.ordinal AS candidate,
    CASE
        WHEN p.model_id IS NOT NULL THEN p.name || '@' || cast(p.version AS text)
        WHEN t.parent_candidate_id IS NOT NULL THEN 'candidate ' || cast(t.parent_candidate_id AS text)
    END AS parent,
    t.similarity,
    t.coverage,
    w.reason,
    w.lr_scale,
    w.lr_epochs,
    m.target,
    e.steps AS steps_to_target,
    m.steps AS cold_steps,
    m.steps - e.steps AS steps_saved,
    w.match_s,
    t.transfer_s,
    w.decided_at,
    w.transfer_id
FROM mmdb.warm_start AS w
INNER JOIN mmdb.candidate AS c ON w.candidate_id = c.candidate_id
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
LEFT JOIN mmdb.transfer AS t ON w.transfer_id = t.transfer_id
LEFT JOIN mmdb.model AS p ON t.parent_id = p.model_id
LEFT JOIN aim AS m
    ON
        c.architecture_hash = m.architecture_hash AND r.dataset_id = m.dataset_id
        AND r.metric = m.metric AND r.maximize = m.maximize AND w.state_hash IS NOT NULL
LEFT JOIN taken AS e ON r.name = e.name AND w.candidate_id = e.candidate_id;
COMMENT ON VIEW mmdb.warm_start_overview
IS 'What candidates with a warm start began with, and the optimizer steps that it took them to what the best cold candidate reached.';
