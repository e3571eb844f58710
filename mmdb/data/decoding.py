"""How a dataset's stored rows become model inputs: part of each partition's content hash."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mmdb.data.tokenize import Tokenizer
from mmdb.data.transform.transform import FittedTransform, as_stored
from mmdb.db.connection import Row

Task = Literal["classification", "regression", "multilabel", "next_token"]
TASKS: tuple[Task, ...] = ("classification", "regression", "multilabel", "next_token")
#: The label of a token after which none is to be predicted: torch's losses leave it out.
IGNORED = -100


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One label of a dataset and what predicts it.

    A model's output for it is float32 (n, size). Its labels are class indices, int64 (n,), numbers,
    float32 (n,), or 0 and 1 for each of several labels, float32 (n, size). Of next tokens the
    output is (n, length, size), and labels are int64 (n, length), `IGNORED` where there is none.
    """

    name: str  # the label's column
    task: Task
    size: int  # classes, labels of a multilabel task, tokens of a vocabulary, 1 of a regression
    scale: tuple[float, float] | None = None  # mean and deviation of a regression's train rows


ColumnKind = Literal[
    "numeric",
    "tensor",
    "bytes",
    "categorical",
    "tokens",
    "label",
    "weight",
    "key",
    "excluded",
    "dropped",
]
#: Kinds of columns that neither feed a model nor are predicted.
UNUSED: tuple[ColumnKind, ...] = ("weight", "key", "excluded", "dropped")
Class = str | int | bool
Dtype = Literal["float32", "int64"]


