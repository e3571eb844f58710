"""Random tables with rows that are known, and linear models whose answers are known with them.

A model's weights belong to names and values: of a number to its column, of a text to what it says,
of an element to its place, of a class to itself. What it makes of a row is added up here from that
alone, whatever the order in which a database holds columns, categories or classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from mmdb.data.decoding import Decoding

Engine = Literal["postgres", "duckdb"]
Kind = Literal["integer", "real", "boolean", "text", "tensor", "bytes"]
Row = dict[str, Any]

NAMES = ("alpha", "Beta", "we ird", "selected", "é_t", "x.y", "100%s", "{z}", "o'brien", 'q"uo')
#: Texts that some language takes for something else.
TEXTS = ("1", "1.0", "01", "true", "True", "", " ", "None", "null", "grün", "o'k", "a", "A", "b")
_TYPES = {"integer": "bigint", "real": "double precision", "boolean": "boolean", "text": "text"}
NUMBERS = ("integer", "real", "boolean")
LABEL = "wanted"
#: Of arrays and byte strings.
WIDTH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns by name, the label among them, and rows."""

    kinds: dict[str, Kind]
    rows: list[Row]

    @property
    def features(self) -> list[str]:
        """The columns besides the label."""
        return [name for name in self.kinds if name != LABEL]

    def statement(self, name: str, engine: Engine) -> str:
        """Return the CREATE TABLE with the rows, numbered by `id`."""
        columns = ", ".join(quote(column) for column in ("id", *self.kinds))
        rows = ", ".join(
            "("
            + ", ".join([str(number), *(self.literal(row, c, engine) for c in self.kinds)])
            + ")"
            for number, row in enumerate(self.rows)
        )
        return f"CREATE TABLE {name} AS SELECT * FROM (VALUES {rows}) AS v ({columns})"

    def literal(self, row: Row, column: str, engine: Engine) -> str:
        """Return a value as SQL."""
        value, kind = row[column], self.kinds[column]
        if kind == "bytes":
            text = "NULL" if value is None else f"'{value.hex()}'"
            return f"decode({text}, 'hex')" if engine == "postgres" else f"unhex({text})"
        if kind == "tensor":
            return "NULL::real[]" if value is None else f"ARRAY{list(value)}::real[]"
        text = "NULL" if value is None else str(value)
        if kind == "text" and value is not None:
            text = "'" + value.replace("'", "''") + "'"
        return f"CAST({text} AS {_TYPES[kind]})"


