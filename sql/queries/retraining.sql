-- name: find_made
-- What a candidate was made with, in its run.
SELECT
    c.ordinal,
    c.config::text AS config,
    r.architecture::text AS architecture,
    r.search::text AS search,
    r.options::text AS options,
    r.epochs,
    r.strategy,
    coalesce(s.strategy, r.strategy) AS taken,
    s.group_size,
    r.seed
FROM mmdb.candidate AS c
INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
LEFT JOIN mmdb.run_strategy AS s ON r.run_id = s.run_id
WHERE c.candidate_id = %(candidate_id)s::bigint;

-- name: add_retraining
-- Record that a run retrains a model.
INSERT INTO mmdb.retraining (run_id, model_id, mode)
VALUES (%(run_id)s::bigint, %(model_id)s::bigint, %(mode)s::text);

-- name: find_retraining
-- What a run retrains, and what became of it.
SELECT
    t.run_id,
    r.name AS run,
    d.name AS dataset,
    t.model_id,
    m.name || '@' || m.version::text AS model,
    n.name || '@' || n.version::text AS new_model,
    coalesce(t.metric, r.metric) AS metric,
    r.metric AS objective,
    t.old_value,
    t.new_value,
    t.chance,
    t.passed,
    t.alias,
    t.reason,
    t.ended_at IS NOT NULL AS ended,
    (
        SELECT count(*) > 0
        FROM mmdb.model AS k
        INNER JOIN mmdb.candidate AS c ON k.candidate_id = c.candidate_id
        WHERE c.run_id = t.run_id
    ) AS is_trained
FROM mmdb.retraining AS t
INNER JOIN mmdb.run AS r ON t.run_id = r.run_id
INNER JOIN mmdb.dataset AS d ON r.dataset_id = d.dataset_id
INNER JOIN mmdb.model AS m ON t.model_id = m.model_id
LEFT JOIN mmdb.model AS n ON t.new_model_id = n.model_id
WHERE r.name = %(name)s::text;

-- name: end_retraining
-- Record what became of a model that was retrained.
UPDATE mmdb.retraining
SET
    new_model_id = %(new_model_id)s::bigint,
    metric = %(metric)s::text,
    old_value = %(old_value)s::double precision,
    new_value = %(new_value)s::double precision,
    chance = %(chance)s::double precision,
    passed = %(passed)s::boolean,
    alias = %(alias)s::text,
    reason = %(reason)s::text,
    ended_at = now()
WHERE run_id = %(run_id)s::bigint;
