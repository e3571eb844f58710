"""The versions of a model: their metrics, and which of them its aliases were on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mmdb.lineage.entity import join
from mmdb.messages import bytes_text, seconds_text
from mmdb.report.charts.versions import versions_chart
from mmdb.report.model.reading import ModelFacts
from mmdb.report.parts import Column, Section, Table
from mmdb.report.texts import time_text

#: Metrics that have a column.
METRICS = 6


def section(facts: ModelFacts) -> Section | None:
    """Return the section."""
    charts = [versions_chart(facts.metrics, facts.model["version"])]
    return Section(
        key="versions",
        title="Versions",
        charts=tuple(chart for chart in charts if chart is not None),
        tables=tuple(_tables(facts)),
    )


def aliases_of(facts: ModelFacts) -> list[str]:
    """Return the aliases that are on the model now."""
    now = {row["alias"]: row["version"] for row in facts.aliases}
    return [alias for alias, version in now.items() if version == facts.model["version"]]


def _tables(facts: ModelFacts) -> Iterator[Table]:
    name = facts.model["model"]
    metrics = list(dict.fromkeys(_named(row) for row in facts.metrics))[:METRICS]
    values = {(row["version"], _named(row)): row["value"] for row in facts.metrics}
    rows: list[dict[str, Any]] = [
        {
            **row,
            "entity": f"model:{name}@{row['version']}",
            "parent_entity": None if row["parent"] is None else f"model:{row['parent']}",
            "run_entity": None if row["run"] is None else f"run:{row['run']}",
            **{metric: values.get((row["version"], metric)) for metric in metrics},
        }
        for row in reversed(facts.versions)
    ]
    columns = (
        Column(key="version", label="version", right=True, entity="entity"),
        *(Column(key=metric, label=metric, right=True) for metric in metrics),
        Column(key="approach", label="kept as"),
        Column(key="parent", label="parent", entity="parent_entity"),
        Column(key="run", label="run", entity="run_entity"),
        Column(key="byte_count", label="size", show=bytes_text, right=True),
        Column(key="stored_bytes", label="stored for it", show=bytes_text, right=True),
        Column(key="created", label="saved", show=time_text),
        Column(key="dropped", label="dropped", show=time_text),
    )
    told = tuple(c for c in columns if any(row[c.key] is not None for row in rows))
    yield Table(key="versions", title="Versions", columns=told, rows=rows)
    if facts.aliases:
        moved = [dict(row) for row in reversed(facts.aliases)]
        yield Table(
            key="aliases", title="Aliases over time", rows=moved, folded=True,
            columns=(
                Column(key="happened", label="when", show=time_text),
                Column(key="alias", label="alias"),
                Column(key="version", label="put on version", show=_version),
                Column(key="author", label="by"),
            ),
        )  # fmt: skip
    if facts.notes:
        yield Table(
            key="notes", title="Notes", rows=facts.notes,
            columns=(
                Column(key="created", label="when", show=time_text),
                Column(key="note", label="note"),
                Column(key="author", label="by"),
            ),
        )  # fmt: skip


def predictions_section(facts: ModelFacts) -> Section | None:
    """Return the tables that the model wrote predictions to, or None where there are none."""
    if not facts.predictions:
        return None
    rows: list[dict[str, Any]] = []
    for row in facts.predictions:
        parts = (row["schema_name"], row["table_name"])
        entity = join("table", tuple(part for part in parts if part))
        rows.append({**row, "table": entity.partition(":")[2], "entity": entity})
    columns = (
        Column(key="table", label="table", entity="entity"),
        Column(key="row_count", label="rows", right=True),
        Column(key="seconds", label="took", show=seconds_text, right=True),
        Column(key="predicted", label="when", show=time_text),
        Column(key="author", label="by"),
    )
    table = Table(key="predictions", title="Predictions", columns=columns, rows=rows)
    return Section(key="predictions", title="Predictions", tables=(table,))


def _named(row: Any) -> str:
    return f"{row['metric']} on {row['dataset']}" if row["dataset"] else str(row["metric"])


def _version(value: int | None) -> str:
    return "none" if value is None else str(value)
