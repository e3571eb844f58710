"""The candidates, best first."""

from __future__ import annotations

from typing import Any

from mmdb.messages import seconds_text
from mmdb.report.parts import Column, Section, Table
from mmdb.report.run.reading import RunFacts

#: Rows that are shown at once; the others when they are asked for.
SHOWN = 25


def section(facts: RunFacts) -> Section | None:
    """Return the section, or None where the run has no candidates."""
    if not facts.board:
        return None
    varied = facts.varied  # of all candidates: not once for each
    places = {candidate: place for place, candidate in enumerate(facts.leaders)}
    rows = [
        {
            "rank": row["rank"],
            "candidate": row["candidate_id"],
            **{f"config.{key}": row["config"].get(key) for key in varied},
            **{
                key: row[key]
                for key in ("objective", "validation_loss", "training_loss", "status", "parent")
            },
            "epoch": None if row["best_epoch"] is None else row["best_epoch"] + 1,
            "epochs": row["epochs"],
            "total_s": row["total_s"],
            "error": row["error"],
            "config": row["config"],
            "color": places.get(row["candidate_id"]),
        }
        for row in facts.board
    ]
    metric = facts.run["metric"] or "value"
    validated = any(row["objective"] is not None for row in rows)
    given = [Column(key=f"config.{key}", label=key.removeprefix("architecture.")) for key in varied]
    wanted = (
        Column(key="objective", label=metric, right=True),
        Column(key="validation_loss", label="validation loss", right=True),
        *([] if validated else [Column(key="training_loss", label="training loss", right=True)]),
        Column(key="epoch", label="best epoch", right=True),
        Column(key="epochs", label="epochs", right=True),
        Column(key="total_s", label="trained for", show=seconds_text, right=True),
        Column(key="parent", label="began with"),
        Column(key="status", label="status"),
        Column(key="error", label="error"),
    )
    told = tuple(column for column in wanted if _tells(column.key, [r[column.key] for r in rows]))
    first = (
        Column(key="rank", label="rank", right=True),
        Column(key="candidate", label="candidate"),
    )
    columns = (*first, *given, *told)
    shown = Table(
        key="candidates", title="Candidates", columns=columns, rows=rows[:SHOWN], swatch="color"
    )
    rest = Table(
        key="candidates", title=f"{len(rows) - SHOWN:,} more candidates", columns=columns,
        rows=rows[SHOWN:], folded=True, swatch="color",
    )  # fmt: skip
    tables = (shown, rest) if len(rows) > SHOWN else (shown,)
    return Section(key="leaderboard", title="Leaderboard", tables=tables)


def _tells(key: str, values: list[Any]) -> bool:
    """Return whether a column says something; one that is alike in all rows may not."""
    if key == "epochs":
        return len(set(values)) > 1
    if key == "status":
        return set(values) != {"trained"}
    return any(value is not None for value in values)
