"""Makes the report of a run or a model by its name, and writes reports and plans to files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, cast, get_args

from mmdb.db.connection import Connection
from mmdb.errors import InvalidOption, ModelNotFound, NotFound, RunNotFound
from mmdb.messages import show
from mmdb.report.lineage_graph import LineageGraph
from mmdb.report.page import page
from mmdb.report.parts import LIGHT, Chart, ReportContent, Rows, Section, config
from mmdb.report.picture import png, report_picture, stack, svg
from mmdb.report.plan_charts import compared_phases, planned_phases, scaling
from mmdb.report.subject_reports import model_report, run_report
from mmdb.store.files.atomic import replacing

Subject = Literal["run", "model"]


def make_report(connection: Connection, name: str, kind: str | None = None) -> ReportContent:
    """Return the report of a run or a model.

    Args:
        name: of a run, or else of a model; one with an `@` is a model's.
        kind: where a run and a model have the same name.
    Raises:
        RunNotFound, ModelNotFound, InvalidOption: there is no such kind.
    """
    if kind not in (None, *get_args(Subject)):
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


def report_json(report: ReportContent) -> bytes:
    """Return the facts and, by section and table, the rows; what is no number is null."""
    whole = {
        report.kind: report.name,
        "made": report.made,
        "facts": {fact.key: fact.value for fact in report.facts},
        "sections": {section.key: _section(section) for section in report.sections},
    }
    text = json.dumps(_plain(whole), ensure_ascii=False, allow_nan=False, indent=1, default=str)
    return (text + "\n").encode()


def _section(section: Section) -> dict[str, Any]:
    found: dict[str, Any] = {"texts": section.texts, "warnings": section.warnings}
    for table in section.tables:  # one that is folded goes on where the other ends
        hidden = {table.swatch}
        rows = [{k: v for k, v in row.items() if k not in hidden} for row in table.rows]
        found.setdefault(table.key, []).extend(rows)
    return found if section.lineage is None else found | _graph(section.lineage.graph)


def _graph(graph: LineageGraph) -> dict[str, Any]:
    nodes = [
        {"entity": node.key, "kind": node.kind, "name": node.name, "members": node.members}
        for node in graph.nodes
    ]
    edges = [dict(zip(("parent", "child", "via"), edge, strict=True)) for edge in graph.edges]
    return {"nodes": nodes, "edges": edges}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


Format = Literal["html", "json", "png"]
_WRITERS: dict[str, Callable[[ReportContent], bytes]] = {
    "html": page,
    "json": report_json,
    "png": report_picture,
}
_PICTURES = {".svg": svg, ".png": png}


def format_of(file: str | Path, given: str | None = None) -> Format:
    """Return the format of a report's file, by its name unless one is given.

    Raises:
        InvalidOption: there is no such format.
    """
    name = Path(file).suffix.removeprefix(".").lower() if given is None else given
    name = {"htm": "html", "": "html"}.get(name, name)
    if name not in get_args(Format):
        raise InvalidOption(
            f"A report cannot be written as {show(name)}.",
            hint="Formats are html, json and png, of the file's name or in `format`.",
        )
    return cast(Format, name)


def write_report(report: ReportContent, file: str | Path, given: str | None = None) -> int:
    """Write a report, over one that is there; return its bytes.

    Raises:
        InvalidOption, FileNotWritten, FileExists: it is a folder.
        EngineError: vl-convert is not installed.
    """
    return _write(Path(file), _WRITERS[format_of(file, given)](report))


def plot_plan(run: str, rows: Rows, file: str | Path) -> int:
    """Draw a plan: time against workers, phases and, once trained, what it took; return the bytes.

    Args:
        rows: of explain_train.
        file: `.svg` or `.png`; what is there is overwritten.
    Raises:
        InvalidOption: another kind of file, or nothing to draw.
        FileNotWritten, FileExists: it is a folder.
        EngineError: vl-convert is not installed.
    """
    draw = _PICTURES.get(Path(file).suffix.lower())
    if draw is None:
        raise InvalidOption(
            f"A plan cannot be drawn to {show(str(file))}.",
            hint="Name a file that ends in .svg or .png.",
        )
    charts = plan_charts(rows)
    if not charts:
        raise InvalidOption(
            f"No way of training {run} is possible, so there is nothing to draw.",
            hint="why_not says what is in the way.",
        )
    marks = (("simulated", "simulated"), ("assumed", "costs are assumed"))
    remark = ", ".join(text for key, text in marks if any(row[key] for row in rows))
    spec = stack(f"Plan of run {run}", remark, charts)
    return _write(Path(file), draw(spec, config(LIGHT)))


def plan_charts(rows: Rows) -> list[Chart]:
    """Return the charts of a plan, the last of them once the run is trained."""
    ways = [row for row in rows if row["rank"] is not None]
    took = next((row for row in ways if row.get("actual_s") is not None), None)
    actual = None if took is None else (took["workers"], took["actual_s"])
    charts = [scaling(ways, actual), planned_phases(ways)]
    if took is not None:
        charts.append(compared_phases(took))
    return [chart for chart in charts if chart is not None]


def _write(file: Path, content: bytes) -> int:
    with replacing(file, overwrite=True) as target:
        target.write(content)
    return len(content)
