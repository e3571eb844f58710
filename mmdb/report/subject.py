"""What a report is of: a run or a model, by its name."""

from __future__ import annotations

from typing import Literal, get_args

from mmdb.db.connection import Connection
from mmdb.errors import InvalidOption, ModelNotFound, NotFound, RunNotFound
from mmdb.messages import show
from mmdb.report.model.report import model_report
from mmdb.report.parts import Report
from mmdb.report.run.report import run_report

Kind = Literal["run", "model"]


def make_report(connection: Connection, name: str, kind: str | None = None) -> Report:
    """Return the report of a run or a model.

    Args:
        name: of a run, or else of a model; one with an `@` is a model's.
        kind: where a run and a model have the same name.
    Raises:
        RunNotFound, ModelNotFound, InvalidOption: there is no such kind.
    """
    if kind not in (None, *get_args(Kind)):
        raise InvalidOption(f"There are no reports of {show(kind)}.", hint="Kinds: run, model.")
    if kind == "model" or (kind is None and "@" in name):
        return model_report(connection, name)
    try:
        return run_report(connection, name)
    except RunNotFound:
        if kind == "run":
            raise
    try:
        return model_report(connection, name)
    except ModelNotFound:
        raise NotFound(
            f"There is no run or model named {show(name)}.",
            hint="SELECT run FROM mmdb.run_progress lists the runs, "
            "SELECT model, version FROM mmdb.model_overview the models.",
        ) from None
