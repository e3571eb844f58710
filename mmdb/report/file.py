"""Reports and pictures of plans, written to files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, cast, get_args

from mmdb.errors import InvalidOption
from mmdb.messages import show
from mmdb.report import vega
from mmdb.report.charts.phases import compared_phases, planned_phases
from mmdb.report.charts.scaling import scaling
from mmdb.report.formats.page import page
from mmdb.report.formats.picture import report_picture, stack
from mmdb.report.formats.values import values
from mmdb.report.parts import Chart, Report, Rows
from mmdb.report.theme import LIGHT, config
from mmdb.store.files.atomic import replacing

Format = Literal["html", "json", "png"]
_WRITERS: dict[str, Callable[[Report], bytes]] = {
    "html": page,
    "json": values,
    "png": report_picture,
}
_PICTURES = {".svg": vega.svg, ".png": vega.png}


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


def write_report(report: Report, file: str | Path, given: str | None = None) -> int:
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
    spec = stack(f"Plan of run {run}", _remark(rows), charts)
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


def _remark(rows: Rows) -> str:
    marks = (("simulated", "simulated"), ("assumed", "costs are assumed"))
    return ", ".join(text for key, text in marks if any(row[key] for row in rows))


def _write(file: Path, content: bytes) -> int:
    with replacing(file, overwrite=True) as target:
        target.write(content)
    return len(content)