def quote(name: str) -> str:
    """Return a name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def draw_table(draw: Random) -> Table:
    """Return a table of two to five features and a label of any kind."""
    names = draw.sample(NAMES, draw.randint(2, 5))
    kinds: dict[str, Kind] = {
        name: draw.choice(("integer", "real", "boolean", "text", "text", "tensor", "bytes"))
        for name in names
    }
    kinds[LABEL] = draw.choice(("integer", "boolean", "text", "real"))
    table = Table(kinds=kinds, rows=[])
    texts = {name: draw.sample(TEXTS, draw.randint(2, 5)) for name in kinds}
    for _ in range(draw.randint(12, 40)):
        table.rows.append({name: value_of(draw, kinds[name], texts[name]) for name in kinds})
    for row, label in zip(table.rows, two_labels(kinds[LABEL], texts[LABEL]), strict=False):
        row[LABEL] = label
    return table


def two_labels(kind: Kind, texts: list[str]) -> list[Any]:
    """Return two classes, which every table has."""
    if kind == "boolean":
        return [False, True]
    return texts[:2] if kind == "text" else [0, 1]


def value_of(draw: Random, kind: Kind, texts: list[str], width: int = WIDTH) -> Any:
    """Return a random value of a kind; numbers are exact in float32."""
    if kind == "text":
        return draw.choice(texts)
    if kind == "boolean":
        return draw.random() < 0.5
    if kind == "bytes":
        return bytes(draw.randrange(256) for _ in range(width))
    if kind == "tensor":
        return tuple(draw.randint(-8, 8) / 4 for _ in range(width))
    return draw.randint(-3, 3) if kind == "integer" else draw.randint(-12, 12) / 4


# -- other tables that a model meets ------------------------------------------


def other_table(draw: Random, table: Table) -> Table:
    """Return a table for a model of `table`: in another order, and perhaps unlike it."""
    names = list(table.kinds)
    draw.shuffle(names)
    rows = [dict(row) for row in draw.sample(table.rows[2:], draw.randint(3, len(table.rows) - 2))]
    rows += [dict(row) for row in table.rows[:2]]
    found = replace(table, kinds={name: table.kinds[name] for name in names}, rows=rows)
    change = draw.choice((None, None, "rare", *_CHANGES))
    if change == "rare":
        return replace(found, rows=[*found.rows[-2:], *found.rows[:2]])
    return found if change is None else _CHANGES[change](draw, found)


def _new_text(draw: Random, table: Table) -> Table:
    texts = [name for name in table.features if table.kinds[name] == "text"]
    for name in texts[:1]:
        draw.choice(table.rows)[name] = draw.choice((*TEXTS, "new"))
    return table


def _new_class(draw: Random, table: Table) -> Table:
    new: Any = {"text": "new", "boolean": True, "integer": 7, "real": 7.5}[table.kinds[LABEL]]
    draw.choice(table.rows)[LABEL] = new
    return table


def _label_of_another_type(draw: Random, table: Table) -> Table:
    kind: Kind = draw.choice(("integer", "boolean", "text"))
    for number, row in enumerate(table.rows):
        row[LABEL] = two_labels(kind, ["1", "0"])[number % 2]
    return replace(table, kinds=table.kinds | {LABEL: kind})


def _missing(draw: Random, table: Table) -> Table:
    gone = draw.choice(table.features)
    if len(table.features) == 1:
        return table
    return replace(table, kinds={n: kind for n, kind in table.kinds.items() if n != gone})


def _additional(draw: Random, table: Table) -> Table:
    return _put(draw, table, draw.choice([n for n in NAMES if n not in table.kinds]))


def _another_type(draw: Random, table: Table) -> Table:
    return _put(draw, table, draw.choice(table.features))


def _put(draw: Random, table: Table, name: str) -> Table:
    kind: Kind = draw.choice(("integer", "real", "boolean", "text", "tensor", "bytes"))
    for row in table.rows:
        row[name] = value_of(draw, kind, ["1", "true", "a"])
    return replace(table, kinds=table.kinds | {name: kind})


def _wider(draw: Random, table: Table) -> Table:
    for name, kind in table.kinds.items():
        if kind in ("tensor", "bytes"):
            for row in table.rows:
                row[name] = value_of(draw, kind, [], width=3)
    return table


def _swapped(draw: Random, table: Table) -> Table:
    one, two = draw.sample(table.features, 2)
    turned = {one: two, two: one}
    rows = [{turned.get(name, name): value for name, value in row.items()} for row in table.rows]
    return replace(
        table, kinds={turned.get(n, n): kind for n, kind in table.kinds.items()}, rows=rows
    )


def _null(draw: Random, table: Table) -> Table:
    draw.choice(table.rows)[draw.choice(table.features)] = None
    return table


_CHANGES = {
    "new text": _new_text,
    "new class": _new_class,
    "label of another type": _label_of_another_type,
    "missing": _missing,
    "additional": _additional,
    "another type": _another_type,
    "wider": _wider,
    "swapped": _swapped,
    "null": _null,
}


# -- models --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A linear model whose weights go by names and values."""

    kinds: dict[str, Kind]
    texts: dict[str, set[str]]  # of the features that are texts
    classes: list[Any] | None  # None: a regression
    seed: int

    @classmethod
    def of(cls, table: Table, seed: int) -> Model:
        """Return a model that a table's rows could be learned by."""
        texts = {n: {row[n] for row in table.rows} for n, k in table.kinds.items() if k == "text"}
        classes = None if table.kinds[LABEL] == "real" else sorted({r[LABEL] for r in table.rows})
        return cls(kinds=table.kinds, texts=texts, classes=classes, seed=seed)

    def _weight(self, *slot: object) -> float:
        return Random(repr((self.seed, *slot))).gauss(0, 1)

    def module(self, decoding: Decoding) -> nn.Module:
        """Return the model as it reads the rows of its own dataset."""
        (given,) = decoding.inputs
        classes = decoding.classes or (None,)
        module = nn.Linear(given.shape[0], len(classes))
        with torch.no_grad():
            module.bias.zero_()
            for column, span in decoding.spans(given):
                for place, value in enumerate(column.parts):
                    module.weight[:, span.start + place] = torch.tensor(
                        [self._weight(column.name, value, one) for one in classes]
                    )
        return nn.Sequential(module)

    def output(self, row: Row) -> np.ndarray:
        """Return what the model computes of a row that fits it, a number for each class."""
        return np.array([self._output(row, one) for one in self.classes or [None]])

    def _output(self, row: Row, one: object) -> float:
        total = 0.0
        for name, kind in self.kinds.items():
            if name == LABEL:
                continue
            if kind == "text":
                text = None if row[name] is None else text_of(row[name])
                total += self._weight(name, text, one) if text in self.texts[name] else 0.0
                continue
            values = [v / 255 for v in row[name]] if kind == "bytes" else row[name]
            for place, value in enumerate(values if isinstance(values, list | tuple) else [values]):
                total += self._weight(name, place, one) * float(value)
        return total


def text_of(value: Any) -> str:
    """Return a value as databases cast it to a text."""
    return str(value).lower() if isinstance(value, bool) else str(value)
