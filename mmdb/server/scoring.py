"""Columns that a model fills in new rows of a table: the trigger, and what it asks for.

They hold predictions or embeddings.

The trigger's function is the table owner's, and runs with that role's rights: who inserts needs
none of mmdb's. It hands over the keys of the new rows; they are read again and predicted in
batches, as any query's rows are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from secrets import token_hex
from typing import Any

from mmdb.data.arrays import Inputs
from mmdb.data.query_rows import scan_inputs
from mmdb.db.connection import Row
from mmdb.db.prediction_table import PredictionTarget, check_schema, vector_text
from mmdb.db.queries import load, quote_name
from mmdb.errors import (
    DataError,
    FunctionFailed,
    InvalidInput,
    InvalidOption,
    MmdbError,
    NoServerFunctions,
    RightsMissing,
    ScoringNotFound,
    TargetMismatch,
    UnknownColumn,
    stops_the_caller,
)
from mmdb.messages import show
from mmdb.server.arguments import json_object
from mmdb.server.backend import Backend
from mmdb.server.embedding import Embedder, find_embedder, vector_types
from mmdb.server.model_functions import find_predictor
from mmdb.server.plpy_connection import PlpyConnection
from mmdb.server.predictor import Predictor
from mmdb.server.row_limit import row_count

_Q = load("scoring")
#: What single rows may be to blame for; a batch is then halved until they are found.
_OF_ROWS = (DataError, InvalidInput, FunctionFailed)
#: Rows to blame that are looked for in one statement; what is not predicted by then is left.
MOST_BAD = 32


def score_on_insert(backend: Backend, target: str, model: str, into_column: str) -> int:
    """Make the trigger that fills a column of new rows; return the number of its record.

    Raises:
        ModelNotFound, InvalidInput: of the model.
        InvalidName, TargetMismatch: the table is none, has no key of one column, or is filled.
        UnknownColumn, RightsMissing: the table is not the caller's.
        InvalidOption, NoServerFunctions: the database has no such triggers.
    """
    connection = _in_server(backend)
    find_predictor(backend, model)
    return _make(connection, _find_table(connection, target, into_column), model, None)


def embed_on_insert(
    backend: Backend,
    target: str,
    model: str,
    into_column: str,
    layer: str | None,
    normalized: bool,
) -> int:
    """Make the trigger that fills a column with embeddings; return the number of its record.

    Raises:
        CutNotFound, NotACut: of the layer. TargetMismatch: the column is of another type or length.
        ModelNotFound, and others: see `score_on_insert`.
    """
    connection = _in_server(backend)
    embedder = find_embedder(backend, model, layer, normalized)
    found = _find_table(connection, target, into_column)
    kind, kinds = found["column_kind"], vector_types(connection, embedder.size)
    if kind not in kinds:
        raise TargetMismatch(
            f"Column {into_column!r} is {kind}, and these embeddings are {kinds[0]}.",
            hint=f"ALTER TABLE … ADD COLUMN … {kinds[0]}.",
        )
    about = {**embedder.about, "type": kind}
    return _make(connection, found, model, json.dumps(about))


def _make(connection: PlpyConnection, found: Row, model: str, embedding: str | None) -> int:
    """Make the trigger that fills the column of a table that `_find_table` has found.

    Args:
        embedding: which one it is, as the table of scorings has it; None: predictions are.
    """
    into_column = found["column_name"]
    names = {name: found[name] for name in ("schema_name", "table_name", "column_name")}
    if connection.rows(_Q.find_scorings, **names):
        raise TargetMismatch(
            f"Column {into_column!r} is filled already.", hint="stop_scoring takes that away."
        )
    (added,) = connection.rows(
        _Q.add_scoring, **names, key_name=found["key_name"], model=model, embedding=embedding
    )
    number = int(added["scoring_id"])
    trigger = _trigger(number)
    name = f"{found['schema_sql']}.{trigger}_{token_hex(4)}"  # which nobody has taken before
    given = [
        *(str(number), found["key_name"], into_column, model),
        *(found["key_type"], found["column_type"]),
        *(() if embedding is None else (embedding,)),
    ]
    (made,) = connection.rows(_Q.write_function, name=name)
    connection.script(made["ddl"])
    about = {"trigger": trigger, "table_sql": found["table_sql"], "name": name}
    (made,) = connection.rows(_Q.write_trigger, **about, arguments=given)
    connection.script(made["ddl"])
    return number


def stop_scoring(backend: Backend, target: str, into_column: str) -> int:
    """Drop the trigger that fills a column, and what is written of it; return its number.

    Raises:
        ScoringNotFound, RightsMissing, and others: see `score_on_insert`.
    """
    connection = _in_server(backend)
    found = _find_table(connection, target, into_column)
    names = {name: found[name] for name in ("schema_name", "table_name", "column_name")}
    scorings = connection.rows(_Q.find_scorings, **names)
    if not scorings:
        raise ScoringNotFound(f"No model fills column {into_column!r} of {target!r}.")
    number = int(scorings[0]["scoring_id"])
    place = {"target": found["table_sql"], "name": _trigger(number)}
    for trigger in connection.rows(_Q.find_trigger, **place):
        connection.script(f"DROP TRIGGER {trigger['trigger_sql']} ON {found['table_sql']}")
        connection.script(f"DROP FUNCTION {trigger['function_sql']}")
    connection.run(_Q.delete_failures, scoring_id=number)
    connection.run(_Q.delete_scoring, scoring_id=number)
    return number


def score_rows(
    backend: Backend, scoring_id: int, target: str, keys: str, model: str, embedding: str | None
) -> list[dict[str, Any]]:
    """Return keys and predictions of rows of a table; those that have none are written down.

    Args:
        target: the table, as `score_on_insert` takes it.
        keys: of the rows, as PostgreSQL writes an array.
        embedding: which one is to be returned, as the table of scorings has it, in place of
            predictions.
    """
    connection = _in_server(backend)
    texts_of: Callable[[Inputs], Sequence[str]]
    if embedding is None:
        predictor = find_predictor(backend, model)
        texts_of = _predicted(predictor)
    else:
        about = json_object(embedding, "embedding")
        embedder = find_embedder(backend, model, about.get("layer"), about.get("normalized", False))
        predictor, texts_of = embedder.predictor, _embedded(embedder, str(about.get("type")))
    found = _find_table(connection, target, None)
    return list(_Scoring(backend, connection, predictor, found, scoring_id, texts_of).rows(keys))


def _predicted(predictor: Predictor) -> Callable[[Inputs], Sequence[str]]:
    def texts_of(inputs: Inputs) -> list[str]:
        values = predictor.predictions(inputs).values
        found = [value for value in values if value is not None]
        if len(found) < len(values):
            raise InvalidInput(f"Model {predictor.model.reference} predicts NaN.")
        return found

    return texts_of


def _embedded(embedder: Embedder, kind: str) -> Callable[[Inputs], Sequence[str]]:
    return lambda inputs: [vector_text(v, kind) for v in embedder.vectors(inputs).tolist()]


def note_unscored(
    backend: Backend, scoring_id: int, row_count: int, sqlstate: str, message: str
) -> int:
    """Write down that rows were left without a prediction; return the number of the record.

    Raises:
        ScoringNotFound
    """
    (row,) = backend.connection.rows(_Q.has_scoring, scoring_id=scoring_id)
    if not row["found"]:
        raise ScoringNotFound(f"No model fills a column by the number {show(scoring_id)}.")
    about = {"row_count": row_count, "row_key": None, "sqlstate": sqlstate, "message": message}
    backend.connection.run(_Q.add_failure, scoring_id=scoring_id, **about)
    return scoring_id


def _trigger(number: int) -> str:
    return f"mmdb_score_{number}"


def _in_server(backend: Backend) -> PlpyConnection:
    """Return the server's own session.

    Raises:
        InvalidOption: on DuckDB, or on Citus. NoServerFunctions
    """
    connection = backend.connection
    if connection.engine == "duckdb":
        hint = "predict_into adds predictions of a query's rows to a table: docs/predictions.md."
        raise InvalidOption("DuckDB has no triggers.", hint=hint)
    if not isinstance(connection, PlpyConnection):
        raise NoServerFunctions("New rows are predicted inside the server.")
    if connection.is_spread:
        raise InvalidOption("On Citus no trigger predicts new rows.", hint="Use predict_into.")
    return connection


def _find_table(connection: PlpyConnection, target: str, into_column: str | None) -> Row:
    """Return the row of `find_table`.

    Raises:
        InvalidName, TargetMismatch, UnknownColumn, RightsMissing
    """
    name = PredictionTarget.parse(target, "postgres").sql
    rows = connection.rows(_Q.find_table, target=name, into_column=into_column)
    if not rows:
        raise TargetMismatch(f"There is no table {show(target)}.", hint="Make the table first.")
    found = rows[0]
    check_schema(found["schema_name"])
    if not found["is_table"]:
        raise TargetMismatch(
            f"{target} is no table.", hint="A view's or foreign table's rows stay."
        )
    if not found["is_own"]:
        raise RightsMissing(f"Table {target} is not yours.", hint="Its owner may call this.")
    if found["key_name"] is None:
        raise TargetMismatch(
            f"Table {target} has no primary key of one column, by which new rows are found again.",
            hint="ALTER TABLE … ADD PRIMARY KEY (…).",
        )
    if found["has_parts"]:
        raise TargetMismatch(
            f"The primary key of table {target} is an array or a composite.",
            hint="New rows are found again by a key of one value, such as a number or a text.",
        )
    if into_column is not None and found["column_name"] is None:
        raise UnknownColumn(f"Table {target} has no column {show(into_column)}.")
    if into_column is not None and found["is_made"]:
        raise TargetMismatch(
            f"Column {into_column!r} is the key or generated.", hint="Name a plain column."
        )
    return found


class _Scoring:
    """The new rows of one statement."""

    def __init__(
        self,
        backend: Backend,
        connection: PlpyConnection,
        predictor: Predictor,
        table: Row,
        scoring_id: int,
        texts_of: Callable[[Inputs], Sequence[str]],
    ) -> None:
        self._backend, self._connection, self._predictor = backend, connection, predictor
        self._texts_of = texts_of
        self._key, self._scoring_id = str(table["key_name"]), scoring_id
        #: A row with a NULL in one of these has no prediction.
        self._filled = [c.name for c in predictor.decoding.features if c.transform is None]
        filled = "".join(f" AND t.{quote_name(name)} IS NOT NULL" for name in self._filled)
        keys = f"pg_catalog.current_setting('mmdb.scored_keys')::{table['key_type']}[]"
        self._query = (  # joined: of a parameter, = ANY (...) would be looked through for each row
            f"SELECT t.* FROM {table['own_rows_sql']} AS t INNER JOIN pg_catalog.unnest({keys})"
            f" AS k (key) ON t.{quote_name(self._key)} = k.key{filled}"
        )

    def rows(self, keys: str) -> Iterator[dict[str, Any]]:
        """Yield keys and predictions of the rows that have one.

        Raises:
            InvalidInput: the keys are no array.
        """
        found = self._attempt(keys)
        if found is None:
            yield from self._halved(self._split(keys))
            return
        yield from found
        given = int(self._connection.rows(_Q.count_keys, keys=keys)[0]["keys"])
        if given > len(found):
            names = ", ".join(self._filled)
            self._note(given - len(found), None, "MM121", f"There are NULLs in one of {names}.")

    def _halved(self, keys: list[str]) -> Iterator[dict[str, Any]]:
        """Yield what can be predicted, in smaller and smaller parts."""
        parts, bad = [keys], 0
        while parts:
            part = parts.pop()
            found = self._attempt(_array(part))
            if found is not None:
                yield from found
                if missing := {*part} - {row["row_key"] for row in found}:
                    self._note(len(missing), min(missing), "MM121", "It holds a NULL.")
            elif len(part) > 1 and bad < MOST_BAD:
                parts += [part[len(part) // 2 :], part[: len(part) // 2]]
            else:
                bad += 1
                error = self._error
                self._note(len(part), part[0], error.sqlstate, error.message)

    _error: MmdbError = InvalidInput()  # of the last attempt that failed

    def _attempt(self, keys: str) -> list[dict[str, Any]] | None:
        """Return keys and predictions of rows, or None where one of them cannot be predicted."""
        connection, predictor = self._connection, self._predictor
        connection.run(_Q.name_keys, keys=keys)
        counted, found = row_count(self._backend), []
        try:
            scanned = scan_inputs(connection, predictor.decoding, self._query, self._key)
            with connection.transaction(), closing(scanned) as batches:
                for texts, inputs in batches:
                    counted.add(len(texts))
                    values = self._texts_of(inputs)
                    found += [
                        {"row_key": key, "prediction": value}
                        for key, value in zip(texts, values, strict=True)
                    ]
        except _OF_ROWS as error:
            self._error = error
            return None
        return found

    def _split(self, keys: str) -> list[str]:
        """Return the keys of an array.

        Raises:
            InvalidInput: it is none.
        """
        try:
            return [row["key"] for row in self._connection.rows(_Q.split_keys, keys=keys)]
        except Exception as error:
            if stops_the_caller(error):
                raise
            raise InvalidInput(f"{show(keys)} is no array of keys.", hint="Pass '{…}'.") from error

    def _note(self, count: int, key: str | None, sqlstate: str, message: str) -> None:
        which = "" if key is None else f", the first of which is {key}"
        text = f"{count} new rows{which}, have no prediction: {message}"
        self._backend.warn(
            text if count > 1 else f"New row {key or ''} has no prediction: {message}"
        )
        about = {"row_count": count, "row_key": key, "sqlstate": sqlstate}
        self._connection.run(
            _Q.add_failure, scoring_id=self._scoring_id, **about, message=message[:1000]
        )


def _array(keys: Sequence[str]) -> str:
    """Return texts as PostgreSQL writes an array.

    >>> _array(["1", 'a"b'])
    '{"1","a\\\\"b"}'
    """
    quoted = (key.replace("\\", "\\\\").replace('"', '\\"') for key in keys)
    return "{" + ",".join(f'"{key}"' for key in quoted) + "}"
