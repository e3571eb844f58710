-- Models, where they come from, what they hold and what people say about them. The first two and
-- alias_history show dropped models as well.
-- A filter on name, version, tag or metric must reach an index: no view gathers over all tensors.

CREATE OR REPLACE VIEW mmdb.model_overview AS
SELECT
    m.name AS model,
    m.version,
    d.name AS dataset,
    r.name AS run,
    m.candidate_id,
    m.epoch,
    m.metrics,
    f.architecture,
    f.arguments,
    m.tensor_count AS tensors,
    m.byte_count,
    m.created_at,
    m.approach,
    p.name || '@' || cast(p.version AS text) AS parent,
    m.stored_bytes,
    m.save_s,
    m.reason,
    a.node_count AS nodes,
    a.parameter_count AS parameters,
    m.dropped_at,
    m.model_id,
    m.calibration,
    k.members
FROM mmdb.model AS m
LEFT JOIN mmdb.model AS p ON m.parent_id = p.model_id
LEFT JOIN mmdb.definition AS f ON m.definition_id = f.definition_id
LEFT JOIN mmdb.architecture AS a ON m.architecture_id = a.architecture_id
LEFT JOIN mmdb.dataset AS d ON m.dataset_id = d.dataset_id
LEFT JOIN mmdb.candidate AS c ON m.candidate_id = c.candidate_id
LEFT JOIN mmdb.run AS r ON c.run_id = r.run_id
LEFT JOIN ( -- not asked for row by row: DuckDB would carry all columns of all models through it
    SELECT
        n.model_id,
        count(*) AS members
    FROM mmdb.model_member AS n
    GROUP BY n.model_id
) AS k ON m.model_id = k.model_id;
COMMENT ON VIEW mmdb.model_overview IS 'The saved models, dropped ones too.';

CREATE OR REPLACE VIEW mmdb.model_lineage AS
SELECT
    m.name AS model,
    m.version,
    r.name AS run,
    m.candidate_id,
    m.epoch,
    d.name AS dataset,
    s.table_name,
    s.column_name,
    s.output_name,
    m.approach,
    p.name || '@' || cast(p.version AS text) AS parent,
    CASE
        WHEN q.model_id IS NOT NULL THEN q.name || '@' || cast(q.version AS text)
        WHEN t.parent_candidate_id IS NOT NULL THEN 'candidate ' || cast(t.parent_candidate_id AS text)
    END AS warm_parent,
    t.similarity,
    t.coverage
FROM mmdb.model AS m
LEFT JOIN mmdb.model AS p ON m.parent_id = p.model_id
LEFT JOIN mmdb.candidate AS c ON m.candidate_id = c.candidate_id
LEFT JOIN mmdb.run AS r ON c.run_id = r.run_id
LEFT JOIN mmdb.dataset AS d ON m.dataset_id = d.dataset_id
LEFT JOIN mmdb.dataset_source AS s ON d.dataset_id = s.dataset_id
LEFT JOIN mmdb.warm_start AS w ON m.candidate_id = w.candidate_id
LEFT JOIN mmdb.transfer AS o ON m.model_id = o.model_id
LEFT JOIN mmdb.transfer AS t ON coalesce(o.transfer_id, w.transfer_id) = t.transfer_id
LEFT JOIN mmdb.model AS q ON t.parent_id = q.model_id;
COMMENT ON VIEW mmdb.model_lineage IS 'From each model to its parents, run, dataset, tables and columns.';

CREATE OR REPLACE VIEW mmdb.tensor_storage AS
SELECT
    m.name AS model,
    m.version,
    t.ordinal,
    t.path,
    t.kind,
    t.trainable,
    t.tied_to,
    x.dtype,
    x.shape,
    x.byte_count,
    e.stored_bytes,
    e.chunks,
    e.chunk_bytes,
    e.base_id,
    x.minimum,
    x.maximum,
    x.mean,
    x.deviation,
    x.zeros,
    x.nans,
    x.created_at,
    x.tensor_id
FROM mmdb.model AS m
INNER JOIN mmdb.manifest_tensor AS t ON m.manifest_id = t.manifest_id
LEFT JOIN mmdb.model_change AS c ON m.model_id = c.model_id AND t.ordinal = c.ordinal
INNER JOIN mmdb.tensor AS x ON CASE WHEN c.tensor_id IS NULL THEN t.tensor_id ELSE c.tensor_id END = x.tensor_id -- noqa: ST02,LT05
LEFT JOIN mmdb.encoding AS e ON x.tensor_id = e.tensor_id
WHERE m.dropped_at IS NULL;
COMMENT ON VIEW mmdb.tensor_storage
IS 'The tensors of each model, with their statistics and how they lie in the database; a small one has no chunks of its own.';

