"""What an open database predicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmdb.db.connection import Row
from mmdb.db.target import Target
from mmdb.db.url import AnyConnection
from mmdb.errors import InTransaction
from mmdb.server.arguments import input_text
from mmdb.zoo.calls import Calls


class Predictions(Calls):
    """Part of `Database`."""

    connection: AnyConnection

    def predict(self, model: str, x: Sequence[float] | Mapping[str, Any]) -> list[float]:
        """Return class probabilities, or the value of a regression, for one row.

        Args:
            model: `name` or `name@version`.
            x: the features in order, or a row with the dataset's column names.
        Raises:
            ModelNotFound, InvalidInput
        """
        return list(self._call("predict", model=model, x=input_text(x)))

    def predict_query(self, model: str, query: str, *, key: str = "id") -> list[Row]:
        """Return key, prediction and probability for every row of a SELECT.

        Raises:
            ModelNotFound, QueryError, UnknownColumn
        """
        return list(self._call("predict_query", model=model, query=query, key=key))

    def predict_into(self, model: str, query: str, target: str, *, key: str = "id") -> int:
        """Write the predictions for every row of a SELECT to a table; return the rows written.

        The table is made as needed, with the columns key, prediction, probability, model and
        predicted_at; rows of earlier calls stay. It all happens or nothing: docs/predictions.md.

        Args:
            target: `table` or `schema.table`; parts that are no plain names in double quotes.
            key: the column of the query that names a row; the table's keeps name and type.
        Raises:
            ModelNotFound, QueryError, UnknownColumn, InvalidName
            TargetMismatch: the table has other columns, or is one of the system.
            InTransaction, RightsMissing
        """
        Target.parse(target, self.connection.engine)  # no driver sends every text
        if self.connection.engine == "duckdb" and self.connection.in_transaction:
            raise InTransaction(  # a function of DuckDB has a session of its own
                "Predictions are written in a transaction of their own.",
                hint="COMMIT or ROLLBACK first.",
            )
        arguments = {"model": model, "query": query, "target": target, "key": key}
        return int(self._call("predict_into", **arguments))

    def evaluate(self, model: str, dataset: str) -> dict[str, float]:
        """Return a model's metrics on a dataset's validation slice.

        Raises:
            ModelNotFound, DatasetNotFound
        """
        rows = self._call("evaluate", model=model, dataset=dataset)
        return {row["metric"]: row["value"] for row in rows}
