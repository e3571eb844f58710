"""What a report reads of a run: through the views alone, all of it as of one moment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmdb.data.names import found_run
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.report.graph.folding import Graph
from mmdb.report.lineage import Part, lineage_graph
from mmdb.report.parts import Rows
from mmdb.report.texts import short, value_text
from mmdb.report.theme import LEADERS

_Q = load("report")
#: Models of a run whose lineage is drawn, the last of them.
DRAWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Rows of the views, those of the run alone."""

    run: Row
    models: Rows
    board: Rows  # the best candidate first; configurations as dictionaries
    epochs: Rows
    hops: Rows  # by worker, in order
    plan: Rows  # what was said before the run began, or last; the best way first
    outcome: Row | None
    lineage: Graph | None = None
    features: Rows = ()  # of frozen layers

    @property
    def varied(self) -> list[str]:
        """Hyper-parameters that differ between candidates."""
        keys = dict.fromkeys(key for row in self.board for key in row["config"])
        return [k for k in keys if len({_frozen(row["config"].get(k)) for row in self.board}) > 1]

    @property
    def leaders(self) -> dict[int, str]:
        """Names of the best candidates, which have a colour each, in all charts the same."""
        varied = self.varied
        found = {}
        for row in self.board[:LEADERS]:
            values = {k.removeprefix("architecture."): row["config"].get(k) for k in varied}
            given = value_text({k: v for k, v in values.items() if v is not None})
            found[row["candidate_id"]] = short(f"{row['candidate_id']}  {given}".strip())
        return found


def read_run(connection: Connection, name: str) -> RunFacts:
    """Return what the views say of a run.

    Raises:
        RunNotFound
    """
    with connection.snapshot():
        found = connection.rows(_Q.find_run, run=name)
        found_run(found, name)
        outcome = next(iter(connection.rows(_Q.find_outcome, run=name)), None)
        plan_id = _told_most(connection.rows(_Q.find_plans, run=name), found[0]["started"])
        board = connection.rows(_Q.find_board, run=name)
        models = connection.rows(_Q.find_models, run=name)
        return RunFacts(
            run=found[0],
            models=models,
            board=[{**row, "config": json.loads(row["config"])} for row in board],
            epochs=connection.rows(_Q.find_epochs, run=name),
            hops=connection.rows(_Q.find_hops, run=name),
            plan=[]
            if plan_id is None
            else connection.rows(_Q.find_plan, run=name, plan_id=plan_id),
            outcome=outcome,
            lineage=_lineage(connection, found[0], models, board),
            features=connection.rows(_Q.find_features, run=name),
        )


def _lineage(connection: Connection, run: Row, models: Rows, board: Rows) -> Graph | None:
    """Return where the run's models came from and what came of them; of its best state where no
    model was saved.
    """
    subject = f"run:{run['run']}"
    parts = [Part(subject, "up"), Part(subject, "down", 1)]
    for row in models[:DRAWN]:
        model = f"model:{row['model']}@{row['version']}"
        parts += [Part(model, "up"), Part(model, "down")]
    best = next((row for row in board if row["best_epoch"] is not None), None)
    if not models and best is not None:
        parts.append(Part(f"checkpoint:{best['candidate_id']}/{best['best_epoch']}", "up"))
    return lineage_graph(connection, subject, parts)


def _told_most(plans: Rows, started: float | None) -> int | None:
    """Return the plan to be shown: before training the last one; then, of those made before it
    began and for this machine, one with the most ways. What train itself asks for is narrow.
    """
    before = [p for p in plans if started is not None and p["planned"] <= started]
    shown = [p for p in before if not p["simulated"]] or plans[:1]
    return max(shown, key=lambda p: int(p["ways"]))["plan_id"] if shown else None


def _frozen(value: Any) -> str:
    return json.dumps(value, sort_keys=True) if isinstance(value, Mapping | list) else repr(value)
