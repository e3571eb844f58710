-- name: compare_models
-- Two models on the same rows.
SELECT
    t.metric,
    t.a_value,
    t.b_value,
    t.difference,
    t.low,
    t.high,
    t.p_value,
    t.better
FROM mmdb.compare_models(%(a)s::text, %(b)s::text, %(data)s::text, %(metrics)s::jsonb) AS t;

-- name: confusion_matrix
-- Rows by label and prediction.
SELECT
    t.label,
    t.prediction,
    t.rows,
    t.share
FROM mmdb.confusion_matrix(%(model)s::text, %(data)s::text) AS t;

-- name: roc_curve
-- The ROC curve of a class.
SELECT
    t.threshold,
    t.false_positive_rate,
    t.true_positive_rate
FROM mmdb.roc_curve(%(model)s::text, %(data)s::text, %(positive)s::text) AS t;

-- name: precision_recall
-- The precision-recall curve of a class.
SELECT
    t.threshold,
    t.precision,
    t.recall
FROM mmdb.precision_recall(%(model)s::text, %(data)s::text, %(positive)s::text) AS t;

-- name: calibration
-- What came of probabilities of a class.
SELECT
    t.low,
    t.high,
    t.row_count,
    t.score,
    t.share
FROM mmdb.calibration(%(model)s::text, %(data)s::text, %(positive)s::text, %(bins)s::integer) AS t;

-- name: thresholds
-- The threshold for a goal.
SELECT
    t.threshold,
    t.precision,
    t.recall,
    t.false_positive_rate,
    t.cost
FROM mmdb.thresholds(%(model)s::text, %(data)s::text, %(goal)s::jsonb, %(positive)s::text) AS t;

-- name: calibrate_model
-- A model's next version, calibrated or with a threshold.
SELECT
    t.model_id,
    t.name,
    t.version,
    t.calibration::text AS calibration
FROM mmdb.calibrate_model(
    %(model)s::text, %(data)s::text, %(method)s::text, %(goal)s::jsonb, %(positive)s::text, %(slice)s::text
) AS t;

-- name: residuals
-- A regression's errors, row by row.
SELECT
    t.row_key,
    t.label,
    t.prediction,
    t.residual
FROM mmdb.residuals(%(model)s::text, %(query)s::text, %(key)s::text) AS t;

-- name: importance
-- Columns by what a metric loses without them.
SELECT
    t.column_name,
    t.tables,
    t.metric_name,
    t.importance,
    t.low,
    t.high
FROM
    mmdb.importance(
        %(model)s::text, %(query)s::text, %(metric)s::text, %(by_table)s::boolean, %(repeats)s::integer
    ) AS t;

-- name: explain_predict
-- The columns that moved each prediction most.
SELECT
    t.row_key,
    t.prediction,
    t.answer,
    t.rank,
    t.column_name,
    t.value,
    t.contribution,
    t.gap
FROM
    mmdb.explain_predict(
        %(model)s::text, %(query)s::text, %(top)s::integer, %(key)s::text, %(method)s::text, %(baseline)s::jsonb
    ) AS t;

-- name: drift
-- How far each column has moved from the rows that a model learned from.
SELECT
    t.column_name,
    t.role,
    t.psi,
    t.distance,
    t.p_value,
    t.nulls_before,
    t.nulls_now,
    t.unseen,
    t.value_before,
    t.value_now,
    t.drifted
FROM mmdb.drift(%(model)s::text, %(query)s::text) AS t;

-- name: score_on_insert
-- Have a model predict a column of new rows.
SELECT mmdb.score_on_insert(%(target)s::text, %(model)s::text, %(into_column)s::text) AS scoring_id;

-- name: embed_on_insert
-- Have a model fill a column of new rows with their embeddings.
SELECT
    mmdb.embed_on_insert(
        %(target)s::text, %(model)s::text, %(into_column)s::text, %(layer)s::text, %(normalized)s::boolean
    ) AS scoring_id;

-- name: stop_scoring
-- Have no model fill a column of new rows any more.
SELECT mmdb.stop_scoring(%(target)s::text, %(into_column)s::text) AS scoring_id;

-- name: schedule
-- Store a statement that workers run again and again.
SELECT mmdb.schedule(%(name)s::text, %(statement)s::text, %(every)s::text, %(starts)s::text) AS schedule_id;

-- name: unschedule
-- Delete a schedule.
SELECT mmdb.unschedule(%(name)s::text) AS name;

-- name: training_rows
-- Training rows that helped, and that hurt.
SELECT
    t.row_key,
    t.effect,
    t.influence,
    t.label,
    t.loss
FROM
    mmdb.training_rows(
        %(model)s::text,
        %(query)s::text,
        %(trained)s::text,
        %(top)s::integer,
        %(key)s::text,
        %(checkpoints)s::integer
    ) AS t;

