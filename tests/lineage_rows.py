"""A database whose lineage holds every kind of edge, written by hand; the same on both engines."""

from __future__ import annotations

import json
from typing import Any

from mmdb.api import Database
from tests.run_rows import START, Writer, add_run, ids, insert

#: What dataset d reads: table, column, output, schema, view, resolution.
SOURCES = [
    ("t", "a", "x", "shop", None, "column"),
    ("t", "b", "y", "shop", "shop.v > shop.w", "column"),
    ("t", "c", None, "shop", None, "column"),
    ("u", None, "z", "shop", None, "table"),
    ("", None, "q", None, None, "unresolved"),
]


def fill(db: Database) -> None:
    """Write the rows; what they mean is in `tests/integration/test_lineage.py`."""
    dropped = add_dataset(db, "d", [("t", "a", "x", None, None, None)], dropped_at=START)
    assert dropped == 1
    d = add_dataset(db, "d", SOURCES)
    odd = add_dataset(db, "odd", [('we".ird', "two.parts", "x", "my.schema", None, "column")])
    add_dataset(db, "other", [("t", "a", "x", "depot", None, "column")])

    add_run(db, "r", d, metric="accuracy", maximize=True, epochs=3, strategy="mop")
    run = Writer(db, "r")
    for ordinal in range(2):
        run.candidate({"lr": ordinal})
        for epoch in range(3):
            run.epoch(ordinal, epoch, 0.5)
    run.candidate({}, parent=0)  # from its first epoch
    run.epoch(2, 0, 0.5)
    run.candidate({}, parent=1)
    lost = run.candidates[3]
    db.sql(f"UPDATE mmdb.candidate SET parent_state = NULL WHERE candidate_id = {lost}")

    first = add_model(db, "r", 1, dataset_id=d, candidate_id=run.candidates[0], epoch=2)
    second = add_model(db, "r", 2, dataset_id=d, candidate_id=run.candidates[2], epoch=0)
    update = add_model(db, "net", 1, approach="update", parent_id=first)
    tuned = add_model(db, "tuned", 1, approach="provenance", parent_id=update, dataset_id=odd)
    insert(db, "recipe", model_id=tuned, trainer="tune", arguments="{}", seed=0, tensor_hashes=b"")
    add_model(db, "net", 2, parent_id=update, dropped_at=START)
    grown = add_model(db, "grown", 1)
    imported = add_model(db, "imported", 1)
    pulled = add_model(db, "pulled", 1, parent_id=imported)
    add_origin(db, imported, "import", "/models/a:b.pt")
    add_origin(db, pulled, "pull", "postgresql://far/zoo")
    add_transfer(db, parent_id=imported, model_id=grown)

    add_run(db, "warm", d, metric="rmse", maximize=False, epochs=1, strategy="mop")
    begun = Writer(db, "warm")
    begun.candidate({})
    insert_warm_start(db, begun.candidates[0], add_transfer(db, parent_id=second))
    begun.candidate({})
    of_candidate = add_transfer(
        db, parent_candidate_id=run.candidates[1], parent_state=b"1", model_id=None
    )
    insert_warm_start(db, begun.candidates[1], of_candidate)
    begun.epoch(0, 0, 0.5)
    add_model(db, "warm", 1, dataset_id=d, candidate_id=begun.candidates[0], epoch=0)

    # Predictions of tuned feed a dataset, whose model predicts into what d is read from: a cycle.
    predicted = add_prediction(db, tuned, "shop", "scores", [("t", "a", "x", "shop", "column")])
    assert predicted == 1
    again = add_dataset(db, "again", [("scores", "prediction", "y", "shop", None, "column")])
    cycle = add_model(db, "cycle", 1, dataset_id=again)
    add_prediction(db, cycle, "shop", "t", [("u", None, "x", "shop", "table")])
    for version in range(1, 41):  # deeper than models are read one by one
        parent = ids(db, "model", "model_id")[-1] if version > 1 else cycle
        add_model(db, "chain", version, approach="update", parent_id=parent)
    insert(db, "alias_event", model="net", alias="prod", version=1)
    add_dataset(db, "grown", [])


def add_dataset(
    db: Database, name: str, sources: list[tuple[Any, ...]], dropped_at: Any = None
) -> int:
    """Insert a dataset with a train and a validation partition; return its id."""
    insert(
        db,
        "dataset",
        name=name,
        query="SELECT 1",
        label="y",
        task="classification",
        seed=0,
        partitions=1,
        validation=0.5,
        row_count=2,
        byte_count=2,
        content_hash=b"c",
        input_shape=[1],
        options="{}",
        created_at=START,
        dropped_at=dropped_at,
    )
    dataset_id = ids(db, "dataset", "dataset_id")[-1]
    names = ("table_name", "column_name", "output_name", "schema_name", "via", "resolution")
    for ordinal, source in enumerate(sources):
        given = dict(zip(names, source, strict=True))
        insert(db, "dataset_source", dataset_id=dataset_id, ordinal=ordinal, **given)
    for ordinal, role in enumerate(("train", "validation")):
        insert(
            db,
            "partition",
            dataset_id=dataset_id,
            ordinal=ordinal,
            role=role,
            row_count=1,
            byte_count=1,
            content_hash=b"p",
        )
    return dataset_id


def add_model(db: Database, name: str, version: int, **columns: Any) -> int:
    """Insert a model without tensors; return its id."""
    insert(
        db,
        "model",
        **{
            "name": name,
            "version": version,
            "approach": "snapshot",
            "weights_hash": b"w",
            "tensor_count": 0,
            "byte_count": 0,
            "metrics": "{}",
            "reason": json.dumps({}),
            "stored_bytes": 0,
            "save_s": 0.0,
            "created_at": START,
        }
        | columns,
    )
    return ids(db, "model", "model_id")[-1]


def add_origin(db: Database, model_id: int, kind: str, source: str) -> None:
    """Say where a model came from."""
    insert(db, "model_origin", model_id=model_id, kind=kind, source=source, happened_at=START)


def add_transfer(db: Database, **columns: Any) -> int:
    """Insert what was carried over from a parent; return its id."""
    insert(
        db,
        "transfer",
        similarity=1.0,
        coverage=1.0,
        options="{}",
        reason="because",
        match_s=0.0,
        transfer_s=0.0,
        **columns,
    )
    return ids(db, "transfer", "transfer_id")[-1]


def insert_warm_start(db: Database, candidate_id: int, transfer_id: int) -> None:
    """Say what a candidate began with."""
    insert(
        db,
        "warm_start",
        candidate_id=candidate_id,
        transfer_id=transfer_id,
        lr_scale=1.0,
        lr_epochs=0,
        reason="because",
        match_s=0.0,
        decided_at=START,
    )


def add_prediction(
    db: Database, model_id: int, schema: str, table: str, sources: list[tuple[Any, ...]]
) -> int:
    """Say that a model predicted into a table, and from what; return the prediction's id."""
    insert(
        db,
        "prediction",
        model_id=model_id,
        schema_name=schema,
        table_name=table,
        key_name="id",
        query="SELECT 1",
        row_count=1,
        seconds=0.0,
    )
    prediction_id = ids(db, "prediction", "prediction_id")[-1]
    names = ("table_name", "column_name", "output_name", "schema_name", "resolution")
    for ordinal, source in enumerate(sources):
        given = dict(zip(names, source, strict=True))
        insert(db, "prediction_source", prediction_id=prediction_id, ordinal=ordinal, **given)
    return prediction_id
