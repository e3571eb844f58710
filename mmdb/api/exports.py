"""What an open database writes for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mmdb.db.url import AnyConnection
from mmdb.errors import InvalidOption

if TYPE_CHECKING:
    from mmdb.standards.mlflow_export import MlflowCounts
    from mmdb.standards.parquet_export import ParquetFile


class Exports:
    """Part of `Database`."""

    connection: AnyConnection

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
        from mmdb.standards.openlineage_events import lineage_events
        from mmdb.standards.sinks import post_events, write_events

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
        from mmdb.standards.model_card import model_card
        from mmdb.standards.sinks import write_text

        content = model_card(self.connection, model)
        if file is not None:
            write_text(content, file)
        return content

    def export_parquet(
        self, folder: str | Path, only: list[str] | None = None
    ) -> list[ParquetFile]:
        """Write every view to `<folder>/<view>.parquet`, and their comments to `views.json`.

        Args:
            only: these views.
        Raises:
            InvalidOption: there is no such view.
            FileNotWritten, FileExists: a file's name is that of a folder.
        """
        from mmdb.standards.parquet_export import export_parquet

        return export_parquet(self.connection, folder, only or ())
