"""How a dataset's stored rows become model inputs: part of each partition's content hash."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from mmdb.db.connection import Row

ColumnKind = Literal["numeric", "tensor", "bytes", "categorical", "label"]
Task = Literal["classification", "regression"]
Class = str | int | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One output column of a dataset's query."""

    name: str
    kind: ColumnKind
    width: int  # values that a row holds: array elements, bytes, or 1
    categories: tuple[str, ...] | None = None  # of a text feature, sorted

    @property
    def decoded_width(self) -> int:
        """Numbers that the column becomes in a model's input."""
        return self.width if self.categories is None else len(self.categories)

    @classmethod
    def from_row(cls, row: Row) -> Column:
        """Return the column that a row of mmdb.dataset_column describes."""
        categories = json.loads(row["categories"]) if row["categories"] is not None else None
        return cls(
            name=row["name"],
            kind=row["kind"],
            width=row["width"],
            categories=None if categories is None else tuple(categories),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """All that turns a block into features and labels.

    A row's features follow the order of the query's columns; each takes `decoded_width` numbers.
    """

    columns: tuple[Column, ...]  # in the query's order, the label among them
    task: Task
    input_shape: tuple[int, ...]
    classes: tuple[Class, ...] | None

    @property
    def features(self) -> list[Column]:
        """The columns that feed the model, in the query's order."""
        return [column for column in self.columns if column.kind != "label"]

    @property
    def width(self) -> int:
        """Numbers in one row's features."""
        return sum(column.decoded_width for column in self.features)

    @property
    def label_dtype(self) -> str:
        """Of the decoded labels: class indices, or numbers."""
        return "<i8" if self.task == "classification" else "<f4"

    def spans(self) -> Iterator[tuple[Column, slice]]:
        """Yield each feature column and where its numbers are in a row's features."""
        start = 0
        for column in self.features:
            yield column, slice(start, start + column.decoded_width)
            start += column.decoded_width

    def canonical_json(self) -> bytes:
        """Return the same bytes for the same decoding, for hashing."""
        columns = [
            [column.name, column.kind, column.width, column.categories] for column in self.columns
        ]
        content = {
            "classes": self.classes,
            "columns": columns,
            "input_shape": self.input_shape,
            "task": self.task,
        }
        return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_rows(cls, dataset: Row, columns: Sequence[Row]) -> Decoding:
        """Return the decoding that rows of mmdb.dataset and mmdb.dataset_column describe."""
        classes = json.loads(dataset["classes"]) if dataset["classes"] is not None else None
        return cls(
            columns=tuple(Column.from_row(row) for row in columns),
            task=cast(Task, dataset["task"]),
            input_shape=tuple(dataset["input_shape"]),
            classes=None if classes is None else tuple(classes),
        )


def numbers_in(shape: Sequence[int]) -> int:
    """Return how many numbers an array of `shape` holds."""
    return math.prod(shape)
