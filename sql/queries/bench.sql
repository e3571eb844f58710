-- name: find_tables
-- Tables that a bench made.
SELECT t.table_name
FROM information_schema.tables AS t
WHERE t.table_name LIKE %(prefix)s::text AND t.table_schema <> 'mmdb';

-- name: delete_retrainings
-- What a bench's runs retrain.
DELETE FROM mmdb.retraining
WHERE run_id IN (
    SELECT r.run_id FROM mmdb.run AS r
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_forgetting_steps
-- What rows that a bench's datasets forgot had reached.
DELETE FROM mmdb.forgetting_step
WHERE forgetting_id IN (
    SELECT f.forgetting_id FROM mmdb.forgetting AS f
    INNER JOIN mmdb.dataset AS d ON f.dataset_id = d.dataset_id
    WHERE d.name LIKE %(prefix)s::text
);

-- name: delete_forgettings
-- Calls of forget for a bench's datasets.
DELETE FROM mmdb.forgetting
WHERE dataset_id IN (
    SELECT d.dataset_id FROM mmdb.dataset AS d
    WHERE d.name LIKE %(prefix)s::text
);

-- name: delete_checkpoint_chunks
-- The bytes of a bench's checkpoints.
DELETE FROM mmdb.checkpoint_chunk
WHERE candidate_id IN (
    SELECT c.candidate_id
    FROM mmdb.candidate AS c
    INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_checkpoints
-- A bench's checkpoints.
DELETE FROM mmdb.checkpoint
WHERE candidate_id IN (
    SELECT c.candidate_id
    FROM mmdb.candidate AS c
    INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_run_totals
-- What a bench's runs came to.
DELETE FROM mmdb.run_total
WHERE run_id IN (
    SELECT r.run_id FROM mmdb.run AS r
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_candidate_totals
-- What their candidates came to.
DELETE FROM mmdb.candidate_total
WHERE run_id IN (
    SELECT r.run_id FROM mmdb.run AS r
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_epoch_totals
-- What their epochs added up to.
DELETE FROM mmdb.epoch_total
WHERE run_id IN (
    SELECT r.run_id FROM mmdb.run AS r
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_hour_totals
-- What their workers did in each hour.
DELETE FROM mmdb.hour_total
WHERE run_id IN (
    SELECT r.run_id FROM mmdb.run AS r
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_hops
-- A bench's hops.
DELETE FROM mmdb.hop
WHERE candidate_id IN (
    SELECT c.candidate_id
    FROM mmdb.candidate AS c
    INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_candidate_events
-- What happened to a bench's candidates.
DELETE FROM mmdb.candidate_event
WHERE candidate_id IN (
    SELECT c.candidate_id
    FROM mmdb.candidate AS c
    INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_merges
-- The states that a bench's runs averaged.
DELETE FROM mmdb.merge
WHERE candidate_id IN (
    SELECT c.candidate_id
    FROM mmdb.candidate AS c
    INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_candidate_requests
-- What was asked of a bench's candidates.
DELETE FROM mmdb.candidate_request
WHERE candidate_id IN (
    SELECT c.candidate_id
    FROM mmdb.candidate AS c
    INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_assignments
-- What worker processes were given of a bench's runs.
DELETE FROM mmdb.assignment
WHERE candidate_id IN (
    SELECT c.candidate_id
    FROM mmdb.candidate AS c
    INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_step_times
-- Steps that plans of a bench's runs measured.
DELETE FROM mmdb.step_time
WHERE candidate_id IN (
    SELECT c.candidate_id
    FROM mmdb.candidate AS c
    INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_step_predictions
-- What profiles said of the steps of a bench's runs.
DELETE FROM mmdb.step_prediction
WHERE candidate_id IN (
    SELECT c.candidate_id
    FROM mmdb.candidate AS c
    INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_candidate_features
-- What a bench's candidates trained on.
DELETE FROM mmdb.candidate_feature
WHERE candidate_id IN (
    SELECT c.candidate_id
    FROM mmdb.candidate AS c
    INNER JOIN mmdb.run AS r ON c.run_id = r.run_id
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_run_features
-- Where the features of a bench's runs came from.
DELETE FROM mmdb.run_feature
WHERE run_id IN (
    SELECT r.run_id FROM mmdb.run AS r
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_candidates
-- A bench's candidates.
DELETE FROM mmdb.candidate
WHERE run_id IN (
    SELECT r.run_id FROM mmdb.run AS r
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_decisions
-- What a bench's searches decided.
DELETE FROM mmdb.decision
WHERE run_id IN (
    SELECT r.run_id FROM mmdb.run AS r
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_run_outcomes
-- How a bench's submitted runs ended.
DELETE FROM mmdb.run_outcome
WHERE run_id IN (
    SELECT r.run_id FROM mmdb.run AS r
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_run_requests
-- What was asked of a bench's runs.
DELETE FROM mmdb.run_request
WHERE run_id IN (
    SELECT r.run_id FROM mmdb.run AS r
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_run_events
-- What happened to a bench's runs.
DELETE FROM mmdb.run_event
WHERE run_id IN (
    SELECT r.run_id FROM mmdb.run AS r
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_run_strategies
-- How a bench's runs were decided to be trained.
DELETE FROM mmdb.run_strategy
WHERE run_id IN (
    SELECT r.run_id FROM mmdb.run AS r
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_estimates
-- What plans said of a bench's runs.
DELETE FROM mmdb.estimate
WHERE plan_id IN (
    SELECT p.plan_id
    FROM mmdb.plan AS p
    INNER JOIN mmdb.run AS r ON p.run_id = r.run_id
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_plans
-- The plans of a bench's runs.
DELETE FROM mmdb.plan
WHERE run_id IN (
    SELECT r.run_id FROM mmdb.run AS r
    WHERE r.name LIKE %(prefix)s::text
);

-- name: delete_runs
-- A bench's runs.
DELETE FROM mmdb.run
WHERE name LIKE %(prefix)s::text;

-- name: delete_feature_blocks
-- What is stored of features of a bench's datasets.
DELETE FROM mmdb.feature_block
WHERE feature_id IN (
    SELECT f.feature_id
    FROM mmdb.feature AS f
    INNER JOIN mmdb.dataset AS d ON f.dataset_id = d.dataset_id
    WHERE d.name LIKE %(prefix)s::text
);

-- name: delete_feature_parts
-- Which of their partitions are stored.
DELETE FROM mmdb.feature_part
WHERE feature_id IN (
    SELECT f.feature_id
    FROM mmdb.feature AS f
    INNER JOIN mmdb.dataset AS d ON f.dataset_id = d.dataset_id
    WHERE d.name LIKE %(prefix)s::text
);

-- name: delete_features
-- The features of a bench's datasets.
DELETE FROM mmdb.feature
WHERE dataset_id IN (
    SELECT d.dataset_id FROM mmdb.dataset AS d
    WHERE d.name LIKE %(prefix)s::text
);

-- name: delete_shared_blocks
-- The blocks that versions of a bench's datasets share.
DELETE FROM mmdb.shared_block
WHERE part_id IN (
    SELECT p.part_id
    FROM mmdb.partition AS p
    INNER JOIN mmdb.dataset AS d ON p.dataset_id = d.dataset_id
    WHERE d.name LIKE %(prefix)s::text
);

-- name: delete_blocks
-- The rows of a bench's datasets.
DELETE FROM mmdb.block
WHERE part_id IN (
    SELECT p.part_id
    FROM mmdb.partition AS p
    INNER JOIN mmdb.dataset AS d ON p.dataset_id = d.dataset_id
    WHERE d.name LIKE %(prefix)s::text
);

-- name: delete_partitions
-- The partitions of a bench's datasets.
DELETE FROM mmdb.partition
WHERE dataset_id IN (
    SELECT d.dataset_id FROM mmdb.dataset AS d
    WHERE d.name LIKE %(prefix)s::text
);

-- name: delete_transforms
-- The transforms of a bench's datasets.
DELETE FROM mmdb.transform
WHERE dataset_id IN (
    SELECT d.dataset_id FROM mmdb.dataset AS d
    WHERE d.name LIKE %(prefix)s::text
);

-- name: delete_dataset_columns
-- The columns of a bench's datasets.
DELETE FROM mmdb.dataset_column
WHERE dataset_id IN (
    SELECT d.dataset_id FROM mmdb.dataset AS d
    WHERE d.name LIKE %(prefix)s::text
);

-- name: delete_dataset_sources
-- The sources of a bench's datasets.
DELETE FROM mmdb.dataset_source
WHERE dataset_id IN (
    SELECT d.dataset_id FROM mmdb.dataset AS d
    WHERE d.name LIKE %(prefix)s::text
);

-- name: delete_datasets
-- A bench's datasets.
DELETE FROM mmdb.dataset
WHERE name LIKE %(prefix)s::text;

-- name: delete_worker_beats
-- Signs of life of a bench's worker processes.
DELETE FROM mmdb.worker_beat
WHERE worker_id IN (
    SELECT w.worker_id FROM mmdb.worker AS w
    WHERE w.process LIKE %(prefix)s::text
);

-- name: delete_workers
-- The slots of a bench's worker processes.
DELETE FROM mmdb.worker
WHERE process LIKE %(prefix)s::text;
