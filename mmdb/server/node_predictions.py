"""Predictions of a distributed table's rows, made on the nodes of a cluster that hold them.

The coordinator writes one INSERT … SELECT, which Citus runs shard by shard: a shard's rows go
block by block into `mmdb.predict_rows`, and what comes of them into a table distributed alike.
Which queries nodes can answer by themselves is Citus's to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from mmdb.data.dataset import find_decoding
from mmdb.data.names import find_model_id
from mmdb.data.query import SourceColumn, analyse
from mmdb.data.query_rows import KEY, Beside, kinds_of, scanned_select, types_of
from mmdb.db.connection import Row
from mmdb.db.prediction_table import NamedTable, PredictionTarget, check_key
from mmdb.db.queries import load, quote_name
from mmdb.db.scan import blocks_select
from mmdb.errors import stops_the_caller
from mmdb.server.backend import Backend
from mmdb.server.dataset_functions import find_table, record_predictions
from mmdb.server.plpy_connection import PlpyConnection

_Q = load("nodes")
#: What a shard's rows are grouped by; no output column of the user's has this name.
_SHARD = "mmdb shard"


def predict_on_nodes(
    backend: Backend, model: str, query: str, place: PredictionTarget, key: str | None
) -> int | None:
    """Predict the rows of a SELECT where they lie, into a table; return how many they are.

    Returns:
        None where the nodes cannot do it by themselves, or the model predicts no rows.
    Raises:
        what `predict_into` raises.
    """
    started, connection = perf_counter(), backend.connection
    assert isinstance(connection, PlpyConnection)
    (saved,) = connection.rows(_Q.find_predicting, model_id=find_model_id(connection, model))
    if not saved["is_known"] or saved["dataset_id"] is None:
        return None
    decoding = find_decoding(connection, saved["dataset_id"])
    key = decoding.key_of_rows if key is None else key
    check_key(key, place.types)
    analysis = analyse(query, "postgres", connection)
    sources = analysis.sources_of([name for name, _ in connection.columns(analysis.select)])
    home = _find_home(connection, sources, key)
    if home is None or decoding.task == "next_token":
        return None
    table = _find_filled(connection, place, analysis.select, key, home)
    if table is None:
        return None
    on = f"e.{quote_name(home['column_name'])}"
    grouped = (  # it joins no row: all have a NULL, which Citus takes for what they lie by
        f"SELECT q.*, {on} AS {quote_name(_SHARD)} FROM ({analysis.select}\n) AS q"
        f" LEFT JOIN {home['table_sql']} AS e ON q.{quote_name(key)} = {on} AND {on} IS NULL"
    )
    beside: dict[str, Beside] = {KEY: (key, "text")}
    select, fields = scanned_select(connection, decoding, grouped, beside, [_SHARD])
    rows = connection.predict_blocks(
        table,
        blocks_select(select, kinds_of(fields), _SHARD),
        *(saved["reference"], saved["now"], saved["model_id"]),
        *(key, types_of(fields), "probabilities" in place.types),
    )
    about = {"key_name": key, "query": query, "row_count": rows, "embedding": None}
    about |= {"model_id": saved["model_id"], "seconds": perf_counter() - started}
    record_predictions(connection, table, sources, **about)
    return rows


def _find_home(connection: PlpyConnection, sources: Sequence[SourceColumn], key: str) -> Row | None:
    """Return the distributed table whose rows lie by the column that is the key."""
    for source in sources:
        if source.output == key and source.column is not None:
            place = {"schema": source.schema, "table": source.table, "column": source.column}
            if found := connection.rows(_Q.find_distributed, **place):
                return found[0]
    return None


def _find_filled(
    connection: PlpyConnection, place: PredictionTarget, select: str, key: str, home: Row
) -> NamedTable | None:
    """Return the target's table, made where it is not there; None if nodes alone cannot fill it.

    What is wrong with the call is told where it is done in the other way.
    """
    try:
        with connection.transaction():
            table = find_table(connection, place, select, key)
            if not table.exists:
                connection.create_target(table, select, key)
                about = {"target": table.sql, "key": key, "home": home["table_sql"]}
                connection.run(_Q.distribute_like, **about)
                table = find_table(connection, place, select, key)
            return table if connection.fills_on_nodes(table, select, key) else None
    except Exception as error:
        if stops_the_caller(error):
            raise
        return None
