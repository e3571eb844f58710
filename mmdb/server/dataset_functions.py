"""SQL's functions for tables: `create_dataset`, `transformed`, `predict_into`, and two to drop."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from time import perf_counter
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from mmdb.arguments import check_whole
from mmdb.data import registration
from mmdb.data.arrays import Decoded, Inputs
from mmdb.data.dataset import find_dataset
from mmdb.data.decoding import Decoding, Label
from mmdb.data.forms import source_row
from mmdb.data.query import SourceColumn, analyse
from mmdb.data.query_rows import scan_inputs
from mmdb.data.reader import read_partition
from mmdb.db.arrow import to_array
from mmdb.db.connection import Connection
from mmdb.db.prediction_table import (
    NamedTable,
    PredictionTarget,
    check_columns,
    check_key,
    prediction_columns,
)
from mmdb.db.queries import load
from mmdb.errors import DatasetDropped
from mmdb.server.arguments import json_object
from mmdb.server.backend import Backend, exposed, passed_on
from mmdb.server.row_limit import RowCount, row_count

if TYPE_CHECKING:
    from mmdb.server.predictor import Predictor


@exposed
def create_dataset(
    backend: Backend,
    name: str,
    query: str,
    label: str,
    partitions: int,
    validation: float,
    seed: int,
    options: str,
) -> list[dict[str, Any]]:
    """Create a dataset and return its row; see `mmdb.data.registration.create_dataset`."""
    made = registration.create_dataset(
        backend.connection,
        name,
        query,
        label=label,
        partitions=partitions,
        validation=validation,
        seed=seed,
        options=json_object(options, "options"),
        say=backend.notice,
    )
    return [asdict(made) | {"content_hash": made.content_hash.hex()}]


@exposed
def refresh_dataset(
    backend: Backend, name: str, grows: str | None, fit: bool, dry_run: bool
) -> list[dict[str, Any]]:
    """Add a version of a dataset; see `mmdb.data.refresh.refresh_dataset`."""
    from mmdb.data.refresh import refresh_dataset as refresh

    done = refresh(
        backend.connection, name, grows=grows, fit=fit, dry_run=dry_run, say=backend.notice
    )
    return [asdict(done)]


@exposed
def transformed(backend: Backend, dataset: str, row_count: int) -> list[dict[str, Any]]:
    """Return train rows of a dataset, in their order, with what models read of them."""
    connection = backend.connection
    found = find_dataset(connection, dataset)
    if found.dropped:
        raise DatasetDropped(f"Dataset {dataset!r} has been dropped.")
    most = check_whole(row_count, "row_count", 1, 2**31 - 1)
    shown: list[dict[str, Any]] = []
    for part in found.partitions:
        if part.role == "train" and most > len(shown):
            decoded = read_partition(connection, part.part_id, part.content_hash)
            shown += _shown_rows(found.decoding, decoded, most - len(shown))
    return shown


def _shown_rows(decoding: Decoding, decoded: Decoded, most: int) -> Iterator[dict[str, Any]]:
    """Yield rows as `transformed` returns them: numbers by column, or column and part."""
    for place in range(min(most, len(decoded.label_arrays[0]))):
        row: dict[str, Any] = {}
        for given, array in zip(decoding.inputs, decoded.input_arrays, strict=True):
            numbers = array[place].reshape(-1).tolist()
            for column, span in decoding.spans(given):
                values = numbers[span]
                if isinstance(column.parts, range):
                    row[column.name] = values[0] if len(values) == 1 else values
                else:
                    null = "missing"
                    while null in column.parts and None in column.parts:
                        null = f"({null})"
                    names = [null if part is None else part for part in column.parts]
                    named = zip(names, values, strict=True)
                    row |= {f"{column.name} {part}".strip(): value for part, value in named}
        labels = zip(decoding.labels, decoded.label_arrays, strict=False)
        shown = {label.name: _shown_label(label, values[place]) for label, values in labels}
        texts = (json.dumps(one, ensure_ascii=False) for one in (shown, row))
        yield dict(zip(("label", "features"), texts, strict=True))


def _shown_label(label: Label, value: Any) -> Any:
    return value.tolist() if label.classes is None else label.classes[int(value)]


drop_dataset = passed_on("mmdb.data.registration.drop_dataset", "force")
drop_features = passed_on("mmdb.store.stored_features.drop_features")

_PREDICTION_QUERIES = load("predictions")
#: Rows on their way from the query to the table: a session cannot read and write at once.
_SPOOLED = {
    "key": pa.string(),
    "prediction": pa.string(),
    "probability": pa.float64(),
    "probabilities": pa.string(),
}


@exposed
def predict_into(
    backend: Backend, model: str, query: str, target: str, key: str | None, probabilities: bool
) -> int:
    """Write key, prediction and probability of every row of a SELECT to a table; return the rows.

    The table is made where it is not there, its key with the type that the query gives it; else
    rows are added to it. Table, rows and their record are there as a whole or not at all.

    Raises:
        ModelNotFound, InvalidName, TargetMismatch, QueryError, UnknownColumn
        NullValues, RaggedArray, NotFinite, InvalidInput
        InTransaction: outside of the server, a transaction block is open.
        RightsMissing: the caller may not read, make or fill a table.
        LimitReached: they are more than the role may predict in one statement.
    """
    has_all, engine = bool(probabilities), backend.connection.engine
    place = PredictionTarget.parse(
        target, engine, prediction_columns(engine, has_probabilities=has_all)
    )
    if key is not None:
        check_key(key)
    if getattr(backend.connection, "is_spread", False):
        from mmdb.server.node_predictions import predict_on_nodes

        if (rows := predict_on_nodes(backend, model, query, place, key)) is not None:
            return rows
    from mmdb.server.predictor import find_predictor  # loads torch

    predictor = find_predictor(backend, model)

    def columns_of(inputs: Inputs) -> Sequence[Any]:
        return predictor.predictions(inputs, of_all=has_all)[: 2 + has_all]

    schema = pa.schema([*_SPOOLED.items()][: 3 + has_all])
    return fill_table(backend, predictor, query, place, key, schema, columns_of)


def fill_table(
    backend: Backend,
    predictor: Predictor,
    query: str,
    place: PredictionTarget,
    key: str | None,
    schema: pa.Schema,
    columns_of: Callable[[Inputs], Sequence[Any]],
    embedding: str | None = None,
) -> int:
    """Write what a model gives for every row of a SELECT to a table; return the rows.

    Args:
        schema: of the key and what `columns_of` returns for the rows of a batch.
        embedding: which one is written, as `mmdb.prediction` has it.
    Raises:
        see `predict_into`.
    """
    started = perf_counter()
    connection = backend.connection
    key = predictor.key(key)
    check_key(key, place.types)  # a dataset's may be named as a column of the table is
    analysis = analyse(query, connection.engine, connection)
    with tempfile.TemporaryFile(prefix="mmdb-predict-") as file:
        with connection.snapshot():
            names = [name for name, _ in connection.columns(analysis.select)]
            if key in names:  # else the scan says what is missing
                find_table(connection, place, analysis.select, key)
            scanned = scan_inputs(connection, predictor.decoding, query, key)
            with closing(scanned) as batches:  # else DuckDB would not end the transaction
                rows = _spool(columns_of, batches, file, row_count(backend), schema)
        with connection.transaction():
            table = find_table(connection, place, analysis.select, key)
            if not table.exists:
                connection.create_target(table, analysis.select, key)
                table = find_table(connection, place, analysis.select, key)
            file.seek(0)
            with pa.ipc.open_stream(file) as spooled:
                connection.append_predictions(table, predictor.model.reference, spooled)
            about = {"key_name": key, "query": query, "row_count": rows, "embedding": embedding}
            about |= {"model_id": predictor.model.model_id, "seconds": perf_counter() - started}
            record_predictions(connection, table, analysis.sources_of(names), **about)
    return rows


def find_table(
    connection: Connection, place: PredictionTarget, select: str, key: str
) -> NamedTable:
    """Return the target's table, or the place for it.

    Raises:
        TargetMismatch: it has other columns than predictions with this key.
    """
    table = connection.find_target(place)
    if table.exists:
        check_columns(table, key, connection.key_type(select, key), connection.engine)
    return table


def _spool(
    columns_of: Callable[[Inputs], Sequence[Any]],
    batches: Iterable[tuple[list[str], Inputs]],
    file: IO[bytes],
    counted: RowCount,
    schema: pa.Schema,
) -> int:
    """Write keys and what there is of each row into a file; return how many rows they are."""
    rows = 0
    with pa.ipc.new_stream(file, schema) as writer:
        for keys, inputs in batches:
            counted.add(len(keys))
            columns = (keys, *columns_of(inputs))
            arrays = [
                c if isinstance(c, pa.Array) else to_array(c, f.type)
                for c, f in zip(columns, schema, strict=True)
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
            rows += len(keys)
    return rows


def record_predictions(
    connection: Connection, table: NamedTable, sources: Sequence[SourceColumn], **about: object
) -> None:
    """Record what was predicted from what; see sql/schema/12_lineage.sql."""
    named = {"schema_name": table.schema, "table_name": table.name}
    (added,) = connection.rows(_PREDICTION_QUERIES.add_prediction, **named, **about)
    connection.run_many(
        _PREDICTION_QUERIES.add_source,
        [
            {"prediction_id": added["prediction_id"], "ordinal": ordinal, **source_row(source)}
            for ordinal, source in enumerate(sources)
        ],
    )
