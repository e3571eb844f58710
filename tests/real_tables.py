"""Real tables as they come, loaded into a database: nobody has prepared them for training.

Each has a key column `id` but for the penguins. Pictures are PNG files.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from PIL import Image
from sklearn import datasets

from mmdb.api import Database

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RealTable:
    """A table with the column that models predict."""

    label: str
    columns: dict[str, str]  # SQL types by name
    rows: Rows


def penguins() -> RealTable:
    """344 penguins of three species, with NULLs; from package palmerpenguins."""
    text = (files("palmerpenguins") / "data" / "penguins.csv").read_text()
    names, *found = csv.reader(io.StringIO(text))
    numbers = ("bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g", "year")
    columns = {n: "double precision" if n in numbers else "text" for n in names}
    rows: Rows = [
        tuple(
            None if value == "NA" else float(value) if name in numbers else value
            for name, value in zip(names, row, strict=True)
        )
        for row in found
    ]
    return RealTable(label="species", columns=columns, rows=rows)


def of_scikit_learn(load: Callable[[], Any], *, label: str, is_class: bool) -> RealTable:
    """A table of numbers that scikit-learn brings along, its classes by name."""
    found = load()
    names = [name.replace(" ", "_").replace("/", "_") for name in map(str, found.feature_names)]
    columns = {"id": "integer", **dict.fromkeys(names, "double precision")}
    columns[label] = "text" if is_class else "double precision"
    truth = [str(found.target_names[k]) if is_class else float(k) for k in found.target]
    rows: Rows = [
        (number, *map(float, x), y)
        for number, (x, y) in enumerate(zip(found.data, truth, strict=True))
    ]
    return RealTable(label=label, columns=columns, rows=rows)


def digits_as_files() -> RealTable:
    """1,797 handwritten digits, each a PNG file."""
    found = datasets.load_digits()
    columns = {"id": "integer", "file": "bytea", "digit": "integer"}
    rows: Rows = [
        (number, png(image), int(digit))
        for number, (image, digit) in enumerate(zip(found.images, found.target, strict=True))
    ]
    return RealTable(label="digit", columns=columns, rows=rows)


def png(image: np.ndarray) -> bytes:
    """Return the file of a gray picture whose pixels are 0 to 16."""
    sink = io.BytesIO()
    Image.fromarray((image * 255 / 16).astype(np.uint8)).save(sink, "PNG")
    return sink.getvalue()


TABLES: dict[str, Callable[[], RealTable]] = {
    "penguins": penguins,
    "breast_cancer": lambda: of_scikit_learn(
        datasets.load_breast_cancer, label="diagnosis", is_class=True
    ),
    "wine": lambda: of_scikit_learn(datasets.load_wine, label="cultivar", is_class=True),
    "diabetes": lambda: of_scikit_learn(
        datasets.load_diabetes, label="progression", is_class=False
    ),
    "digit_files": digits_as_files,
}


def load_real_table(db: Database, name: str) -> RealTable:
    """Create a table of `TABLES` and return it."""
    table = TABLES[name]()
    columns = ", ".join(f'"{column}" {kind}' for column, kind in table.columns.items())
    db.sql(f"CREATE TABLE {name} ({columns})")
    insert(db, name, [*table.columns], table.rows)
    return table


def insert(db: Database, name: str, columns: Sequence[str], rows: Rows) -> None:
    """Add rows to a table."""
    postgres = db.connection.engine == "postgres"
    keys = [f"c{place}" for place in range(len(columns))]
    marks = ", ".join(f"%({key})s" if postgres else f"${key}" for key in keys)
    with db.connection.transaction():
        for row in rows:
            db.sql(f"INSERT INTO {name} VALUES ({marks})", dict(zip(keys, row, strict=True)))
