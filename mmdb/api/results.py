"""Calls of an open database that return predictions, lineage, and exports for other tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmdb.api.calls import Calls
from mmdb.db.connection import Row
from mmdb.db.prediction_table import PredictionTarget
from mmdb.errors import InTransaction, InvalidOption
from mmdb.server.arguments import input_text

if TYPE_CHECKING:
    from mmdb.report.notebook import LineageRows
    from mmdb.standards.mlflow_export import MlflowCounts
    from mmdb.standards.view_files import ParquetFile


class ResultCalls(Calls):
    """Part of `Database`."""

    def predict(self, model: str, x: Sequence[Any] | Mapping[str, Any]) -> list[float]:
        """Return class probabilities, or the value of a regression, for one row.

        Args:
            model: `name` or `name@version`.
            x: the features in order, or a row with the dataset's column names.
        Raises:
            ModelNotFound, InvalidInput
        """
        return list(self._call("predict", model=model, x=input_text(x)))

    def generate(
        self,
        model: str,
        prompt: str,
        *,
        max_tokens: int = 50,
        temperature: float = 0.0,
        top_k: int | None = None,
        seed: int = 0,
        time_limit: float | None = None,
    ) -> Row:
        """Return how a language model goes on with a text; docs/text.md.

        Args:
            temperature: 0 for the likeliest token each time; else tokens are drawn, the more evenly
                the higher it is.
            top_k: tokens that are drawn from, the likeliest ones; None: all.
            seed: of what is drawn.
            time_limit: seconds.
        Returns:
            generated, the text behind the prompt; tokens, how many it is, its end among them;
            stopped: "end", "tokens" (as many as were asked for), "time", or "context" (the network
            reads no more).
        Raises:
            ModelNotFound, InvalidOption, InvalidInput
        """
        rows = self._call(
            "generate",
            model=model,
            prompt=prompt,
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            seed=seed,
            time_limit=time_limit,
        )
        return dict(rows[0])

    def embed(
        self,
        model: str,
        x: Sequence[Any] | Mapping[str, Any],
        *,
        layer: str | None = None,
        normalized: bool = False,
    ) -> list[float]:
        """Return the embedding of one row: float32, as long as the layer is wide.

        Args:
            model, x: see `predict`.
            layer: path of the module whose output it is; None: it is what the model's last layer
                reads. Of a sequence or a map it is the mean over the positions.
            normalized: whether it is divided by its length.
        Raises:
            ModelNotFound, InvalidInput
            CutNotFound: there is no such layer. NotACut: its output is not one tensor.
        """
        about = {"layer": layer, "normalized": normalized}
        return list(self._call("embed", model=model, x=input_text(x), **about))

    def predict_query(
        self, model: str, query: str, *, key: str | None = None, probabilities: bool = False
    ) -> list[Row]:
        """Return key, prediction and probability for every row of a SELECT.

        Args:
            key: the column of the query that names a row; None: the key of the model's dataset, or
                `id` where it has none or several.
            probabilities: of all classes too, as the text of a JSON object.
        Raises:
            ModelNotFound, QueryError, UnknownColumn
        """
        arguments = {"model": model, "query": query, "key": key, "probabilities": probabilities}
        rows = self._call("predict_query", **arguments)
        shown = ("key", "prediction", "probability", "probabilities")[: 3 + probabilities]
        return [{name: row[name] for name in shown} for row in rows]

    def score_on_insert(self, target: str, model: str, into_column: str) -> int:
        """Have a model predict a column of each new row of one's own table, on PostgreSQL.

        Args:
            target: the table, `table` or `schema.table`, with a primary key of one column.
            model: `name`, `name@version` or `name@alias`, looked up at each insert.
        Returns:
            The number that `mmdb.scoring_overview` has it by.
        Raises:
            ModelNotFound, TargetMismatch, UnknownColumn, RightsMissing, InvalidOption
        """
        given = {"target": target, "model": model, "into_column": into_column}
        return int(self._call("score_on_insert", **given))

    def embed_on_insert(
        self,
        target: str,
        model: str,
        into_column: str = "embedding",
        *,
        layer: str | None = None,
        normalized: bool = False,
    ) -> int:
        """Have a model fill a column of each new row with its embedding, on PostgreSQL.

        Args:
            target, model: see `score_on_insert`.
            into_column: of type real[], or pgvector's vector.
            layer, normalized: see `embed`.
        Returns:
            The number that `mmdb.scoring_overview` has it by.
        Raises:
            ModelNotFound, CutNotFound, NotACut
            TargetMismatch, UnknownColumn, RightsMissing, InvalidOption
        """
        given = {"target": target, "model": model, "into_column": into_column}
        about = {"layer": layer, "normalized": normalized}
        return int(self._call("embed_on_insert", **given, **about))

    def stop_scoring(self, target: str, into_column: str) -> None:
        """Have no model fill a column of new rows any more.

        Raises:
            ScoringNotFound, TargetMismatch, UnknownColumn, RightsMissing
        """
        self._call("stop_scoring", target=target, into_column=into_column)

    def predict_into(
        self,
        model: str,
        query: str,
        target: str,
        *,
        key: str | None = None,
        probabilities: bool = False,
    ) -> int:
        """Write the predictions for every row of a SELECT to a table; return the rows written.

        The table is made as needed, with the columns key, prediction, probability, model and
        predicted_at; rows of earlier calls stay. It all happens or nothing: docs/predictions.md.

        Args:
            target: `table` or `schema.table`; parts that are no plain names in double quotes.
            key: see `predict_query`; the table's keeps name and type.
            probabilities: of all classes, too, in a column of the table.
        Raises:
            ModelNotFound, QueryError, UnknownColumn, InvalidName
            TargetMismatch: the table has other columns, or is one of the system.
            InTransaction, RightsMissing
        """
        arguments = {"model": model, "query": query, "key": key, "probabilities": probabilities}
        return self._write("predict_into", target, arguments)

    def embed_into(
        self,
        model: str,
        query: str,
        target: str,
        *,
        key: str | None = None,
        into_column: str = "embedding",
        layer: str | None = None,
        normalized: bool = False,
    ) -> int:
        """Write the embedding of every row of a SELECT to a table; return the rows written.

        The table is made as needed, with the key, the embedding, model and predicted_at. The
        embedding's type is pgvector's vector(n) where the extension is there, else real[]; on
        DuckDB FLOAT[n].

        Args:
            target, key: see `predict_into`.
            into_column: the embedding's name.
            layer, normalized: see `embed`.
        Raises:
            CutNotFound, NotACut, ModelNotFound, QueryError, UnknownColumn, InvalidName
            TargetMismatch: the table has other columns, or vectors of another length.
            InTransaction, RightsMissing
        """
        about = {"into_column": into_column, "layer": layer, "normalized": normalized}
        arguments = {"model": model, "query": query, "key": key, **about}
        return self._write("embed_into", target, arguments)

    def _write(self, function: str, target: str, arguments: dict[str, Any]) -> int:
        PredictionTarget.parse(target, self.connection.engine)  # no driver sends every text
        if self.connection.engine == "duckdb" and self.connection.in_transaction:
            raise InTransaction(  # a function of DuckDB has a session of its own
                "Predictions are written in a transaction of their own.",
                hint="COMMIT or ROLLBACK first.",
            )
        return int(self._call(function, target=target, **arguments))

    def lineage(
        self,
        entity: str,
        direction: str = "up",
        *,
        hops: bool | None = None,
        max_depth: int | None = None,
    ) -> LineageRows:
        """Return the edges that lead to an entity, or away from it, those next to it first.

        Args:
            entity: "model:name@version", "dataset:name", "column:table.column" and others, see
                docs/lineage.md; the name alone where it is of one thing.
            direction: "up" to what it came from, "down" to what came of it.
            hops: whether partitions and hops are shown; left out, on the way up alone.
            max_depth: edges that the farthest is away at most.
        Returns:
            Rows of depth, kind (of the farther end), parent, child, via; a notebook draws them.
        Raises:
            EntityNotFound, AmbiguousEntity, InvalidOption
        """
        from mmdb.report.notebook import LineageRows

        rows = self._call(
            "lineage", entity=entity, direction=direction, hops=hops, max_depth=max_depth
        )
        return LineageRows(rows, "down" if direction == "down" else "up")

    def export_openlineage(
        self,
        run: str | None = None,
        *,
        file: str | Path | None = None,
        url: str | None = None,
        key: str | None = None,
        jobs: str = "mmdb",
        hops: bool = False,
    ) -> int:
        """Write lineage as OpenLineage events, to a file or to a collector; return how many.

        Ids are the same at each export, so that a collector knows what it has.

        Args:
            run: this run with its dataset and models; None is all that the database holds.
            file: one event on each line; what is there is overwritten.
            url: of a collector; `key` is sent as a bearer token.
            jobs: namespace of the jobs; databases that share a collector need one each.
            hops: whether each hop is a run of its own.
        Raises:
            RunNotFound, FileNotWritten, FileExists
            InvalidOption: there must be either a file or an URL.
            SinkFailed: the collector did not take an event.
            RightsMissing: the role may not read mmdb's tables: mmdb_trainer may.
        """
        from mmdb.standards.http_service import post_events, write_events
        from mmdb.standards.openlineage_events import lineage_events

        if (file is None) == (url is None):
            raise InvalidOption("Events go to a file or to a URL.", hint="Pass one of the two.")
        events = lineage_events(self.connection, run, jobs=jobs, hops=hops)
        if file is not None:
            return write_events(events, file)
        assert url is not None
        return post_events(events, url, key)

    def export_mlflow(
        self, url: str, run: str | None = None, *, key: str | None = None, prefix: str = ""
    ) -> MlflowCounts:
        """Copy runs and models into an MLflow tracking server; a second time, only what is new.

        Args:
            url: of the server, `http://host:port`; `key` is sent as a bearer token.
            run: this run with its models; None is all of them.
            prefix: put before the names of experiments and models.
        Raises:
            RunNotFound, InvalidOption: the URL is none.
            SinkFailed: the server does not answer, or has an experiment of that name already.
        """
        from mmdb.standards.mlflow_export import export_mlflow

        return export_mlflow(self.connection, url, run, key=key, prefix=prefix)

    def model_card(self, model: str, file: str | Path | None = None) -> str:
        """Return the model card of a version, in Markdown; with `file`, write it there too.

        Args:
            model: `name`, `name@version` or `name@alias`; dropped ones have a card too.
        Raises:
            ModelNotFound, FileNotWritten, FileExists: it is a folder.
        """
        from mmdb.standards.http_service import write_text
        from mmdb.standards.model_card import model_card

        content = model_card(self.connection, model)
        if file is not None:
            write_text(content, file)
        return content

    def export_parquet(
        self, folder: str | Path, only: Sequence[str] | None = None
    ) -> list[ParquetFile]:
        """Write every view to `<folder>/<view>.parquet`, and their comments to `views.json`.

        Args:
            only: these views.
        Raises:
            InvalidOption: there is no such view.
            FileNotWritten, FileExists: a file's name is that of a folder.
        """
        from mmdb.standards.view_files import export_parquet

        wanted = [only] if isinstance(only, str) else only or ()
        return export_parquet(self.connection, folder, wanted)