CREATE OR REPLACE VIEW mmdb.alias_history AS
SELECT
    e.model,
    e.alias,
    e.version,
    e.happened_at,
    e.author,
    e.event_id
FROM mmdb.alias_event AS e;
COMMENT ON VIEW mmdb.alias_history IS 'Every move of every alias, and who moved it; the version is null where it was taken away.';

CREATE OR REPLACE VIEW mmdb.model_alias AS
WITH latest AS (
    SELECT
        e.model,
        e.alias,
        e.version,
        e.happened_at,
        e.author,
        row_number() OVER (PARTITION BY e.model, e.alias ORDER BY e.event_id DESC) AS place
    FROM mmdb.alias_event AS e
)

SELECT
    l.model,
    l.alias,
    l.version,
    l.happened_at AS since,
    l.author
FROM latest AS l
WHERE l.place = 1 AND l.version IS NOT NULL;
COMMENT ON VIEW mmdb.model_alias IS 'Where each alias is now.';

CREATE OR REPLACE VIEW mmdb.tag_overview AS
SELECT
    t.key,
    t.value,
    m.name AS model,
    m.version,
    t.created_at
FROM mmdb.model_tag AS t
INNER JOIN mmdb.model AS m ON t.model_id = m.model_id
WHERE m.dropped_at IS NULL;
COMMENT ON VIEW mmdb.tag_overview IS 'The tags of the models.';

CREATE OR REPLACE VIEW mmdb.metric_overview AS
SELECT
    t.metric,
    t.dataset,
    t.value,
    m.name AS model,
    m.version,
    t.created_at
FROM mmdb.model_metric AS t
INNER JOIN mmdb.model AS m ON t.model_id = m.model_id
WHERE m.dropped_at IS NULL;
COMMENT ON VIEW mmdb.metric_overview IS 'The metrics of the models; the dataset is empty where it was not said.';

CREATE OR REPLACE VIEW mmdb.note_overview AS
SELECT
    m.name AS model,
    m.version,
    n.note,
    n.created_at,
    n.author,
    n.note_id
FROM mmdb.model_note AS n
INNER JOIN mmdb.model AS m ON n.model_id = m.model_id
WHERE m.dropped_at IS NULL;
COMMENT ON VIEW mmdb.note_overview IS 'What people wrote about the models.';

CREATE OR REPLACE VIEW mmdb.retraining_overview AS
SELECT
    r.name AS run,
    m.name || '@' || cast(m.version AS text) AS model,
    n.name || '@' || cast(n.version AS text) AS new_model,
    d.name AS dataset,
    t.mode,
    t.metric,
    t.old_value,
    t.new_value,
    t.chance,
    t.passed,
    t.alias,
    t.reason,
    t.created_at,
    t.ended_at
FROM mmdb.retraining AS t
INNER JOIN mmdb.run AS r ON t.run_id = r.run_id
INNER JOIN mmdb.dataset AS d ON r.dataset_id = d.dataset_id
INNER JOIN mmdb.model AS m ON t.model_id = m.model_id
LEFT JOIN mmdb.model AS n ON t.new_model_id = n.model_id;
COMMENT ON VIEW mmdb.retraining_overview IS 'Models that were retrained, and whether what came of it took their place.';

CREATE OR REPLACE VIEW mmdb.forgetting_overview AS
SELECT
    f.forgetting_id,
    d.name AS dataset,
    s.ordinal AS step,
    s.entity,
    s.action,
    s.row_count,
    s.before_hash,
    s.after_hash,
    n.name || '@' || cast(n.version AS text) AS new_model,
    s.reason,
    f.note,
    f.author,
    f.begun_at,
    s.done_at
FROM mmdb.forgetting AS f
INNER JOIN mmdb.forgetting_step AS s ON f.forgetting_id = s.forgetting_id
INNER JOIN mmdb.dataset AS d ON f.dataset_id = d.dataset_id
LEFT JOIN mmdb.model AS n ON s.new_model_id = n.model_id;
COMMENT ON VIEW mmdb.forgetting_overview IS 'Things that forgotten rows had reached, with what became of each.';