-- name: train_hop
-- Do one hop.
SELECT
    t.candidate_id,
    t.epoch,
    t.part_id,
    t.loss,
    t.objective,
    t.total_s,
    t.state_out,
    t.state_bytes,
    t.node,
    t.device
FROM mmdb.train_hop(
    %(part_id)s::bigint, %(candidate_id)s::bigint, %(epoch)s::integer, %(publish)s::boolean
) AS t;

-- name: train_hops
-- Do one hop of each of several candidates on the same partition.
SELECT
    t.candidate_id,
    t.epoch,
    t.part_id,
    t.loss,
    t.objective,
    t.total_s,
    t.state_out,
    t.state_bytes,
    t.node,
    t.device
FROM mmdb.train_hops(
    %(part_id)s::bigint, %(candidate_ids)s::bigint[], %(epoch)s::integer, %(publish)s::boolean
) AS t;

-- name: train_group
-- Do one member's part of a group's round.
SELECT
    t.candidate_id,
    t.epoch,
    t.part_id,
    t.loss,
    t.objective,
    t.total_s,
    t.state_out,
    t.state_bytes,
    t.node,
    t.device
FROM mmdb.train_group(
    %(part_ids)s::bigint[], %(candidate_id)s::bigint, %(epoch)s::integer, %(member)s::jsonb
) AS t;

-- name: begin_candidate
-- Settle what a candidate begins with.
SELECT
    b.candidate_id,
    b.parent,
    b.reason
FROM mmdb.begin_candidate(%(candidate_id)s::bigint) AS b;

-- name: merge_epoch
-- Average an epoch's states.
SELECT m.total_s
FROM mmdb.merge_epoch(%(candidate_id)s::bigint, %(epoch)s::integer) AS m;

-- name: stop_candidate
-- Stop a candidate.
SELECT mmdb.stop_candidate(%(candidate_id)s::bigint) AS request_id;

-- name: resume_candidate
-- Let a candidate go on.
SELECT mmdb.resume_candidate(%(candidate_id)s::bigint) AS request_id;

-- name: clone_candidate
-- Clone a candidate.
SELECT mmdb.clone_candidate(%(candidate_id)s::bigint, %(config)s::jsonb) AS candidate_id;

-- name: warm_up
-- Fix the session's device and load torch.
SELECT
    mmdb.warm_up(%(device)s::text) AS environment,
    mmdb.node() AS node;

-- name: run_order
-- Do the hop that a driver orders, on the node of its partition.
SELECT
    t.candidate_id,
    t.epoch,
    t.part_id,
    t.loss,
    t.objective,
    t.total_s,
    t.state_out,
    t.state_bytes,
    t.node,
    t.device
FROM mmdb.run_order(%(part_id)s::bigint, %(detail)s::jsonb) AS t;

-- name: warm_node
-- Let a session on the node of a partition serve a worker.
SELECT mmdb.warm_node(%(part_id)s::bigint, %(detail)s::jsonb) AS about;

-- name: create_run
-- Create a run.
SELECT
    t.run_id,
    t.candidates
FROM mmdb.create_run(
    %(name)s::text, %(dataset)s::text, %(architecture)s::text, %(search)s::jsonb, %(epochs)s::integer,
    %(strategy)s::text, %(warm_start)s::text, %(seed)s::bigint, %(options)s::jsonb,
    %(budget)s::text, %(per)s::text
) AS t;

-- name: register_factory
-- Register a factory.
SELECT mmdb.register_factory(%(name)s::text, %(target)s::text) AS name;

-- name: register_trainer
-- Register a factory.
SELECT mmdb.register_trainer(%(name)s::text, %(target)s::text) AS name;

-- name: register_function
-- Register a tokenizer, augmentation, loss or metric.
SELECT mmdb.register_function(%(name)s::text, %(target)s::text, %(kind)s::text) AS name;

-- name: save_candidate
-- Save a candidate's best checkpoint as a model, in the server.
SELECT
    t.model_id,
    t.name,
    t.version
FROM mmdb.save_candidate(
    %(candidate_id)s::bigint,
    %(name)s::text,
    %(approach)s::text,
    %(options)s::jsonb
) AS t;

-- name: predict
-- Predict one row.
SELECT mmdb.predict(%(model)s::text, %(x)s::jsonb) AS output;

-- name: generate
-- How a language model goes on with a text.
SELECT
    t.generated,
    t.tokens,
    t.stopped
FROM mmdb.generate(
    %(model)s::text, %(prompt)s::text, %(max_tokens)s::integer, %(temperature)s::double precision,
    %(top_k)s::integer, %(seed)s::bigint, %(time_limit)s::double precision
) AS t;

-- name: begin_retraining
-- Create the run that retrains a model.
SELECT
    t.run,
    t.model,
    t.dataset,
    t.reason
FROM mmdb.begin_retraining(
    %(model)s::text, %(mode)s::text, %(replay)s::double precision, %(epochs)s::integer, %(refresh)s::boolean
) AS t;

