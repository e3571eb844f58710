"""Calls of an open database that judge a model: metrics, comparisons, curves, residuals."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mmdb.api.calls import Calls
from mmdb.db.connection import Row
from mmdb.server.arguments import as_json, json_text

Metric = str | Mapping[str, Any]


class EvaluatedMetrics(dict[str, float]):
    """The metrics of a model on all rows, by name."""

    #: As SQL returns them: metric, value, by_name, by_value, row_count, low, high; all rows first.
    rows: list[Row]

    def __init__(self, rows: list[Row]) -> None:
        """Take the rows of SQL."""
        super().__init__({row["metric"]: row["value"] for row in rows if row["by_name"] is None})
        self.rows = rows


class JudgingCalls(Calls):
    """Part of `Database`. `data` is the name of a dataset, or a SELECT with label and features."""

    def evaluate(
        self,
        model: str,
        data: str,
        slice: str | None = None,
        *,
        metrics: Metric | Sequence[Metric] | None = None,
        by: str | None = None,
        intervals: bool = False,
    ) -> EvaluatedMetrics:
        """Return a model's metrics on a dataset, or on a SELECT; keep them in mmdb.evaluation.

        Args:
            slice: of a dataset; None: validation, or all rows where it has none.
            metrics: one, or several as options.metrics has them; None: those of the model's run.
            by: a column of the SELECT, for whose values `rows` has the metrics, too.
            intervals: whether `rows` has 95 % intervals, by bootstrap.
        Raises:
            ModelNotFound, DatasetNotFound, QueryError, UnknownColumn, InvalidInput, InvalidOption
        """
        rows = self._call(
            "evaluate",
            model=model,
            data=data,
            slice=slice,
            metrics=_metrics(metrics),
            by=by,
            intervals=intervals,
        )
        return EvaluatedMetrics(rows)

    def compare_models(
        self,
        a: str,
        b: str,
        data: str,
        *,
        metrics: Metric | Sequence[Metric] | None = None,
    ) -> list[Row]:
        """Return two models' metrics on the same rows, and which is better by more than noise.

        Returns:
            Rows of metric, a_value, b_value, difference (a less b) with the ends of its 95 %
            interval, low and high, its p_value (paired bootstrap; of accuracy McNemar's test), and
            better: a model's name, None where p_value is 0.05 or more.
        """
        given = {"a": a, "b": b, "data": data, "metrics": _metrics(metrics)}
        return list(self._call("compare_models", **given))

    def confusion_matrix(self, model: str, data: str) -> list[Row]:
        """Return label, prediction, rows (or their weights), share of the label's, for each two."""
        return list(self._call("confusion_matrix", model=model, data=data))

    def roc_curve(self, model: str, data: str, positive: str | None = None) -> list[Row]:
        """Return threshold, false_positive_rate and true_positive_rate, greatest threshold first.

        Args:
            positive: the class that counts, as the database writes it; None: the second of two.
        """
        return list(self._call("roc_curve", model=model, data=data, positive=positive))

    def precision_recall(self, model: str, data: str, positive: str | None = None) -> list[Row]:
        """Return threshold, precision and recall, greatest threshold first; see `roc_curve`."""
        return list(self._call("precision_recall", model=model, data=data, positive=positive))

    def calibration(
        self, model: str, data: str, positive: str | None = None, *, bins: int = 10
    ) -> list[Row]:
        """Return low, high, row_count, score (mean probability), share (of the class), by range."""
        given = {"model": model, "data": data, "positive": positive, "bins": bins}
        return list(self._call("calibration", **given))

    def threshold(
        self, model: str, data: str, goal: Mapping[str, Any], positive: str | None = None
    ) -> Row:
        """Return the threshold that meets a goal, with precision, recall and cost there.

        Args:
            goal: {"recall": 0.9}, {"precision": 0.9}, or what errors cost:
                {"cost": {"false_positive": 1, "false_negative": 5}}.
        Raises:
            InvalidOption: it is no goal. InvalidInput: no threshold meets it.
        """
        given = {"model": model, "data": data, "goal": json_text(goal, "goal")}
        (row,) = self._call("thresholds", positive=positive, **given)
        return dict(row)

    def calibrate_model(
        self,
        model: str,
        data: str,
        method: str | None = None,
        *,
        goal: Mapping[str, Any] | None = None,
        positive: Any = None,
        slice: str | None = None,
    ) -> Row:
        """Save a model's next version, which predicts by calibrated probabilities or a threshold.

        Args:
            data: rows that the model was not trained on; of a dataset its validation slice.
            method: "temperature" or "isotonic"; None: the model stays calibrated as it is.
            goal: as `threshold` takes it; the class `positive` is predicted from there on.
        Returns:
            model_id, name, version, and calibration: what is saved, a mapping.
        Raises:
            ModelNotFound, DatasetNotFound, QueryError, UnknownColumn, InvalidInput, InvalidOption
        """
        (row,) = self._call(
            "calibrate_model",
            model=model,
            data=data,
            method=method,
            goal=None if goal is None else json_text(goal, "goal"),
            positive=positive,
            slice=slice,
        )
        return {**row, "calibration": json.loads(row["calibration"])}

    def residuals(self, model: str, query: str, *, key: str | None = None) -> list[Row]:
        """Return row_key, label, prediction and residual of a regression for each row."""
        return list(self._call("residuals", model=model, query=query, key=key))

    def importance(
        self,
        model: str,
        query: str,
        *,
        metric: str | None = None,
        by_table: bool = False,
        repeats: int = 20,
    ) -> list[Row]:
        """Return columns by what a metric loses where their values are shuffled, greatest first.

        Args:
            query: a SELECT with label and features.
            metric: None: the first that the model's run records.
            by_table: whether the columns of a table are shuffled together.
        Returns:
            Rows of column_name, tables (that it is read from), metric_name, importance, and the
            ends of its 95 % interval, low and high.
        """
        given = {"model": model, "query": query, "metric": metric, "by_table": by_table}
        return list(self._call("importance", repeats=repeats, **given))

    def explain_predict(
        self,
        model: str,
        query: str,
        *,
        top: int = 3,
        key: str | None = None,
        method: str | None = None,
        baseline: Mapping[str, Any] | None = None,
    ) -> list[Row]:
        """Return for each row of a SELECT the columns that moved its prediction most.

        Args:
            method: "shapley", exact, of ten columns at most, or "gradients", integrated; None:
                the first where there are few columns.
            baseline: the row to compare with; None: medians, texts missing, arrays of 0.
        Returns:
            Rows of row_key, prediction, answer (the class's probability, or the number), rank,
            column_name, value, contribution, and gap: what all columns' sum is off.
        """
        given = {"model": model, "query": query, "top": top, "key": key, "method": method}
        row = None if baseline is None else json_text(baseline, "baseline")
        return list(self._call("explain_predict", baseline=row, **given))

    def training_rows(
        self,
        model: str,
        query: str,
        *,
        trained: str | None = None,
        top: int = 10,
        key: str | None = None,
        checkpoints: int = 1,
    ) -> list[Row]:
        """Return the training rows that helped a model to answer some rows, and that hurt.

        Args:
            query: the rows that were answered, with features and label.
            trained: the training rows, with `key`; None: the query of the model's dataset.
            top: how many of each kind.
            checkpoints: of how many epochs' ends, up to the model's own, influence and loss are
                means; more than 1 trains the model anew, to the same bits.
        Returns:
            Rows of row_key, effect (helped, hurt), influence, label, and loss, the row's own;
            those that helped first, then those that hurt, the strongest first.
        """
        given = {"model": model, "query": query, "trained": trained, "top": top, "key": key}
        return list(self._call("training_rows", checkpoints=checkpoints, **given))

    def drift(self, model: str, query: str) -> list[Row]:
        """Return how far the rows of a SELECT have moved from those that a model learned from.

        Args:
            query: with the model's features, and labels if there are any.
        Returns:
            For each feature and prediction, and if there are labels for each label, its relation to
            the features and the run's metric, a row of column_name, role, psi (population stability
            index), distance (Kolmogorov-Smirnov's, or of texts Jensen-Shannon's), p_value
            (corrected for all of them), nulls_before and nulls_now, unseen (texts that the train
            rows did not have, a share), value_before and value_now of the metric, and drifted:
            those first. Rows of mmdb.drift_overview keep it.
        """
        return list(self._call("drift", model=model, query=query))


def _metrics(metrics: Metric | Sequence[Metric] | None) -> str | None:
    """Return metrics as JSON; one by itself is no list of its letters, or of its keys."""
    if metrics is None:
        return None
    listed = [metrics] if isinstance(metrics, str | Mapping) else list(metrics)
    return as_json(listed, "metrics")
