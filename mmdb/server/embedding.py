"""SQL's functions of embeddings: of a row, of a query's rows into a table, and what a model needs.

A model's embedding of a row is what its last layer reads, or what a layer that is named returns;
see `mmdb.graph.cut.embedding`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from mmdb.data.arrays import Inputs
from mmdb.db.arrow import to_arrow
from mmdb.db.connection import Connection
from mmdb.db.prediction_table import PredictionTarget, check_key, embedding_columns
from mmdb.db.queries import load, quote_name
from mmdb.errors import InvalidName, NotFinite, TargetMismatch
from mmdb.graph.cut.embedding import embedding_of
from mmdb.messages import show
from mmdb.server.backend import Backend
from mmdb.server.dataset_functions import fill_table
from mmdb.server.model_functions import find_predictor, given_row
from mmdb.server.predictor import Predictor, passes
from mmdb.server.row_limit import row_count
from mmdb.train.compute.backbone import shape_of

#: Numbers of a vector that pgvector takes.
_MOST_NUMBERS = 16_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedder:
    """A model's layers up to an embedding."""

    predictor: Predictor
    layer: str | None  # see `embedding_of`
    normalized: bool  # whether vectors are of length 1, but for those of zeros
    layers: nn.Module
    size: int  # numbers of a vector

    def vectors(self, inputs: Inputs) -> np.ndarray:
        """Return the embedding of each row, float32 (n, size).

        Raises:
            NotFinite: one holds a number that is none.
        """
        batches = [out for out in passes(self.layers, inputs) if isinstance(out, Tensor)]
        found = batches[0] if len(batches) == 1 else torch.cat(batches)
        if self.normalized:
            found = nn.functional.normalize(found, dim=1)
        vectors = found.numpy()
        if not np.isfinite(vectors).all():
            raise NotFinite(
                "The embedding of a row holds NaN, or a number that is not finite.",
                hint="Look at the row's numbers, and at the model's.",
            )
        return vectors

    @property
    def about(self) -> dict[str, Any]:
        """Which embedding it is, as the tables of predictions and scorings have it."""
        return {"layer": self.layer, "normalized": self.normalized}


def find_embedder(backend: Backend, model: str, layer: str | None, normalized: bool) -> Embedder:
    """Return what embeds rows; its layers are kept with the model in the session.

    Raises:
        ModelNotFound, InvalidInput: of the model.
        CutNotFound, NotACut: of the layer; see `embedding_of`.
    """
    predictor = find_predictor(backend, model)
    if layer not in predictor.kept:
        shape = predictor.decoding.input_shape
        layers = embedding_of(predictor.uncalibrated.module, layer, inputs=shape)
        predictor.kept[layer] = layers, shape_of(layers, shape)[0]
    layers, size = predictor.kept[layer]
    return Embedder(
        predictor=predictor, layer=layer, normalized=bool(normalized), layers=layers, size=size
    )


def embed(backend: Backend, model: str, x: Any, layer: str | None, normalized: bool) -> list[float]:
    """Return the embedding of one row."""
    embedder = find_embedder(backend, model, layer, normalized)
    row_count(backend).add(1)
    found: list[float] = embedder.vectors(given_row(backend, embedder.predictor, x))[0].tolist()
    return found


def embed_into(
    backend: Backend,
    model: str,
    query: str,
    target: str,
    key: str | None,
    into_column: str,
    layer: str | None,
    normalized: bool,
) -> int:
    """Write key and embedding of every row of a SELECT to a table; return the rows.

    The table is made where it is not there; else rows are added to it. See `predict_into`.

    Raises:
        CutNotFound, NotACut: of the layer. ModelNotFound, InvalidInput, InvalidOption
        InvalidName, TargetMismatch: of the table, whose column may be of another type or length.
        QueryError, UnknownColumn, NullValues, RaggedArray, NotFinite, InTransaction, RightsMissing
    """
    connection = backend.connection
    place = PredictionTarget.parse(target, connection.engine)
    _check_column(into_column)
    embedder = find_embedder(backend, model, layer, normalized)
    kinds = vector_types(connection, embedder.size)
    there = dict(connection.find_target(place).columns).get(into_column)
    kind = there if there in kinds else kinds[0]
    place = replace(place, types=embedding_columns(connection.engine, into_column, kind))
    if key is not None:
        check_key(key, place.types)
    spooled = pa.list_(pa.float32(), embedder.size)

    def columns_of(inputs: Inputs) -> Sequence[Any]:
        flat = to_arrow(embedder.vectors(inputs).reshape(-1))
        return [pa.FixedSizeListArray.from_arrays(flat, embedder.size)]

    schema = pa.schema({"v0": pa.string(), "v1": spooled}.items())
    return fill_table(
        backend,
        embedder.predictor,
        query,
        place,
        key,
        schema,
        columns_of,
        json.dumps(embedder.about),
    )


def _check_column(name: str) -> None:
    """Raise where a column cannot have the name."""
    if not isinstance(name, str):
        raise InvalidName(f"The name {show(name)} is that of no column.")
    PredictionTarget.parse(quote_name(name), "postgres")
    if name.lower() in ("model", "predicted_at"):
        raise TargetMismatch(
            f"The column of embeddings is named {name}, as another of the table.",
            hint="Give into_column another name.",
        )


def vector_types(connection: Connection, size: int) -> list[str]:
    """Return the types that a column of embeddings may have; one that is made has the first.

    Args:
        size: numbers of a vector.
    """
    if connection.engine == "duckdb":
        return [f"FLOAT[{size}]", "FLOAT[]"]
    rows = connection.rows(load("predictions").find_vector, size=size)
    if not rows or size > _MOST_NUMBERS:
        return ["real[]"]
    return [rows[0]["type"], "real[]", rows[0]["open_type"]]
