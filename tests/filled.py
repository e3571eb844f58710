"""A database with a row in every table, in which every key meets every other: all of them are 1."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ARRAY, Table

from mmdb import orm
from mmdb.api import Database
from tests import run_rows

#: What a table's checks want of a column; any other text is "one".
ALLOWED = {
    "function.kind": "tokenizer",
    "function.target": "tokenizer.json",
    "dataset.task": "regression",
    "dataset_column.kind": "numeric",
    "partition.role": "train",
    "run_event.event": "started",
    "candidate_event.event": "failed",
    "decision.kind": "stop",
    "manifest_tensor.kind": "parameter",
    "model.approach": "update",
    "run_request.request": "submit",
    "candidate_request.request": "stop",
    "worker.mode": "server",
    "zoo_event.event": "hit",
    "prediction_source.resolution": "column",
    "evaluation_source.resolution": "column",
    "drift_check.role": "feature",
    "model_origin.kind": "import",
    "share.kind": "model",
    "feature.pool": "mean",
    "feature.storage": "int8",
    "run_feature.choice": "stored",
    "retraining.mode": "continue",
    "forgetting_step.action": "erase",
    "schedule_run.outcome": "done",
}
LARGE = 2**53 + 1
WHEN = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def value_of(column: Any, text: str = "one") -> Any:
    """Return what a filled row has in a column: 1, so that every key meets every other."""
    name = f"{column.table.name}.{column.name}"
    kind = column.type.python_type if not isinstance(column.type, ARRAY) else list
    if column.name == "seed":
        return LARGE
    if column.name == "metrics":
        return '{"accuracy": 0.5}'
    if str(column.type) == "JSONB":
        return '{"a": {"b": [1, 2.5]}, "name": "one"}'
    if name in ("feature.shape", "shared_block.masked") or column.name == "input_shape":
        return [1, 2]
    by_kind = {bool: True, bytes: b"\x00\xff", datetime: WHEN, float: 1.5, int: 1, list: [1, LARGE]}
    return by_kind.get(kind, ALLOWED.get(name, text))


def tables_of(db: Database) -> list[Table]:
    """Return the tables that are mapped and that the database's engine has."""
    return [
        table
        for table in orm.Base.metadata.sorted_tables
        if not table.info.get("is_view")
        and table.info.get("engine", db.connection.engine) == db.connection.engine
    ]


def fill(db: Database, text: str = "one") -> None:
    """Give each table one row; and transfer a second, whose parent is a candidate."""
    if db.connection.engine == "postgres":
        _lift_rules(db)
    for table in tables_of(db):
        if table.name == "migration":  # it has rows
            continue
        identity = IDENTITIES.get(table.name)
        row = {c.name: value_of(c, text) for c in table.columns if c.name != identity}
        if table.name == "transfer":
            run_rows.insert(db, "transfer", **{**row, "parent_id": None})
            row["parent_candidate_id"] = None
        run_rows.insert(db, table.name, **row)
    if db.connection.engine == "postgres":
        db.sql("RESET session_replication_role")


def _lift_rules(db: Database) -> None:
    """Drop what says how large a value may be, and on whose partition a hop may lie."""
    db.sql("SET session_replication_role = replica")
    for rule in db.sql(
        "SELECT conrelid::regclass::text AS relation, conname AS name FROM pg_constraint"
        " WHERE connamespace = 'mmdb'::regnamespace AND coninhcount = 0"
        " AND conname LIKE '%\\_range'"
    ):
        db.sql(f"ALTER TABLE {rule['relation']} DROP CONSTRAINT {rule['name']}")


#: Columns that number themselves.
IDENTITIES = {
    "dataset": "dataset_id",
    "partition": "part_id",
    "run": "run_id",
    "candidate": "candidate_id",
    "tensor": "tensor_id",
    "environment": "environment_id",
    "architecture": "architecture_id",
    "definition": "definition_id",
    "manifest": "manifest_id",
    "model": "model_id",
    "alias_event": "event_id",
    "model_note": "note_id",
    "forgetting": "forgetting_id",
    "probe": "probe_id",
    "run_request": "request_id",
    "candidate_request": "request_id",
    "worker": "worker_id",
    "assignment": "assignment_id",
    "zoo_event": "event_id",
    "transfer": "transfer_id",
    "plan": "plan_id",
    "prediction": "prediction_id",
    "evaluation": "evaluation_id",
    "feature": "feature_id",
    "schedule": "schedule_id",
    "schedule_run": "schedule_run_id",
    "scoring": "scoring_id",
    "scoring_failure": "scoring_failure_id",
}
