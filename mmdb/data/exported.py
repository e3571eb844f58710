"""Transforms of an exported model, read from its files and applied without a database."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from mmdb.argument_types import names_wrong_types
from mmdb.data.arrays import Inputs
from mmdb.data.decoding import Decoding
from mmdb.data.inputs import rows_input
from mmdb.data.parts import steps_of
from mmdb.data.tokenize import BUILT_IN, encoder
from mmdb.errors import FileDamaged, FileNotRead, FunctionNotFound

#: File of an exported folder with what mmdb knows of its model.
OWN_FILE = "mmdb.json"


@dataclass(frozen=True, slots=True)
class ExportedTransforms:
    """Turns raw rows into a model's inputs; `decoding` has its columns, labels and classes."""

    decoding: Decoding

    def inputs(self, columns: Mapping[str, Sequence[Any]]) -> Inputs:
        """Return some rows as the model takes them: float32 (n, *shape), or one for each input.

        Args:
            columns: raw values by name, one for each row; others than the model's play no part.
                None and NaN are NULL; dates and times are Python's, numpy's or ISO texts.
        Raises:
            InvalidInput: a column is missing, or a value of another type or width.
            FunctionNotFound: texts become tokens by a function that a database had registered.
        """
        encoders = {}
        for column, one in self.decoding.tokenizers.items():
            if one.function not in BUILT_IN:
                raise FunctionNotFound(f"Tokenizer {one.function!r} is registered in a database.")
            encoders[column] = encoder(one)
        wanted = [column.name for column in self.decoding.features]
        rows = {
            name: [_plain(value) for value in values]
            for name, values in columns.items()
            if name in wanted or any(steps_of(one, name) for one in wanted)
        }
        return rows_input(self.decoding, rows, encoders, "postgres")


def _plain(value: Any) -> Any:
    """Return a value as JSON of a database has it."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        value = value.astype(f"{value.dtype.kind}8[us]")
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float | date | timedelta) and value != value:  # NaN, or pandas' NaT
        return None
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if isinstance(value, date | time) else value


@names_wrong_types
def read_transforms(source: str | os.PathLike[str]) -> ExportedTransforms:
    """Return the transforms of an exported model: of its folder, mmdb.json or safetensors file.

    Raises:
        FileNotRead: it is not there, or its model was saved without a dataset. FileDamaged
    """
    path = Path(source)
    path = path / OWN_FILE if path.is_dir() else path
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="numpy") as file:
                own = json.loads((file.metadata() or {}).get("mmdb", "{}"))
        else:
            own = json.loads(path.read_bytes())
        if own.get("dataset") is not None:
            return ExportedTransforms(Decoding.from_json(own["dataset"]))
    except OSError as error:
        raise FileNotRead(f"{path} cannot be read: {error.strerror or error}.") from error
    except (SafetensorError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise FileDamaged(f"{path} is not what mmdb writes: {error}.") from error
    raise FileNotRead(f"{path} names no columns.", hint="Its model was saved without a dataset.")
