"""mmdb's part: a table of a Parquet file, learned by three statements, asked of others."""

from __future__ import annotations

import json
import math
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from mmdb.api import Database
from tests.bench.tables.peers import FLIGHTS, TABLES, error_of

SYSTEM = "mmdb"


def fit(db: Database, folder: Path, name: str, seed: int, **options: Any) -> dict[str, Any]:
    """Return the held-out error of mmdb, with defaults alone, and the seconds that it took.

    Args:
        options: arguments of create_run, of experiments.
    """
    table = {**TABLES, **FLIGHTS}[name]
    load_table(db, folder, name, seed)
    started = perf_counter()
    db.create_dataset(
        name,
        f"SELECT * FROM {name}_known",
        label=table.label,
        options={"task": "regression"} if table.is_regression else None,
        seed=seed,
    )
    db.create_run(name, dataset=name, seed=seed, **options)
    db.run(name).train(workers=2)
    seconds = perf_counter() - started
    found = list(
        db.predict_query(name, f"SELECT * FROM {name}_asked", probabilities=not table.is_regression)
    )
    truth = {
        str(row["id"]): row["y"]
        for row in db.sql(f'SELECT id, "{table.label}" AS y FROM {name}_asked')
    }
    if table.is_regression:
        errors = [float(row["prediction"]) - truth[str(row["key"])] for row in found]
        error = math.sqrt(float(np.mean(np.square(errors))))
    else:
        chances = [json.loads(row["probabilities"]) for row in found]
        classes = list(chances[0])
        values = np.array([[row[name] for name in classes] for row in chances])
        labels = np.array([_text(truth[str(row["key"])]) for row in found])
        error = error_of(table.metric, labels, values, classes)
    return {"table": name, "system": SYSTEM, "seed": seed, "error": error, "seconds": seconds}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def load_table(db: Database, folder: Path, name: str, seed: int) -> None:
    """Create tables of a file's rows: NAME_known, those to learn from, and NAME_asked."""
    file = folder / f"{name}.parquet"
    columns = [c for c in pq.read_schema(file).names if not c.startswith("held_out_")]
    listed = ", ".join(f'"{column}"' for column in columns)
    for part, condition in (("known", "NOT "), ("asked", "")):
        db.sql(
            f"CREATE TABLE {name}_{part} AS SELECT {listed} "
            f"FROM read_parquet('{file}') WHERE {condition}held_out_{seed}"
        )
