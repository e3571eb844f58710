"""The reports of a run and of a model: their facts, and the sections there is something for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from mmdb.db.connection import Connection
from mmdb.lineage.entity import join
from mmdb.messages import bytes_text, seconds_text
from mmdb.report import run_sections
from mmdb.report.facts import ModelFacts, RunFacts, lineage_section, read_model, read_run
from mmdb.report.group_charts import groups_section
from mmdb.report.hop_chart import timeline
from mmdb.report.judging_charts import judging_section
from mmdb.report.line_charts import curves_of, learning, tensors_chart, versions_chart
from mmdb.report.parts import (
    Fact,
    ReportContent,
    Section,
    Table,
    TableColumn,
    architecture_text,
    telling,
    time_text,
    value_text,
)
from mmdb.report.run_sections import section_of_outcome, spent, workers_table

#: What a report of a run consists of, in order; each makes nothing where there is nothing to show.
RUN_SECTIONS: tuple[Callable[[RunFacts], Section | None], ...] = (
    run_sections.leaderboard_section,
    run_sections.learning_section,
    run_sections.workers_section,
    run_sections.plan_section,
    lambda facts: section_of_outcome(facts.outcome),
    lambda facts: groups_section(facts.groups),
    run_sections.features_section,
    run_sections.storage_section,
    lambda facts: lineage_section(facts.lineage),
)


def run_report(connection: Connection, name: str) -> ReportContent:
    """Return the report of a run.

    Raises:
        RunNotFound
    """
    return report_of_run(read_run(connection, name), time.time())


def report_of_run(facts: RunFacts, made: float) -> ReportContent:
    """Return the report that facts make."""
    sections = tuple(found for make in RUN_SECTIONS if (found := make(facts)) is not None)
    about = tuple(_run_facts(facts))
    return ReportContent("run", facts.run["run"], made, about, sections)


def _run_facts(facts: RunFacts) -> list[Fact]:
    run = facts.run
    failed = f", {run['failed']} failed" if run["failed"] else ""
    stopped = f", {run['stopped']} stopped" if run["stopped"] else ""
    hops = f"{run['hops_done']:,} of {run['hops_total']:,}"
    counted = f"{run['candidates']:,}{failed}{stopped}"
    best = f"{value_text(run['best_value'])} by candidate {run['best_candidate_id']}"
    begun = run["created"] if run["started"] is None else run["started"]
    label = "created" if run["started"] is None else "begun"
    known = run["started"] is not None and run["ended"] is not None
    spent = run["ended"] - run["started"] if known else None
    names = [f"{m['model']}@{m['version']}" for m in facts.models]
    model = f"model:{names[0]}" if len(names) == 1 else ""
    means = [(name, m["members"]) for name, m in zip(names, facts.models, strict=True)]
    mean = ", ".join(f"{name} of {of} candidates" for name, of in means if of is not None)
    return _known(
        ("status", "status", run["status"], run["status"], ""),
        ("dataset", "dataset", run["dataset"], run["dataset"], f"dataset:{run['dataset']}"),
        ("strategy", "strategy", run["strategy"], run["strategy"].replace("_", " "), ""),
        ("candidates", "candidates", run["candidates"], counted, ""),
        ("epochs", "epochs", run["epochs"], str(run["epochs"]), ""),
        ("hops_done", "hops", run["hops_done"], hops, ""),
        ("best_value", f"best {run['metric'] or 'value'}", run["best_value"], best, ""),
        ("seconds", "hops took", spent, spent is not None and seconds_text(spent), ""),
        (label, label, begun, time_text(begun), ""),
        ("models", "saved as", names, ", ".join(names[:3]), model),
        ("means", "mean", mean or None, mean, ""),
    )


def _known(*wanted: tuple[str, str, Any, Any, str]) -> list[Fact]:
    """Return figures as facts: key, label, value, text and entity; those without value left out."""
    return [
        Fact(key=key, label=label, value=value, text=text, entity=entity)
        for key, label, value, text, entity in wanted
        if value not in (None, [])
    ]


#: Metrics that have a column.
SHOWN_METRICS = 6


def versions_section(facts: ModelFacts) -> Section | None:
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
    metrics = list(dict.fromkeys(_named(row) for row in facts.metrics))[:SHOWN_METRICS]
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
        TableColumn(key="version", label="version", right=True, entity="entity"),
        *(TableColumn(key=metric, label=metric, right=True) for metric in metrics),
        TableColumn(key="approach", label="kept as"),
        TableColumn(key="parent", label="parent", entity="parent_entity"),
        TableColumn(key="run", label="run", entity="run_entity"),
        TableColumn(key="byte_count", label="size", show=bytes_text, right=True),
        TableColumn(key="stored_bytes", label="stored for it", show=bytes_text, right=True),
        TableColumn(key="created", label="saved", show=time_text),
        TableColumn(key="dropped", label="dropped", show=time_text),
    )
    told = telling(columns, rows)
    yield Table(key="versions", title="Versions", columns=told, rows=rows)
    if facts.aliases:
        moved = [dict(row) for row in reversed(facts.aliases)]
        yield Table(
            key="aliases", title="Aliases over time", rows=moved, folded=True,
            columns=(
                TableColumn(key="happened", label="when", show=time_text),
                TableColumn(key="alias", label="alias"),
                TableColumn(key="version", label="put on version", show=_version),
                TableColumn(key="author", label="by"),
            ),
        )  # fmt: skip
    if facts.notes:
        yield Table(
            key="notes", title="Notes", rows=facts.notes,
            columns=(
                TableColumn(key="created", label="when", show=time_text),
                TableColumn(key="note", label="note"),
                TableColumn(key="author", label="by"),
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
        TableColumn(key="table", label="table", entity="entity"),
        TableColumn(key="row_count", label="rows", right=True),
        TableColumn(key="seconds", label="took", show=seconds_text, right=True),
        TableColumn(key="predicted", label="when", show=time_text),
        TableColumn(key="author", label="by"),
    )
    table = Table(key="predictions", title="Predictions", columns=columns, rows=rows)
    return Section(key="predictions", title="Predictions", tables=(table,))


def _named(row: Any) -> str:
    return f"{row['metric']} on {row['dataset']}" if row["dataset"] else str(row["metric"])


def _version(value: int | None) -> str:
    return "none" if value is None else str(value)


def training_section(facts: ModelFacts) -> Section | None:
    """Return the section, or None where the model was not trained by a run."""
    candidate = facts.model["candidate_id"]
    if candidate is None or not facts.hops:
        return None
    names = {candidate: f"candidate {candidate}"}
    metric = next((row["metric"] for row in facts.epochs), None)
    curve = learning(curves_of(facts.epochs, metric), names, 1)
    charts = (curve and replace(curve, note=""), timeline(facts.hops, names))
    warm = [
        f"It began with parameters of {row['parent']}: similarity {row['similarity']:.2f}, "
        f"{row['coverage']:.0%} of its parameters.".replace("%", " %")
        for row in facts.transfers
        if row["similarity"] is not None and row["coverage"] is not None
    ]
    phases = ("compute", "read", "hop", "validation")
    table = workers_table("Its hops by worker", spent(facts.hops), phases)
    return Section(
        key="training",
        title="Training",
        texts=tuple(warm),
        charts=tuple(chart for chart in charts if chart is not None),
        tables=(table,),
    )


#: Tensors of the table that are shown at once.
SHOWN_TENSORS = 25


def tensors_section(facts: ModelFacts) -> Section | None:
    """Return the section, or None where the model's tensors are gone."""
    if not facts.tensors:
        return None
    rows = [
        {
            **{key: row[key] for key in row if key not in ("tensor_id", "shape")},
            "shape": list(row["shape"] or ()),
            "elements": math.prod(row["shape"] or ()),
            "kept": _kept(row),
        }
        for row in facts.tensors
    ]
    columns = (
        TableColumn(key="path", label="tensor"),
        TableColumn(key="kind", label="kind"),
        TableColumn(key="dtype", label="dtype"),
        TableColumn(key="shape", label="shape", show=_shape),
        TableColumn(key="byte_count", label="size", show=bytes_text, right=True),
        TableColumn(key="stored_bytes", label="stored", show=bytes_text, right=True),
        TableColumn(key="kept", label="as"),
        TableColumn(key="mean", label="mean", show=value_text, right=True),
        TableColumn(key="deviation", label="deviation", show=value_text, right=True),
    )
    told = telling(columns, rows)
    table = Table(key="tensors", title="Tensors", columns=told, rows=rows, folded=True)
    return Section(
        key="storage",
        title="Storage",
        texts=(_storage_text(facts),),
        charts=(tensors_chart(rows),),
        tables=table.split(SHOWN_TENSORS, "more tensors"),
    )


