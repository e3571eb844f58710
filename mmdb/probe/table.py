"""A comparison as a table of text: a line for each layer, runs of layers told in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from mmdb.probe.compare import Comparison, LayerComparison, Magnitude

#: Column -> what it shows, in the order in which things happen.
COLUMNS: dict[str, tuple[str, ...]] = {
    "w": ("parameter", "buffer"),
    "in": ("input",),
    "out": ("output", "loss"),
    "∂out": ("grad_output",),
    "∂w": ("grad_parameter",),
    "∂in": ("grad_input",),
    "new": ("parameter_after", "buffer_after"),
}
LEGEND = "= same bits, ≠ not; w weights and buffers, ∂ gradient of, new: after the step"
_MARKS = {True: "=", False: "≠", None: " "}
_FORWARD = {"parameter", "buffer", "input", "output", "loss"}
#: Layers in a row that are shown one by one all the same.
_FEW = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """A layer, or in place of several layers the `text` that stands for them."""

    layer: str = ""
    kind: str = ""
    marks: tuple[bool | None, ...] = ()  # by column: whether equal; None if nothing was compared
    size: str = ""  # largest known difference
    first: bool = False  # whether the first difference is here
    text: str = ""


def table_lines(comparison: Comparison, *, width: int, most: int = 12) -> list[tuple[str, bool]]:
    """Return the lines of a comparison's table, and of each whether to emphasise it.

    Args:
        width: of the terminal. A table that is too wide goes without the classes; a path that is
            still too long loses its beginning.
        most: layers with differences to show one by one, in each pass.
    """
    shown = columns(comparison)
    rows = [TableRow(layer="layer", kind="class"), *table_rows(comparison, most=most)]
    layer, kind, size = (
        max(len(getattr(row, name)) for row in rows) for name in ("layer", "kind", "size")
    )
    taken = 2 + sum(2 + len(name) for name in shown) + 2 + max(size, len("largest"))
    if layer + 2 + kind + taken > width:
        kind = 0
    layer = min(layer, max(8, width - taken - (2 + kind if kind else 0)))
    heads = [f"  {'layer':{layer}}", *([f"{'class':{kind}}"] if kind else []), *shown, "largest"]
    lines = [("  ".join(heads), False)]
    for row in rows[1:]:
        fitted = row.layer if len(row.layer) <= layer else "…" + row.layer[1 - layer :]
        cells = [f"{'→' if row.first else ' '} {fitted:{layer}}"]
        cells += [f"{row.kind:{kind}}"] if kind else []
        cells += [_MARKS[m].center(len(name)) for m, name in zip(row.marks, shown, strict=False)]
        lines.append((f"  {row.text}" if row.text else "  ".join([*cells, row.size]), row.first))
    return [(line.rstrip(), first) for line, first in lines]


def columns(comparison: Comparison) -> list[str]:
    """Return the columns that have something to show."""
    compared = {what for layer in comparison.layers for what in layer.compared}
    return [name for name, whats in COLUMNS.items() if compared & set(whats)]


def table_rows(comparison: Comparison, *, most: int = 12) -> list[TableRow]:
    """Return the rows of a comparison's table, each pass with the module itself at its end."""
    rows: list[TableRow] = []
    shown = columns(comparison)
    passes = dict.fromkeys(layer.number for layer in comparison.layers)
    for number in passes:
        if len(passes) > 1:
            rows.append(TableRow(text=f"pass {number}"))
        layers = [layer for layer in comparison.layers if layer.number == number]
        inner = [layer for layer in layers if layer.path]
        picked = _picked(inner, most, comparison)
        for is_picked, group in groupby(range(len(inner)), key=picked.__contains__):
            run = [inner[position] for position in group]
            if is_picked or len(run) <= _FEW:
                rows += [_row(layer, shown, comparison) for layer in run]
            else:
                rows.append(TableRow(text=_told(run)))
        rows += [_row(layer, shown, comparison) for layer in layers if not layer.path]
    return rows


def _picked(layers: Sequence[LayerComparison], most: int, comparison: Comparison) -> set[int]:
    """Return which layers to show: all that differ or, if they are many, those around the first."""
    different = {position for position, layer in enumerate(layers) if layer.differences}
    if len(different) <= most:
        return different
    for position in different:
        if comparison.first in layers[position].differences:
            start = max(0, position - _FEW)
            return set(range(start, min(start + most, len(layers))))
    return set()


def _told(layers: Sequence[LayerComparison]) -> str:
    """Return a line that stands for several layers."""
    unlike = [{d.what for d in layer.differences} for layer in layers if layer.differences]
    ends = f"{layers[0].layer} to {layers[-1].layer}"
    if not unlike:
        return f"… {len(layers)} equal: {ends}"
    where = "" if any(whats & _FORWARD for whats in unlike) else " only after the forward pass"
    count = len(layers) if len(unlike) == len(layers) else f"{len(unlike)} of {len(layers)}"
    return f"… {count} differ{where}: {ends}"


def _row(layer: LayerComparison, shown: Sequence[str], comparison: Comparison) -> TableRow:
    unlike = {difference.what for difference in layer.differences}
    return TableRow(
        layer=layer.layer,
        kind=layer.kind,
        marks=tuple(_mark(COLUMNS[name], layer.compared, unlike) for name in shown),
        size=_size([d.magnitude for d in layer.differences]),
        first=bool(layer.differences) and comparison.first in layer.differences,
    )


def _mark(whats: Sequence[str], compared: Sequence[str], unlike: set[str]) -> bool | None:
    if not set(whats) & set(compared):
        return None
    return not set(whats) & unlike


def _size(magnitudes: Sequence[Magnitude | None]) -> str:
    known = [magnitude for magnitude in magnitudes if magnitude is not None]
    if not known:
        return ""
    largest = max(known, key=lambda magnitude: magnitude.max_abs)
    if largest.exact:
        return f"{largest.max_abs:.2g}"
    return f"≥ {largest.max_abs:.2g}" if largest.max_abs else "?"