-- name: forget
-- Erase rows of a dataset, and what came of them.
SELECT
    t.entity,
    t.action,
    t.row_count,
    t.reason
FROM mmdb.forget(
    %(dataset)s::text, %(condition)s::text, %(models)s::text, %(note)s::text, %(dry_run)s::boolean
) AS t;

-- name: next_remake
-- Create the run that makes the next model without its forgotten rows.
SELECT
    t.run,
    t.model
FROM mmdb.next_remake() AS t;

-- name: end_retraining
-- Judge what a retraining came to.
SELECT
    t.run,
    t.model,
    t.new_model,
    t.dataset,
    t.metric,
    t.old_value,
    t.new_value,
    t.chance,
    t.passed,
    t.alias,
    t.reason
FROM mmdb.end_retraining(%(run)s::text, %(gate)s::jsonb, %(alias)s::text) AS t;

-- name: transformed
-- Show rows as models read them.
SELECT
    t.label,
    t.features
FROM mmdb.transformed(%(dataset)s::text, %(row_count)s::integer) AS t;

-- name: predict_query
-- Predict every row of a query.
SELECT
    t.key,
    t.prediction,
    t.probability,
    t.probabilities::text AS probabilities
FROM
    mmdb.predict_query(
        %(model)s::text, %(query)s::text, %(key)s::text, %(probabilities)s::boolean
    ) AS t;

-- name: predict_into
-- Predict every row of a query into a table.
SELECT
    mmdb.predict_into(
        %(model)s::text, %(query)s::text, %(target)s::text, %(key)s::text,
        %(probabilities)s::boolean
    ) AS row_count;

-- name: embed
-- Embed one row.
SELECT mmdb.embed(%(model)s::text, %(x)s::jsonb, %(layer)s::text, %(normalized)s::boolean) AS output;

-- name: embed_into
-- Write the embedding of every row of a query to a table.
SELECT
    mmdb.embed_into(
        %(model)s::text, %(query)s::text, %(target)s::text, %(key)s::text, %(into_column)s::text,
        %(layer)s::text, %(normalized)s::boolean
    ) AS row_count;

-- name: evaluate
-- Metrics of a model on a dataset or on the rows of a query.
SELECT
    t.metric,
    t.value,
    t.by_name,
    t.by_value,
    t.row_count,
    t.low,
    t.high
FROM
    mmdb.evaluate(
        %(model)s::text, %(data)s::text, %(slice)s::text, %(metrics)s::jsonb, %(by)s::text, %(intervals)s::boolean
    ) AS t;

-- name: leaderboard
-- The candidates of a run, best first.
SELECT
    l.rank,
    l.candidate_id,
    l.config::text AS config,
    l.accuracy,
    l.rmse,
    l.validation_loss,
    l.training_loss,
    l.best_epoch,
    l.epochs,
    l.hops,
    l.total_s,
    l.error,
    l.metric,
    l.objective,
    l.status,
    l.parent_id,
    l.parent,
    l.similarity,
    l.coverage,
    l.target,
    l.steps_to_target,
    l.cold_steps,
    l.steps_saved
FROM mmdb.leaderboard AS l
WHERE l.run = %(run)s::text
ORDER BY l.rank;

-- name: lineage
-- The edges up or down from an entity.
SELECT
    l.depth,
    l.kind,
    l.parent,
    l.child,
    l.via
FROM mmdb.lineage(%(entity)s::text, %(direction)s::text, %(hops)s::boolean, %(max_depth)s::integer) AS l;

-- name: explain_train
-- Plan a run.
SELECT
    t.rank,
    t.strategy,
    t.workers,
    t.group_size,
    t.t_p10,
    t.t_p50,
    t.t_p90,
    t.lower_bound,
    t.compute_s,
    t.read_s,
    t.hop_s,
    t.communication_s,
    t.validation_s,
    t.idle_s,
    t.bytes_moved,
    t.peak_memory,
    t.feasible,
    t.why_not,
    t.chosen,
    t.executed,
    t.simulated,
    t.assumed,
    t.knobs::text AS knobs,
    t.note,
    t.actual_s,
    t.actual_compute_s,
    t.actual_read_s,
    t.actual_hop_s,
    t.actual_validation_s,
    t.actual_idle_s
FROM mmdb.explain_train(%(run)s::text, %(options)s::jsonb) AS t;

-- name: calibrate
-- Measure this machine and this database.
SELECT
    c.kind,
    c.size,
    c.size_unit,
    c.value,
    c.unit,
    c.deviation,
    c.samples,
    c.note
FROM mmdb.calibrate(%(budget_s)s::double precision) AS c;

-- name: measure
-- Measure one thing in this session.
SELECT
    m.kind,
    m.size,
    m.value,
    m.unit,
    m.deviation,
    m.samples
FROM mmdb.measure(%(detail)s::jsonb) AS m;
