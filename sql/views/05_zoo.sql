-- The zoo of parents, what was decided about it, and what was carried over from whom.

CREATE OR REPLACE VIEW mmdb.zoo AS
WITH latest AS (
    SELECT
        e.model_id,
        e.event,
        e.reason,
        e.happened_at,
        row_number() OVER (PARTITION BY e.model_id ORDER BY e.event_id DESC) AS place
    FROM mmdb.zoo_event AS e
    WHERE e.event <> 'hit'
),

hit AS (
    SELECT
        e.model_id,
        count(*) AS hits,
        max(e.happened_at) AS last_hit_at
    FROM mmdb.zoo_event AS e
    WHERE e.event = 'hit'
    GROUP BY e.model_id
)

SELECT
    m.name AS model,
    m.version,
    coalesce(l.event, CASE WHEN m.architecture_id IS NULL THEN 'unknown' ELSE 'admitted' END) AS status,
    l.reason,
    l.happened_at AS decided_at,
    d.name AS dataset,
    d.task,
    coalesce(r.metric, 'accuracy') AS metric,
    v.value,
    coalesce(h.hits, 0) AS hits,
    h.last_hit_at,
    a.node_count AS nodes,
    a.parameter_count AS parameters,
    a.is_traced,
    m.byte_count,
    m.stored_bytes,
    m.created_at,
    m.model_id
FROM mmdb.model AS m
LEFT JOIN mmdb.architecture AS a ON m.architecture_id = a.architecture_id
LEFT JOIN mmdb.dataset AS d ON m.dataset_id = d.dataset_id
LEFT JOIN mmdb.candidate AS c ON m.candidate_id = c.candidate_id
LEFT JOIN mmdb.run AS r ON c.run_id = r.run_id
LEFT JOIN mmdb.model_metric AS v
    ON m.model_id = v.model_id AND coalesce(r.metric, 'accuracy') = v.metric AND v.dataset = ''
LEFT JOIN latest AS l ON m.model_id = l.model_id AND l.place = 1
LEFT JOIN hit AS h ON m.model_id = h.model_id
WHERE m.dropped_at IS NULL;
COMMENT ON VIEW mmdb.zoo IS 'The models that are not dropped, and whether they are offered as parents.';

CREATE OR REPLACE VIEW mmdb.zoo_decisions AS
SELECT
    m.name AS model,
    m.version,
    e.event,
    e.reason,
    e.by_rule,
    e.happened_at,
    m.dropped_at,
    e.event_id
FROM mmdb.zoo_event AS e
INNER JOIN mmdb.model AS m ON e.model_id = m.model_id;
COMMENT ON VIEW mmdb.zoo_decisions IS 'Every decision about a model in the zoo, and every time that it was taken as a parent.';

CREATE OR REPLACE VIEW mmdb.transfer_map AS
SELECT
    t.transfer_id,
    r.name AS run,
    t.candidate_id,
    k.name || '@' || cast(k.version AS text) AS model,
    p.name || '@' || cast(p.version AS text) AS parent,
    t.parent_candidate_id,
    x.ordinal,
    x.path,
    x.parent_path,
    x.operator,
    x.fraction,
    x.reason,
    t.similarity,
    t.coverage,
    t.created_at
FROM mmdb.transfer AS t
INNER JOIN mmdb.transfer_tensor AS x ON t.transfer_id = x.transfer_id
LEFT JOIN mmdb.model AS p ON t.parent_id = p.model_id
LEFT JOIN mmdb.model AS k ON t.model_id = k.model_id
LEFT JOIN mmdb.candidate AS c ON t.candidate_id = c.candidate_id
LEFT JOIN mmdb.run AS r ON c.run_id = r.run_id;
COMMENT ON VIEW mmdb.transfer_map IS 'Where each tensor of a child that was warm-started came from.';
