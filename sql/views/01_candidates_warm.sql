-- Candidates with a warm start, beside those without.

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
        AND h.objective IS NOT NULL
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