def _storage_text(facts: ModelFacts) -> str:
    text = f"{len(facts.tensors):,} tensors of {bytes_text(facts.model['byte_count'] or 0)}."
    row = facts.storage
    if row is None or row["stored_bytes"] is None:
        return text
    text += f" Saving it took {bytes_text(row['stored_bytes'])}."
    if row["shared_bytes"]:
        text += f" {bytes_text(row['shared_bytes'])} were there already: models share them."
    if row["encoded_away_bytes"] > 0:
        text += f" {bytes_text(row['encoded_away_bytes'])} were saved by encoding them."
    return text


def _kept(row: object) -> str:
    assert isinstance(row, dict)
    if row["tied_to"] is not None:
        return f"tied to {row['tied_to']}"
    if row["is_difference"]:
        return "difference to another tensor"
    return f"{row['chunks']:,} chunks" if row["chunks"] else "in its row"


def _shape(shape: list[int]) -> str:
    """Return a shape as people write it.

    >>> _shape([3, 224, 224]), _shape([])
    ('3 by 224 by 224', 'one number')
    """
    return " by ".join(map(str, shape)) or "one number"


#: What a report of a model consists of, in order; each makes nothing where nothing is to be shown.
MODEL_SECTIONS: tuple[Callable[[ModelFacts], Section | None], ...] = (
    lambda facts: lineage_section(facts.lineage),
    versions_section,
    judging_section,
    lambda facts: groups_section(facts.groups),
    predictions_section,
    training_section,
    tensors_section,
    lambda facts: section_of_outcome(facts.outcome),
)


