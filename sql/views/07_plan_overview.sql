-- What plans say of each way of training a run, for those who may not ask for a plan.

CREATE OR REPLACE VIEW mmdb.plan_overview AS
SELECT
    r.name AS run,
    p.plan_id,
    p.planned_at,
    p.plan_id = max(p.plan_id) OVER (PARTITION BY r.name) AS is_latest,
    p.simulated,
    p.assumed,
    p.candidates,
    p.measured,
    p.notes,
    e.rank,
    e.strategy,
    e.workers,
    e.group_size,
    e.partitions,
    e.batch_size,
    e.t_p10,
    e.t_p50,
    e.t_p90,
    e.lower_bound,
    e.compute_s,
    e.read_s,
    e.hop_s,
    e.communication_s,
    e.validation_s,
    e.idle_s,
    e.bytes_moved,
    e.peak_memory,
    e.hops,
    e.feasible,
    e.why_not,
    e.chosen,
    e.executed
FROM mmdb.estimate AS e
INNER JOIN mmdb.plan AS p ON e.plan_id = p.plan_id
INNER JOIN mmdb.run AS r ON p.run_id = r.run_id;
COMMENT ON VIEW mmdb.plan_overview IS 'Every plan of every run: what each way of training it would take, the best first.';
