"""Models meet tables with columns, categories and classes in any order: nothing is silently wrong.

Each case makes a random table and a linear model of it, and a second table that may be like the
first. What `evaluate`, `predict`, `predict_query` and `predict_into` answer on the second one is
compared with what the model computes of its rows by name and value, on both engines. Where a row
does not fit the model the answer must be an error that names a column which is the reason.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import psycopg

import mmdb
from mmdb.bench.figures import Figure
from mmdb.data.dataset import find_dataset
from mmdb.db.install import install
from mmdb.errors import MmdbError, OneClass
from tests.bench.search.campaigns import none_of
from tests.bench.search.tables import (
    LABEL,
    NUMBERS,
    WIDTH,
    Engine,
    Model,
    Row,
    Table,
    draw_table,
    other_table,
    quote,
    text_of,
)
from tests.bench.search.warm_columns import warm_figures
from tests.cluster import Cluster

ENGINES: tuple[Engine, ...] = ("duckdb", "postgres")
CHECKS = ("evaluate", "predict_query", "predict_into", "predict")
#: What must not happen.
FAULTS = ("wrong answers", "errors without the column", "refused although it fits")
_CLOSE = 1e-3


def search(*, seed: int, cases: int) -> list[Figure]:
    """Return how often each check was wrong on each engine; the engines work side by side."""
    with ProcessPoolExecutor(len(ENGINES), mp_context=get_context("spawn")) as pool:
        found = list(pool.map(partial(_on_engine, seed, cases), ENGINES))
    warm = warm_figures(seed=seed, cases=cases)
    return [*(figure for figures in found for figure in figures), *warm]


def _on_engine(seed: int, cases: int, engine: Engine) -> list[Figure]:
    with database(engine) as db:
        return figures_of(db, seed=seed, cases=cases)


def figures_of(db: mmdb.Database, *, seed: int, cases: int) -> list[Figure]:
    """Return how often each check was wrong in a database, which the cases may fill."""
    found: Counter[tuple[str, str]] = Counter()
    for number in range(cases):
        Case(db=db, seed=seed, number=number, found=found).run()
    figures = []
    for check in CHECKS:
        name = f"{db.connection.engine}: {check}"
        figures += [none_of(f"{name}: {fault}", found[check, fault], "cases") for fault in FAULTS]
        for what in ("right", "named"):
            figures.append(Figure(name=f"{name}: {what}", value=found[check, what], unit="cases"))
    return figures


@contextmanager
def database(engine: Engine) -> Iterator[mmdb.Database]:
    """Yield a fresh database of an engine."""
    if engine == "duckdb":
        with tempfile.TemporaryDirectory(prefix="mmdb-search-") as folder:
            with mmdb.connect(f"duckdb:///{Path(folder) / 'search.duckdb'}") as db:
                yield db
        return
    with Cluster() as cluster:
        url = cluster.create_database("search")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS plpython3u")
        install(url)
        with mmdb.connect(url) as db:
            yield db


@dataclass
class Case:
    """One model, and one table that it meets."""

    db: mmdb.Database
    seed: int
    number: int
    found: Counter[tuple[str, str]]
    draw: Random = field(init=False)

    def __post_init__(self) -> None:
        self.draw = Random(f"{self.seed} {self.number}")
        self.engine: Engine = self.db.connection.engine
        self.name = f"m{self.number}"
        self.table = draw_table(self.draw)
        self.model = Model.of(self.table, self.draw.randrange(2**32))

    def run(self) -> None:
        """Make both tables and the model, and check what it says of the second."""
        self.db.sql(self.table.statement("learned", self.engine))
        self.other = other_table(self.draw, self.table)
        self.db.sql(self.other.statement("met", self.engine))
        self._dataset(self.name, self.table, "learned")
        decoding = find_dataset(self.db.connection, self.name).decoding
        self.db.save(self.name, self.model.module(decoding), dataset=self.name)
        columns = ["id", *self.other.kinds]
        self.draw.shuffle(columns)
        self.query = f"SELECT {', '.join(map(quote, columns))} FROM met"
        self._check("evaluate", self._evaluate, faults(self.model, self.other, whole=True))
        asked = faults(self.model, self.other, text=self._text)
        self._check("predict_query", self._predict_query, asked)
        self._check("predict_into", self._predict_into, asked)
        self._check_rows()
        for table in ("learned", "met", "predicted"):
            self.db.sql(f"DROP TABLE IF EXISTS {table}")

    def _dataset(self, name: str, table: Table, source: str) -> None:
        columns = list(table.kinds)
        self.draw.shuffle(columns)
        self.db.create_dataset(
            name,
            f"SELECT {', '.join(map(quote, columns))} FROM {source}",
            label=LABEL,
            partitions=self.draw.randint(1, 2),
            validation=0,
            seed=self.number,
            options={"transforms": as_they_are(columns, table.kinds)},
        )

    def _text(self, value: Any) -> str:
        """Return a value as the engine casts it to a text."""
        if isinstance(value, float) and value.is_integer() and self.engine == "postgres":
            return str(int(value))
        return text_of(value)

    # -- what is asked ---------------------------------------------------------

    def _check(self, check: str, ask: Callable[[], bool], wanted: set[str]) -> None:
        """Count what an answer is: right, named, or one of FAULTS.

        Args:
            ask: returns whether the answer is right.
            wanted: columns of which an error is to name one; empty where there is to be none.
        """
        said = ""
        try:
            is_right = ask()
            outcome = "right" if is_right and not wanted else FAULTS[0]
        except OneClass:
            return
        except MmdbError as error:
            said = str(error)
            is_named = any(name in error.message or repr(name) in error.message for name in wanted)
            outcome = "named" if is_named else FAULTS[1 if wanted else 2]
        self.found[check, outcome] += 1
        if outcome in FAULTS:
            about = f"case {self.number} of seed {self.seed}, {self.engine}, {check}: {outcome}"
            print(f"{about}: {wanted or ''} {said}", file=sys.stderr)

    def _evaluate(self) -> bool:
        self._dataset(f"e{self.number}", self.other, "met")
        found = self.db.evaluate(self.name, f"e{self.number}")
        if faults(self.model, self.other, whole=True):
            return False
        outputs = np.array([self.model.output(row) for row in self.other.rows])
        labels = [row[LABEL] for row in self.other.rows]
        if self.model.classes is None:
            errors = outputs[:, 0] - np.array(labels, float)
            expected = {"rmse": math.sqrt((errors**2).mean()), "mae": np.abs(errors).mean()}
            return all(_close(found[name], value) for name, value in expected.items())
        classes = self.model.classes
        right = sum(classes[k] == y for k, y in zip(outputs.argmax(1), labels, strict=True))
        unsure = sum(bool(np.diff(np.sort(row)[-2:])[0] < _CLOSE) for row in outputs)
        return math.isclose(found["accuracy"] * len(labels), right, abs_tol=unsure + _CLOSE)

    def _predict_query(self) -> bool:
        return self._are_right(self.db.predict_query(self.name, self.query))

    def _predict_into(self) -> bool:
        self.db.predict_into(self.name, self.query, "predicted")
        return self._are_right(self.db.sql("SELECT id AS key, * FROM predicted"))

    def _are_right(self, rows: list[Any]) -> bool:
        if faults(self.model, self.other, text=self._text):
            return False
        if sorted(int(row["key"]) for row in rows) != list(range(len(self.other.rows))):
            return False
        return all(self._is_right(row, self.other.rows[int(row["key"])]) for row in rows)

    def _is_right(self, answer: Any, row: Row) -> bool:
        given = as_learned(self.model, self.other, row, self._text)
        output = self.model.output(given)
        if self.model.classes is None:
            return _close(float(answer["prediction"]), output[0])
        chances = _softmax(output)
        names = [text_of(value) for value in self.model.classes]
        chance = chances[names.index(answer["prediction"])]
        return _close(answer["probability"], chance) and chance > chances.max() - _CLOSE

    def _check_rows(self) -> None:
        number = self.draw.randrange(len(self.other.rows))
        row = self.other.rows[number]
        plain = {
            name: f"\\x{value.hex()}" if isinstance(value, bytes) else value
            for name, value in row.items()
            if name in self.other.kinds
        }
        written = json.dumps(plain, ensure_ascii=False).replace("'", "''")
        one = Table(kinds=self.other.kinds, rows=[row])
        for form, text in (
            (f"'{written}'", text_of),
            ("row_to_json(whole)", self._text),
            ("whole", self._text),
        ):
            wanted = faults(self.model, one, text=text, is_json=True)
            self._check("predict", partial(self._predict, form, number, one, text, wanted), wanted)

    def _predict(
        self, form: str, number: int, one: Table, text: Callable[[Any], str], wanted: set[str]
    ) -> bool:
        call = f"SELECT mmdb.predict('{self.name}', {form}) AS found FROM met AS whole"
        (answer,) = self.db.sql(f"{call} WHERE id = {number}")
        if wanted:
            return False
        output = self.model.output(as_learned(self.model, one, one.rows[0], text))
        expected = output if self.model.classes is None else _softmax(output)
        return bool(np.allclose(answer["found"], expected, rtol=_CLOSE, atol=_CLOSE))


def _close(found: float, expected: float) -> bool:
    return math.isclose(found, expected, rel_tol=_CLOSE, abs_tol=_CLOSE)


def _softmax(output: np.ndarray) -> np.ndarray:
    grown = np.exp(output - output.max())
    chances: np.ndarray = grown / grown.sum()
    return chances


# -- what does not fit ---------------------------------------------------------


def faults(
    model: Model,
    table: Table,
    *,
    whole: bool = False,
    text: Callable[[Any], str] = text_of,
    is_json: bool = False,
) -> set[str]:
    """Return the columns for which a table's rows do not fit a model.

    Args:
        whole: whether the table is a dataset: its label counts, and additional columns do.
        text: how the engine casts to a text.
        is_json: whether the rows are JSON, in which a number may stand in quotes.
    """
    found = {name for name in model.kinds if name not in table.kinds and (whole or name != LABEL)}
    if whole:
        found |= {name for name in table.kinds if name not in model.kinds}
        found |= _label_faults(model, table)
    for name, kind in model.kinds.items():
        if name == LABEL or name in found:
            continue
        values = [row[name] for row in table.rows]
        there = [value for value in values if value is not None]
        if kind != "text" and len(there) < len(values):  # a text that is NULL is one more value
            found.add(name)
        elif not _can_be(kind, table.kinds[name], there, whole=whole, is_json=is_json):
            found.add(name)
    return found


def _can_be(kind: str, found: str, values: list[Any], *, whole: bool, is_json: bool) -> bool:
    if kind in ("tensor", "bytes"):
        return found == kind and all(len(value) == WIDTH for value in values)
    if kind == "text":
        return found == "text" or (not whole and found in NUMBERS)
    return found in NUMBERS or (is_json and found == "text" and all(map(_is_number, values)))


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _label_faults(model: Model, table: Table) -> set[str]:
    labels = [row[LABEL] for row in table.rows]
    if (table.kinds[LABEL] == "real") != (model.classes is None):
        return {LABEL}
    known = {repr(value) for value in model.classes or labels}
    return set() if all(repr(value) in known for value in labels) else {LABEL}


def as_they_are(columns: Sequence[str], kinds: Mapping[str, str]) -> dict[str, str]:
    """Return transforms by which a linear model's numbers are the table's."""
    return {c: "one_hot" if kinds[c] == "text" else "passthrough" for c in columns if c != LABEL}


def as_learned(model: Model, table: Table, row: Row, text: Callable[[Any], str]) -> Row:
    """Return a row that fits a model with the values that the model knows."""
    return {
        name: text(row[name]) if kind == "text" and row[name] is not None else row[name]
        for name, kind in model.kinds.items()
        if name != LABEL
    }