def class_text(value: Class) -> str:
    """Return a class as a database writes it: booleans are true and false."""
    return json.dumps(value) if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One output column of a dataset's query."""

    name: str
    kind: ColumnKind
    width: int  # values that a row holds: array elements, bytes, tokens, or 1; 0: not kept
    transform: FittedTransform | None = None  # None: a model takes the values as they are

    @property
    def decoded_width(self) -> int:
        """Numbers that the column becomes in a model's input."""
        return self.width if self.transform is None else len(self.transform.names)

    @property
    def parts(self) -> Sequence[str | int | None]:
        """The name of each of these numbers: a category, a part of a date, or else its place."""
        if self.transform is None or not any(self.transform.names):
            return range(self.decoded_width)
        return self.transform.names

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        given = None if self.transform is None else self.transform.to_json()
        return {"name": self.name, "kind": self.kind, "width": self.width, "transform": given}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Column:
        """Return the column that `to_json` wrote."""
        given = value["transform"]
        return cls(
            **value | {"transform": None if given is None else FittedTransform.from_json(given)}
        )

    @classmethod
    def from_row(cls, row: Row) -> Column:
        """Return the column that a row of mmdb.dataset_column describes."""
        given = None if row["transform"] is None else FittedTransform.from_row(row)
        return cls(name=row["name"], kind=row["kind"], width=row["width"], transform=given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One of the arrays that a model is called with."""

    name: str  # of forward's parameter; empty where it is the only input
    columns: tuple[str, ...]  # in the order of a row's numbers
    shape: tuple[int, ...]  # of one row
    tokenizer: Tokenizer | None = None

    @property
    def dtype(self) -> Dtype:
        """Of its array: token ids are integers, anything else is float32."""
        return "float32" if self.tokenizer is None else "int64"

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads, and BI tools may show."""
        return {
            "name": self.name,
            "columns": list(self.columns),
            "shape": list(self.shape),
            "dtype": self.dtype,
            "tokenizer": None if self.tokenizer is None else self.tokenizer.to_json(),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Input:
        """Return the input that `to_json` wrote."""
        tokenizer = value["tokenizer"]
        return cls(
            name=value["name"],
            columns=tuple(value["columns"]),
            shape=tuple(value["shape"]),
            tokenizer=None if tokenizer is None else Tokenizer.from_json(tokenizer),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """One of the label columns and what its values mean."""

    name: str
    task: Task
    width: int = 1  # values of a multilabel row, tokens of a text
    vocabulary: int = 0  # of next tokens: ids are below it
    classes: tuple[Class, ...] | None = None  # of a classification, in the order of the outputs
    scale: tuple[float, float] | None = None  # see `Target`

    @property
    def target(self) -> Target:
        """The target that a model predicts for this label."""
        size = self.width if self.classes is None else len(self.classes)
        size = self.vocabulary or size
        return Target(name=self.name, task=self.task, size=size, scale=self.scale)

    @property
    def dtype(self) -> Literal["<i8", "<f4"]:
        """Of its array: class indices, or numbers."""
        return "<i8" if self.task in ("classification", "next_token") else "<f4"

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one row's label."""
        return (self.width,) if self.task in ("multilabel", "next_token") else ()

    @property
    def is_stored(self) -> bool:
        """Whether blocks hold its values; a text's next tokens are its own, moved by one."""
        return self.task != "next_token"

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads, and BI tools may show."""
        classes = None if self.classes is None else list(self.classes)
        target = self.target
        scale: dict[str, Any] = {} if self.scale is None else {"scale": as_stored(self.scale)}
        if self.task == "next_token":
            scale["length"] = self.width
        return {
            "name": target.name,
            "task": target.task,
            "size": target.size,
            "classes": classes,
            **scale,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Label:
        """Return the label that `to_json` wrote."""
        classes = value.get("classes")
        return cls(
            name=value["name"],
            task=value["task"],
            width=value["size"] if value["task"] == "multilabel" else value.get("length", 1),
            vocabulary=value["size"] if value["task"] == "next_token" else 0,
            classes=None if classes is None else tuple(classes),
            scale=tuple(as_stored(value["scale"])) if "scale" in value else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """All that turns a block into inputs and labels."""

    columns: tuple[Column, ...]  # in the query's order, labels among them
    inputs: tuple[Input, ...]  # sorted by name
    labels: tuple[Label, ...]  # in the order of the targets

    @property
    def task(self) -> Task:
        """The task of the first label."""
        return self.labels[0].task

    @property
    def classes(self) -> tuple[Class, ...] | None:
        """The first label's values in the order of a model's outputs."""
        return self.labels[0].classes

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets that a model predicts, in the labels' order."""
        return tuple(label.target for label in self.labels)

    @property
    def input_shape(self) -> tuple[int, ...] | dict[str, tuple[int, ...]]:
        """The shape of one row: of the only input, or of each by name."""
        if self.is_one_input:
            return self.inputs[0].shape
        return {given.name: given.shape for given in self.inputs}

    @property
    def input_dtype(self) -> Dtype | dict[str, Dtype]:
        """The dtype of the only input, or of each by name."""
        if self.is_one_input:
            return self.inputs[0].dtype
        return {given.name: given.dtype for given in self.inputs}

    @property
    def is_one_input(self) -> bool:
        """Whether a model is called with one array, not with one for each name."""
        return not self.inputs[0].name

    @property
    def is_weighted(self) -> bool:
        """Whether rows have weights: one more array, float32 (n,), after those of the labels."""
        return any(column.kind == "weight" for column in self.columns)

    @property
    def is_plain(self) -> bool:
        """Whether one array of numbers predicts one class or number."""
        one = self.is_one_input and self.inputs[0].tokenizer is None and not self.is_weighted
        return one and len(self.labels) == 1 and self.task != "multilabel"

    @property
    def key_of_rows(self) -> str:
        """The column that names a row where nobody says which: the dataset's key, or id."""
        keys = [column.name for column in self.columns if column.kind == "key"]
        return keys[0] if len(keys) == 1 else "id"

    @property
    def stored(self) -> list[Column]:
        """The columns besides the labels that blocks hold, in the query's order."""
        return [column for column in self.columns if column.kind not in ("label", *UNUSED)]

    @property
    def features(self) -> list[Column]:
        """The columns that feed the model, in the query's order."""
        return [column for column in self.stored if column.decoded_width]

    @property
    def tokenizers(self) -> dict[str, Tokenizer]:
        """The tokenizers of the columns that have one."""
        return {i.columns[0]: i.tokenizer for i in self.inputs if i.tokenizer is not None}

    def spans(self, given: Input) -> Iterator[tuple[Column, slice]]:
        """Yield each column of an input and where its numbers are in a row."""
        columns = {column.name: column for column in self.columns}
        start = 0
        for name in given.columns:
            width = columns[name].decoded_width
            yield columns[name], slice(start, start + width)
            start += width

    def canonical_json(self) -> bytes:
        """Return the same bytes for the same decoding, for hashing."""
        content: dict[str, Any] = {
            "classes": self.classes,
            "columns": [
                [c.name, c.kind, c.width, c.transform and c.transform.to_json()]
                for c in self.columns
            ],
            "input_shape": self.input_shape,
            "task": self.task,
        }
        if not self.is_plain or self.labels[0].scale is not None:
            content["inputs"] = [given.to_json() for given in self.inputs]
            content["targets"] = [label.to_json() for label in self.labels]
        return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads: all that a model needs outside of a database."""
        return {
            "columns": [column.to_json() for column in self.columns],
            "inputs": [given.to_json() for given in self.inputs],
            "labels": [label.to_json() for label in self.labels],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Decoding:
        """Return the decoding that `to_json` wrote."""
        return cls(
            columns=tuple(map(Column.from_json, value["columns"])),
            inputs=tuple(map(Input.from_json, value["inputs"])),
            labels=tuple(map(Label.from_json, value["labels"])),
        )

    @classmethod
    def from_rows(cls, dataset: Row, columns: Sequence[Row]) -> Decoding:
        """Return the decoding that rows of mmdb.dataset and mmdb.dataset_column describe.

        Those with one input of numbers have no `inputs`.
        """
        found = tuple(Column.from_row(row) for row in columns)
        labels = tuple(map(Label.from_json, json.loads(dataset["targets"])))
        return cls(columns=found, inputs=_inputs(dataset, found), labels=labels)


def _inputs(dataset: Row, columns: Sequence[Column]) -> tuple[Input, ...]:
    if dataset["inputs"] is not None:
        return tuple(map(Input.from_json, json.loads(dataset["inputs"])))
    stored = (column for column in columns if column.kind not in ("label", *UNUSED))
    names = tuple(column.name for column in stored if column.decoded_width)
    return (Input(name="", columns=names, shape=tuple(dataset["input_shape"])),)


def numbers_in(shape: Sequence[int]) -> int:
    """Return how many numbers an array of `shape` holds."""
    return math.prod(shape)
