"""A run as a handle: train it, hand it to workers, look at it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmdb.argument_types import methods_name_wrong_types
from mmdb.db.connection import Row
from mmdb.db.queries import load
from mmdb.errors import MmdbWarning, NothingLearned
from mmdb.server.arguments import json_text
from mmdb.train.drive import run_requests

if TYPE_CHECKING:
    from mmdb.api.database import Database
    from mmdb.report.explanation import Explanation
    from mmdb.train.replay.summary import Summary
    from mmdb.train.watch import Watch

_Q = load("api")


@methods_name_wrong_types
@dataclass(frozen=True)
class Run:
    """A run of a database."""

    database: Database
    name: str

    def train(self, *, workers: int | None = None, watch: Watch | None = None) -> Summary:
        """Train to the end, or go on where an interrupted call left off.

        Args:
            workers: sessions to train with; None for one per processor.
            watch: is told what happens; docs/watching.md.
        Raises:
            RunBusy, RunFailed, DatasetDropped
        """
        from mmdb.plan.auto_strategy import decider  # imports torch: only where a run is trained
        from mmdb.train.drive.locked_connection import LockedConnection
        from mmdb.train.drive.train_run import train
        from mmdb.train.drive.verdict import verdict

        def warn(text: str) -> None:
            warnings.warn(text, MmdbWarning, stacklevel=2)

        decide = decider(say=warn)
        connection = self.database.connection
        summary = train(connection, self.name, workers=workers, watch=watch, decide=decide)
        said = LockedConnection(connection).do(lambda c: verdict(c, self.name))
        if said is not None:
            warnings.warn(said, NothingLearned, stacklevel=3)
        return summary

    def explain(self, options: Mapping[str, Any] | None = None) -> Explanation:
        """Return what each way of training the run would take, the best first; print it to read it.

        It is kept: once the run is trained, what it took stands beside it.

        Args:
            options: such as {"cluster": {"nodes": 10, "slots": 4}}; docs/planning.md.
        Raises:
            DatasetDropped, EmptySearch, InvalidOption
        """
        from mmdb.report.explanation import Explanation  # loads numpy

        given = json_text(options, "options")
        rows = self.database._call("explain_train", run=self.name, options=given)
        return Explanation(self.name, rows)

    def submit(self, *, priority: int | None = None) -> Row:
        """Hand the run to the worker processes of the database, and return at once.

        Args:
            priority: -5 to 5: its share of the workers is 2 ** priority; None for that of the run's
                options, else 0.
        Returns:
            request_id, run, request, priority, status, hops_done and hops_total.
        Raises:
            RunEnded, InvalidOption, NoWorkers: on DuckDB, which has none.
        """
        return run_requests.submit(self.database.connection, self.name, priority)

    def cancel(self) -> Row:
        """Let whoever trains the run stop within a second; see `submit` for what is returned.

        Raises:
            RunEnded
        """
        return run_requests.cancel_run(self.database.connection, self.name)

    def resume(self) -> Row:
        """Hand the run to the worker processes again, with the priority that it had.

        Raises:
            RunEnded, NoWorkers
        """
        return run_requests.resume_run(self.database.connection, self.name)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the worker processes have trained the run; return False if time was up.

        Raises:
            Cancelled: someone cancelled it; and the error that ended it.
        """
        return run_requests.wait_for(self.database.connection, self.name, timeout_s=timeout_s)

    def report(self, file: str | Path, format: str | None = None) -> None:
        """Write what became of the run as a page that needs no network, a picture or JSON.

        Args:
            file: overwritten if it is there; docs/reports.md.
            format: "html", "png" or "json"; None: as the file's name ends.
        Raises:
            InvalidOption: there is no such format. FileNotWritten
            EngineError: mmdb-learn[report] is not installed.
        """
        from mmdb.report.file import write_report  # few runs need it
        from mmdb.report.subject_reports import run_report

        write_report(run_report(self.database.connection, self.name), file, format)

    def tensorboard(self, folder: str | Path) -> int:
        """Write the run's curves for TensorBoard, or bring them up to date; return how many.

        Args:
            folder: what `tensorboard --logdir` shows; each candidate that has begun is one in it.
        Raises:
            FileExists: it is a file. FileNotWritten
        """
        from mmdb.standards.tensorboard_export import export_tensorboard  # imports torch

        return export_tensorboard(self.database.connection, self.name, folder)

    def _repr_html_(self) -> str:
        from mmdb.report.notebook import html_or_error, run_html

        return html_or_error(lambda: run_html(self.database.connection, self.name))

    def leaderboard(self) -> list[dict[str, Any]]:
        """Return the candidates, best first, with their configurations as dictionaries."""
        rows = self.database.connection.rows(_Q.leaderboard, run=self.name)
        return [dict(row) | {"config": json.loads(row["config"])} for row in rows]
