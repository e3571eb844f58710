"""The form of a dataset: its columns, inputs and labels, with its rows or without them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from mmdb.data.dataset import find_decoding
from mmdb.data.decoding import Decoding
from mmdb.db.connection import Connection
from mmdb.db.queries import load

if TYPE_CHECKING:  # loads a parser of SQL
    from mmdb.data.query import SourceColumn

_Q, _S = load("datasets"), load("sync")


def put_form(connection: Connection, form: Mapping[str, Any]) -> int:
    """Return the dataset of a model that comes without it: its form, at least.

    Where none has its content and form, one is added as if it had been dropped. Its hash is that
    of the form, so that nobody who writes a file can pass it off for rows.

    Args:
        form: name, row_count, created, content_hash in hexadecimal, and the decoding as JSON.
    """
    decoding = Decoding.from_json(form)
    own = blake3(decoding.canonical_json()).digest()
    for digest in (bytes.fromhex(form["content_hash"]), own):
        for found in connection.rows(_S.find_same_dataset, content_hash=digest, query_text=""):
            if find_decoding(connection, found["dataset_id"]) == decoding:
                return int(found["dataset_id"])
    row = {name: form[name] for name in ("name", "row_count", "created")}
    row |= dict.fromkeys(("seed", "partitions", "byte_count", "validation"), 0)
    row |= {"query_text": "", "label": decoding.labels[0].name, "content_hash": own}
    row |= {"options": "{}", "class_counts": "{}", "is_dropped": True, **decoding_row(decoding)}
    dataset_id = int(connection.rows(_S.add_copied_dataset, **row)[0]["dataset_id"])
    add_columns(connection, dataset_id, decoding, [])
    return dataset_id


def decoding_row(decoding: Decoding) -> dict[str, object]:
    """Return what a row of mmdb.dataset says of its inputs and labels."""
    return {
        "task": decoding.task,
        "input_shape": list(decoding.inputs[0].shape) if decoding.is_one_input else [],
        "classes": _json(decoding.classes),
        "targets": _json([label.to_json() for label in decoding.labels]),
        "inputs": None
        if decoding.is_one_input and decoding.inputs[0].tokenizer is None
        else _json([given.to_json() for given in decoding.inputs]),
    }


def add_columns(
    connection: Connection, dataset_id: int, decoding: Decoding, sources: list[SourceColumn]
) -> None:
    """Add the columns of a dataset, what they become, and what they are read from."""
    key = {"dataset_id": dataset_id}
    connection.run_many(
        _Q.add_column,
        [
            key | {"ordinal": ordinal, "name": one.name, "kind": one.kind, "width": one.width}
            for ordinal, one in enumerate(decoding.columns)
        ],
    )
    connection.run_many(
        _Q.add_transform,
        [
            {"dataset_id": dataset_id, "ordinal": ordinal}
            | {name: value if name in ("kind", "source") else _json(value) for name, value in given}
            for ordinal, column in enumerate(decoding.columns)
            if column.transform is not None
            for given in [column.transform.to_json().items()]
        ],
    )
    connection.run_many(
        _Q.add_source,
        [
            {"dataset_id": dataset_id, "ordinal": ordinal, **source_row(source)}
            for ordinal, source in enumerate(sources)
        ],
    )


def _json(value: object) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


def source_row(source: SourceColumn) -> dict[str, str | None]:
    """Return a source as the tables of sources keep it."""
    return {
        "table_name": source.table,
        "column_name": source.column,
        "output_name": source.output,
        "schema_name": source.schema,
        "via": " > ".join(source.via) or None,
        "resolution": source.resolution,
    }
