"""A database as years of work leave it, written in a minute: runs, hops, models, metrics, plans.

Every value is a function of its row's place, so that a fill of the same size is the same anywhere.
Runs begin every half hour from 2026-01-01 on; one in ten has warm starts, one in four a search with
a log, one in fifty averages its models. Versions of a model share its manifest but for ten tensors.
The database has to be empty: rows name each other by ids that are counted from 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from string import Template

from mmdb.api import Database
from mmdb.bench.workload import BenchShare
from mmdb.db.totals import seal_finished
from mmdb.errors import AlreadyExists

#: Partitions of each dataset; the last one is the validation slice.
PARTS = 5
#: Tensors of a model that no other has.
OWN = 10
#: Places of the rows `g.i` from 0; `//` divides integers; `digest<text>` is 32 bytes.
_ROWS = re.compile(r"FROM ROWS\((.+?)\)$", re.MULTILINE)
_DIGEST = re.compile(r"digest<(.+?)>")
#: Keys that the database makes: the next one has to come after those that are written here.
_KEYS = {name: f"{name}_id" for name in ("dataset", "run", "candidate", "plan", "transfer")} | {
    name: f"{name}_id" for name in ("tensor", "environment", "architecture", "definition")
}
_KEYS |= {name: f"{name}_id" for name in ("manifest", "model", "worker", "assignment")}
_KEYS |= {"partition": "part_id", "alias_event": "event_id", "zoo_event": "event_id"}
_KEYS |= {"model_note": "note_id"}
_NEXT_KEY = {
    "postgres": "SELECT setval(pg_get_serial_sequence('mmdb.{table}', '{key}'), max({key})) "
    "FROM mmdb.{table}",
    "duckdb": "SELECT max(nextval('mmdb.{table}_{key}_seq')) FROM mmdb.{table}",
}


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is to be; the defaults are those of the bars: a million hops and metrics."""

    runs: int = 2_000
    candidates: int = 20  # of each run
    epochs: int = 5
    datasets: int = 50
    models: int = 2_500
    versions: int = 4  # of each model
    families: int = 25  # of models that share their tensors but for ten
    tensors: int = 100  # of each version
    metrics: int = 100  # of each version
    assignments: int = 100_000

    def scaled(self, share: BenchShare) -> Size:
        """Return the same with fewer runs, models and assignments."""
        few = {name: share.of(getattr(self, name)) for name in ("runs", "models", "assignments")}
        return replace(self, **few)

    @property
    def hops(self) -> int:
        """Hops of a run."""
        return self.candidates * self.epochs * PARTS

    def values(self) -> dict[str, int]:
        """Return what the statements name."""
        return {
            "runs": self.runs,
            "candidates": self.candidates,
            "epochs": self.epochs,
            "parts": PARTS,
            "datasets": self.datasets,
            "hops": self.hops,
            "visits": self.candidates * PARTS,
            "marks": self.candidates * self.epochs,
            "models": self.models,
            "versions": self.models * self.versions,
            "tensors": self.tensors,
            "shared": self.tensors - OWN,
            "common": self.families * (self.tensors - OWN),
            "families": self.families,
            "own": OWN,
            "metrics": self.metrics,
            "assignments": self.assignments,
            "apart": max(1, self.runs * self.candidates // (self.models * self.versions)),
            "log": self.candidates * (self.epochs + 1) + self.candidates // 2,
            "logs": (self.runs + 3) // 4,
            "warm": (self.runs + 9) // 10 * self.candidates,
            "averaging": (self.runs + 49) // 50,
        }


def fill(db: Database, size: Size | None = None) -> None:
    """Write the rows, take the totals of the runs, and let the engine look at what it has.

    Raises:
        AlreadyExists: the database holds runs, datasets or models.
    """
    found = db.sql("SELECT (SELECT count(*) FROM mmdb.dataset) + count(*) AS n FROM mmdb.model")
    if found[0]["n"]:
        raise AlreadyExists(
            "The database is not empty.", hint="Give the bench a database of its own."
        )
    engine = db.connection.engine
    for table, statement in statements(engine, size or Size()):
        db.sql(statement)
        if engine == "postgres":
            db.sql(f"ANALYZE mmdb.{table}")
    for table, key in _KEYS.items():
        db.sql(_NEXT_KEY[engine].format(table=table, key=key))
    seal_finished(db.connection)
    db.sql("VACUUM ANALYZE" if engine == "postgres" else "CHECKPOINT")


def statements(engine: str, size: Size) -> Iterator[tuple[str, str]]:
    """Yield each table with the statement that fills it, in the engine's words."""
    values = size.values()
    for table, text in _statements():
        yield table, _in_words_of(engine, Template(text).substitute(values))


def _statements() -> Iterator[tuple[str, str]]:
    for text in _TABLES.strip().split(";\n"):
        table, _, body = text.strip().partition(" (")
        columns, _, select = body.partition(") ")
        yield table, f"INSERT INTO mmdb.{table} ({columns}) {select.rstrip(';')}"


def _in_words_of(engine: str, statement: str) -> str:
    statement = _ROWS.sub(r"FROM generate_series(CAST(0 AS bigint), \1 - 1) AS g(i)", statement)
    if engine == "postgres":
        statement = _DIGEST.sub(r"sha256(CAST(\1 AS bytea))", statement).replace("//", "/")
        return statement.replace(") SELECT", ") OVERRIDING SYSTEM VALUE SELECT", 1)
    return _DIGEST.sub(r"unhex(sha256(\1))", statement)


#: table (columns) SELECT …; `k` is a hop's place in its run, `at(x)` x seconds after 2026 began.
_TABLES = """
dataset (dataset_id, name, query, label, task, seed, partitions, validation, row_count, byte_count,
    content_hash, input_shape, options, created_at) SELECT
    g.i + 1, 'set-' || g.i, 'SELECT * FROM points', 'y', 'classification', 0, $parts - 1, 0.2, 5000,
    500000, digest<'dataset' || g.i>, ARRAY[10], CAST('{}' AS json), to_timestamp(1767225600)
FROM ROWS($datasets);
dataset_column (dataset_id, ordinal, name, kind, width) SELECT
    g.i // 20 + 1, g.i % 20, 'c' || g.i % 20, 'numeric', 1
FROM ROWS($datasets * 20);
dataset_source (dataset_id, ordinal, table_name, column_name, output_name) SELECT
    g.i // 20 + 1, g.i % 20, 'points', 'c' || g.i % 20, 'c' || g.i % 20
FROM ROWS($datasets * 20);
partition (part_id, dataset_id, ordinal, role, row_count, byte_count, content_hash) SELECT
    g.i + 1, g.i // $parts + 1, g.i % $parts,
    CASE WHEN g.i % $parts = $parts - 1 THEN 'validation' ELSE 'train' END, 1000, 100000,
    digest<'partition' || g.i>
FROM ROWS($datasets * $parts);
run (run_id, name, dataset_id, architecture, search, epochs, strategy, warm_start, seed, options,
    created_at, metric, maximize) SELECT
    g.i + 1, 'run-' || g.i, g.i % $datasets + 1, CAST('{}' AS json), CAST('{}' AS json), $epochs,
    CASE WHEN g.i % 50 = 0 THEN 'model_average' WHEN g.i % 2 = 0 THEN 'auto' ELSE 'mop' END,
    CASE WHEN g.i % 10 = 0 THEN 'auto' ELSE 'off' END, 0, CAST('{}' AS json),
    to_timestamp(1767225540 + 1800 * g.i), CASE WHEN g.i % 3 = 0 THEN 'rmse' ELSE 'accuracy' END,
    g.i % 3 <> 0
FROM ROWS($runs);
run_event (run_id, happened_at, event, workers) SELECT
    g.i // 2 + 1,
    to_timestamp(1767225600 + 1800 * (g.i // 2) + CASE WHEN g.i % 2 = 0 THEN -1 ELSE $hops + 9 END),
    CASE WHEN g.i % 2 = 0 THEN 'started' ELSE 'finished' END, 2
FROM ROWS(2 * $runs);
candidate (candidate_id, run_id, ordinal, config, seed, architecture_hash) SELECT
    g.i + 1, g.i // $candidates + 1, g.i % $candidates,
    CAST('{"lr": 0.' || g.i % 10 || ', "batch_size": 32}' AS json), g.i,
    digest<'architecture' || g.i // $candidates % 100>
FROM ROWS($runs * $candidates);
candidate_event (candidate_id, happened_at, event, sqlstate, message, trace) SELECT
    g.i * 97 + 1, to_timestamp(1767226000 + 1800 * (g.i * 97 // $candidates)), 'failed', 'MM204',
    'loss is nan', 'Traceback'
FROM ROWS($runs * $candidates // 97);
hop (part_id, candidate_id, epoch, ordinal, seed, row_count, steps, loss, metrics, read_s, load_s,
    compute_s, store_s, total_s, state_in, state_out, state_bytes, worker, node, device,
    environment, started_at, finished_at, objective, peak_bytes, group_size) SELECT
    h.run % $datasets * $parts + h.part + 1, h.run * $candidates + h.candidate + 1, h.epoch,
    h.epoch * $parts + h.part, h.i, 1000, CASE WHEN h.part = $parts - 1 THEN 0 ELSE 32 END,
    (h.candidate + 1) * 0.1 + h.part * 0.01 + h.epoch * 0.001,
    CASE
        WHEN h.part < $parts - 1 THEN CAST('{}' AS json)
        ELSE CAST('{"accuracy": 0.' || h.score || ', "rmse": 1.' || h.score || '}' AS json)
    END,
    0.125, CASE WHEN h.k % 3 = 0 THEN 0.0625 ELSE 0 END, 1 + h.k % 8 * 0.0625, 0.0625,
    1.5 + h.k % 8 * 0.0625, digest<'in' || h.i>, digest<'out' || h.i>, 400000,
    'worker-' || h.k % 2, 'node-1', 'cpu', 'torch 2.14 avx2 1 thread',
    to_timestamp(1767225600 + 1800 * h.run + h.k // 2 * 2),
    to_timestamp(1767225601 + 1800 * h.run + h.k // 2 * 2),
    CASE
        WHEN h.part < $parts - 1 THEN NULL
        WHEN h.i % 1009 = 0 THEN CAST('NaN' AS double precision)
        ELSE h.score / CAST(1000 AS double precision)
    END,
    100000000, CASE WHEN h.run % 50 = 7 THEN 2 END
FROM (
    SELECT q.*, (q.run * 31 + q.candidate * 7919 + q.epoch * 104729) % 900 + 100 AS score
    FROM (
        SELECT
            g.i, g.i // $hops AS run, g.i % $hops AS k, g.i % $hops // $visits AS epoch,
            g.i % $visits // $parts AS candidate, g.i % $parts AS part
        FROM ROWS($runs * $hops)
    ) AS q
) AS h;
merge (candidate_id, epoch, part_id, state_out, state_bytes, total_s, worker, node, started_at,
    finished_at) SELECT
    g.i // $marks * 50 * $candidates + g.i % $marks // $epochs + 1, g.i % $epochs, 1,
    digest<'merge' || g.i>, 400000, 0.25, 'worker-0', 'node-1',
    to_timestamp(1767225600 + 90000 * (g.i // $marks) + g.i % $marks),
    to_timestamp(1767225601 + 90000 * (g.i // $marks) + g.i % $marks)
FROM ROWS($averaging * $marks);
decision (run_id, ordinal, kind, candidate, epoch, value, decided_at) SELECT
    q.run * 4 + 1, q.k,
    CASE
        WHEN q.k < $candidates THEN 'start'
        WHEN q.k < $candidates + $marks THEN 'report'
        WHEN q.k % 2 = 0 THEN 'stop'
        ELSE 'goal'
    END,
    CASE
        WHEN q.k < $candidates THEN NULL
        WHEN q.k < $candidates + $marks THEN q.k % $candidates
        ELSE q.k - $candidates - $marks
    END,
    CASE
        WHEN q.k < $candidates THEN 1
        WHEN q.k < $candidates + $marks THEN q.k // $candidates
        WHEN q.k % 2 = 1 THEN $epochs
    END,
    0.5, to_timestamp(1767225600 + 7200 * q.run + q.k)
FROM (
    SELECT g.i // $log AS run, g.i % $log AS k
    FROM ROWS($logs * $log)
) AS q;
plan (plan_id, run_id, planned_at, candidates, measured, options, notes, simulated, assumed) SELECT
    g.i + 1, g.i + 1, to_timestamp(1767225570 + 1800 * g.i), $candidates, $candidates,
    CAST('{"workers": 2}' AS json), CAST('[]' AS json), false, false
FROM ROWS($runs);
estimate (plan_id, rank, strategy, workers, group_size, partitions, knobs, chosen, t_p10, t_p50,
    t_p90, lower_bound, compute_s, read_s, hop_s, communication_s, validation_s, idle_s,
    bytes_moved, peak_memory, hops, feasible, executed) SELECT
    g.i // 12 + 1, g.i % 12 + 1, CASE WHEN g.i % 12 < 6 THEN 'mop' ELSE 'data_parallel' END,
    g.i % 2 + 1, 1, $parts - 1, CAST('{}' AS json), g.i % 12 = 1, $hops * 0.9, $hops + g.i % 7,
    $hops * 1.1, $hops * 0.8, $hops * 0.7, 1, 1, 0, 1, 1, 1000000, 1000000000, $hops, true, true
FROM ROWS($runs * 12);
run_strategy (run_id, strategy, group_size, workers, plan_id, reason, decided_at) SELECT
    g.i * 2 + 1, 'mop', 1, 2, g.i * 2 + 1, 'the fastest', to_timestamp(1767225580 + 3600 * g.i)
FROM ROWS($runs // 2);
tensor (tensor_id, tensor_hash, dtype, shape, byte_count, minimum, maximum, mean, deviation, zeros,
    nans, created_at) SELECT
    g.i + 1, digest<'tensor' || g.i>, 'float32', ARRAY[256, 256], 262144, -1, 1, 0, 0.1, 0, 0,
    to_timestamp(1767225600)
FROM ROWS($common + $versions * $own);
encoding (tensor_id, base_id, word, chunk_bytes, chunks, stored_bytes) SELECT
    g.i + 1, NULL, 4, 262144, 1, 220000
FROM ROWS($common + $versions * $own);
environment (environment_id, environment_hash, details) SELECT
    g.i + 1, digest<'environment' || g.i>, CAST('{}' AS json)
FROM ROWS(5);
architecture (architecture_id, canonical_hash, is_traced, node_count, parameter_count,
    parameter_bytes) SELECT
    g.i + 1, digest<'graph' || g.i>, true, 50, $tensors * 65536, $tensors * 262144
FROM ROWS($families);
definition (definition_id, definition_hash, architecture, arguments, input_shape, outputs) SELECT
    g.i + 1, digest<'definition' || g.i>, CAST('{"factory": "mlp"}' AS json), CAST('{}' AS json),
    ARRAY[10], 2
FROM ROWS($families);
manifest (manifest_id, created_at) SELECT
    g.i + 1, to_timestamp(1767225600)
FROM ROWS($models);
manifest_tensor (manifest_id, ordinal, path, tensor_id, kind, trainable) SELECT
    g.i // $tensors + 1, g.i % $tensors, 'layer' || g.i % $tensors || '.weight',
    CASE
        WHEN g.i % $tensors < $shared
            THEN g.i // $tensors % $families * $shared + g.i % $tensors + 1
        ELSE $common + g.i // $tensors * $own + g.i % $tensors - $shared + 1
    END,
    'parameter', true
FROM ROWS($models * $tensors);
model (model_id, name, version, approach, parent_id, manifest_id, definition_id, architecture_id,
    environment_id, weights_hash, tensor_count, byte_count, dataset_id, candidate_id, epoch,
    metrics, reason, stored_bytes, save_s, created_at, dropped_at) SELECT
    g.i + 1, 'model-' || g.i % $models, g.i // $models + 1,
    CASE WHEN g.i < $models THEN 'snapshot' ELSE 'update' END,
    CASE WHEN g.i >= $models THEN g.i - $models + 1 END, g.i % $models + 1, g.i % $families + 1,
    g.i % $families + 1, 1, digest<'weights' || g.i>, $tensors, $tensors * 262144,
    g.i * $apart // $candidates % $datasets + 1, g.i * $apart + 1, $epochs - 1,
    CAST('{"accuracy": 0.9}' AS json), CAST('{}' AS json),
    CASE WHEN g.i < $families THEN $tensors ELSE $own END * 220000, 0.1,
    to_timestamp(1767225600 + 360 * g.i),
    CASE WHEN g.i % 200 = 3 THEN to_timestamp(1767226600 + 360 * g.i) END
FROM ROWS($versions);
model_change (model_id, ordinal, tensor_id) SELECT
    $models + g.i // $own + 1, $shared + g.i % $own, $common + $models * $own + g.i + 1
FROM ROWS(($versions - $models) * $own);
alias_event (event_id, model, alias, version, happened_at, author) SELECT
    g.i + 1, 'model-' || g.i % $models, CASE WHEN g.i % 2 = 0 THEN 'production' ELSE 'staging' END,
    CASE WHEN g.i % 11 < 10 THEN g.i // $models % 4 + 1 END, to_timestamp(1767225600 + 700 * g.i),
    'ann'
FROM ROWS(3 * $models);
model_tag (model_id, key, value, created_at) SELECT
    g.i // 3 + 1, 'key-' || g.i % 3, 'value-' || g.i % 50, to_timestamp(1767225600 + 120 * g.i)
FROM ROWS(3 * $versions);
model_metric (model_id, metric, dataset, value, created_at) SELECT
    g.i // $metrics + 1,
    CASE g.i % 10 WHEN 0 THEN 'accuracy' WHEN 1 THEN 'rmse' ELSE 'metric-' || g.i % 10 END,
    CASE WHEN g.i % $metrics < 10 THEN '' ELSE 'set-' || g.i % $metrics // 10 END,
    g.i * 7919 % 10000 / CAST(10000 AS double precision),
    to_timestamp(1767225600 + 360 * (g.i // $metrics))
FROM ROWS($versions * $metrics);
model_note (note_id, model_id, note, created_at, author) SELECT
    g.i + 1, g.i * 5 + 1, 'looks good', to_timestamp(1767225600 + 1800 * g.i), 'bob'
FROM ROWS($versions // 5);
zoo_event (event_id, model_id, event, reason, by_rule, happened_at) SELECT
    g.i + 1, g.i % $versions + 1, CASE WHEN g.i < $versions THEN 'admitted' ELSE 'hit' END, 'rule',
    true, to_timestamp(1767225600 + 90 * g.i)
FROM ROWS(4 * $versions);
transfer (transfer_id, parent_id, candidate_id, similarity, coverage, options, reason, match_s,
    transfer_s, created_at) SELECT
    g.i + 1, g.i % $versions + 1, g.i // $candidates * 10 * $candidates + g.i % $candidates + 1,
    0.9, 0.8, CAST('{}' AS json), 'the most similar', 0.01, 0.02,
    to_timestamp(1767225600 + 18000 * (g.i // $candidates))
FROM ROWS($warm);
transfer_tensor (transfer_id, ordinal, path, parent_path, operator, fraction) SELECT
    g.i // 50 + 1, g.i % 50, 'layer' || g.i % 50, 'layer' || g.i % 50, 'copy', 1
FROM ROWS($warm * 50);
warm_start (candidate_id, transfer_id, state_hash, lr_scale, lr_epochs, reason, match_s,
    decided_at) SELECT
    g.i // $candidates * 10 * $candidates + g.i % $candidates + 1,
    CASE WHEN g.i % 2 = 0 THEN g.i + 1 END, CASE WHEN g.i % 2 = 0 THEN digest<'warm' || g.i> END,
    1, 0, 'the most similar', 0.01, to_timestamp(1767225600 + 18000 * (g.i // $candidates))
FROM ROWS($warm);
profile (fingerprint, measured_at, kind, size, size_unit, value, unit, deviation, samples, machine,
    versions) SELECT
    'f', to_timestamp(1767225600), 'kind-' || g.i % 30, g.i, 'bytes', 1, 's', 0.1, 5,
    CAST('{"node": "node-1"}' AS json), CAST('{}' AS json)
FROM ROWS(300);
worker (worker_id, name, process, node, device, mode, started_at) SELECT
    g.i + 1, 'slot-' || g.i, 'p', 'node-1', 'cpu', 'server', to_timestamp(1767225600)
FROM ROWS(8);
worker_beat (worker_id, beat_at) SELECT
    g.i + 1, to_timestamp(1767225600)
FROM ROWS(8);
assignment (assignment_id, worker_id, candidate_id, epoch, part_id, detail, assigned_at, taken_at,
    finished_at) SELECT
    g.i + 1, g.i % 8 + 1, g.i // 25 % ($runs * $candidates) + 1, 0, 1, CAST('{"a": 1}' AS json),
    to_timestamp(1767225600 + g.i), to_timestamp(1767225600 + g.i),
    CASE WHEN g.i < $assignments - 4 THEN to_timestamp(1767225601 + g.i) END
FROM ROWS($assignments);
"""
