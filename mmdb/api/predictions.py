"""What an open database predicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmdb.db.connection import Row
from mmdb.server.arguments import input_text


class Predictions:
    """Part of `Database`."""

    def _call(self, function: str, **arguments: Any) -> Any:
        raise NotImplementedError

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

    def evaluate(self, model: str, dataset: str) -> dict[str, float]:
        """Return a model's metrics on a dataset's validation slice.

        Raises:
            ModelNotFound, DatasetNotFound
        """
        rows = self._call("evaluate", model=model, dataset=dataset)
        return {row["metric"]: row["value"] for row in rows}