def model_report(connection: Connection, reference: str) -> ReportContent:
    """Return the report of a model's version: `name`, `name@version` or `name@alias`.

    Raises:
        ModelNotFound
    """
    return report_of_model(read_model(connection, reference), time.time())


def report_of_model(facts: ModelFacts, made: float) -> ReportContent:
    """Return the report that facts make."""
    sections = tuple(found for make in MODEL_SECTIONS if (found := make(facts)) is not None)
    name = f"{facts.model['model']}@{facts.model['version']}"
    return ReportContent("model", name, made, tuple(_model_facts(facts)), sections)


def _model_facts(facts: ModelFacts) -> list[Fact]:
    model = facts.model
    run, dataset = model["run"], model["dataset"]
    candidate = model["candidate_id"]
    epoch = "" if model["epoch"] is None else f", epoch {model['epoch'] + 1}"
    came = facts.origin and f"{facts.origin['kind']} of {facts.origin['source']}"
    of = "" if candidate is None else f", candidate {candidate}{epoch}"
    if model["members"] is not None:
        of = f", the mean of {model['members']} candidates"
    return _known(
        ("approach", "kept as", model["approach"], model["approach"], ""),
        ("parent", "parent", model["parent"], model["parent"], f"model:{model['parent']}"),
        ("origin", "came by", facts.origin and facts.origin["source"], came, ""),
        ("dataset", "dataset", dataset, dataset, f"dataset:{dataset}"),
        ("run", "trained by", run, f"run {run}{of}", f"run:{run}"),
        ("architecture", "architecture", model["architecture"],
         architecture_text(model["architecture"] or ""), ""),
        ("parameters", "parameters", model["parameters"], f"{model['parameters'] or 0:,}", ""),
        ("byte_count", "size", model["byte_count"], bytes_text(model["byte_count"] or 0), ""),
        ("stored_bytes", "stored for it", model["stored_bytes"],
         bytes_text(model["stored_bytes"] or 0), ""),
        ("created", "saved", model["created"], time_text(model["created"]), ""),
        ("dropped", "dropped", model["dropped"], time_text(model["dropped"]), ""),
        ("aliases", "aliases", aliases_of(facts), ", ".join(aliases_of(facts)), ""),
        ("tags", "tags", {t["key"]: t["value"] for t in facts.tags} or None,
         ", ".join(f"{t['key']}={value_text(t['value'])}" for t in facts.tags), ""),
    )  # fmt: skip
