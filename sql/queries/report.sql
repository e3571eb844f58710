-- name: find_run
-- What a report says of a run at its head.
SELECT
    p.run,
    p.status,
    p.dataset,
    p.strategy,
    p.metric,
    p.epochs,
    p.candidates,
    p.failed,
    p.stopped,
    p.hops_done,
    p.hops_total,
    p.best_candidate_id,
    p.best_value,
    extract(EPOCH FROM p.created_at)::double precision AS created,
    extract(EPOCH FROM p.started_at)::double precision AS started,
    extract(EPOCH FROM p.last_hop_at)::double precision AS ended
FROM mmdb.run_progress AS p
WHERE p.run = %(run)s::text;

-- name: find_models
-- The models that came out of a run, the last first.
SELECT
    m.model,
    m.version,
    m.candidate_id,
    m.epoch,
    m.members,
    m.approach,
    m.byte_count,
    m.stored_bytes,
    s.shared_bytes,
    s.encoded_away_bytes,
    extract(EPOCH FROM m.created_at)::double precision AS created
FROM mmdb.model_overview AS m
LEFT JOIN mmdb.storage_overview AS s ON m.model_id = s.model_id
WHERE m.run = %(run)s::text AND m.dropped_at IS NULL
ORDER BY m.created_at DESC, m.model ASC, m.version DESC
LIMIT 200;

-- name: find_features
-- Where a run's features came from, those of the first layer first.
SELECT
    f.feature_id,
    f.layer,
    f.backbone,
    f.storage,
    f.choice,
    f.reason,
    f.candidates,
    f.hops,
    f.byte_count,
    f.compute_s,
    f.store_s,
    f.read_s,
    f.saved_s
FROM mmdb.run_features AS f
WHERE f.run = %(run)s::text
ORDER BY f.feature_id;

-- name: find_board
-- The candidates of a run, best first.
SELECT
    l.rank,
    l.candidate_id,
    l.config::text AS config,
    l.status,
    l.objective,
    l.validation_loss,
    l.training_loss,
    l.best_epoch,
    l.epochs,
    l.hops,
    l.total_s,
    l.parent,
    l.error
FROM mmdb.leaderboard AS l
WHERE l.run = %(run)s::text
ORDER BY l.rank;

-- name: find_epochs
-- The learning curves of a run.
SELECT
    p.candidate_id,
    p.epoch,
    p.training_loss,
    p.objective
FROM mmdb.candidate_progress AS p
WHERE p.run = %(run)s::text
ORDER BY p.candidate_id, p.epoch;

-- name: find_hops
-- The hops of a run, or of one candidate of it, by worker and in order.
SELECT
    h.worker,
    h.node,
    h.candidate_id,
    h.epoch,
    h.role,
    extract(EPOCH FROM h.started_at)::double precision AS begun,
    h.read_s,
    h.load_s,
    h.compute_s,
    h.total_s
FROM mmdb.hop_timeline AS h
WHERE h.run = %(run)s::text AND (%(candidate_id)s::bigint IS NULL OR h.candidate_id = %(candidate_id)s::bigint)
ORDER BY h.worker, h.started_at;

-- name: find_outcome
-- What a trained run took, beside what its last plan had said.
SELECT
    o.plan_id,
    o.rank,
    o.strategy,
    o.workers,
    o.group_size,
    o.t_p10,
    o.t_p50,
    o.t_p90,
    o.lower_bound,
    o.actual_s,
    o.compute_s,
    o.actual_compute_s,
    o.read_s,
    o.actual_read_s,
    o.hop_s,
    o.actual_hop_s,
    o.validation_s,
    o.actual_validation_s,
    o.idle_s,
    o.actual_idle_s,
    o.is_comparable
FROM mmdb.plan_outcome AS o
WHERE o.run = %(run)s::text;

-- name: find_plans
-- The plans of a run, the last first, with how many ways of training it they have.
SELECT
    p.plan_id,
    p.simulated,
    extract(EPOCH FROM p.planned_at)::double precision AS planned,
    count(*) AS ways
FROM mmdb.plan_overview AS p
WHERE p.run = %(run)s::text
GROUP BY p.plan_id, p.simulated, p.planned_at
ORDER BY p.plan_id DESC;

-- name: find_plan
-- A plan of a run, the best way first.
SELECT
    p.plan_id,
    extract(EPOCH FROM p.planned_at)::double precision AS planned,
    p.simulated,
    p.assumed,
    p.notes::text AS notes,
    p.rank,
    p.strategy,
    p.workers,
    p.group_size,
    p.t_p10,
    p.t_p50,
    p.t_p90,
    p.lower_bound,
    p.compute_s,
    p.read_s,
    p.hop_s,
    p.communication_s,
    p.validation_s,
    p.idle_s,
    p.bytes_moved,
    p.peak_memory,
    p.feasible,
    p.why_not,
    p.chosen,
    p.executed
FROM mmdb.plan_overview AS p
WHERE p.run = %(run)s::text AND p.plan_id = %(plan_id)s::bigint
ORDER BY p.rank;
