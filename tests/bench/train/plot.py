"""Line plots as SVG text, side by side; no package draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

PANEL_W, PANEL_H = 420, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 44, 44
COLOURS = ("#1b6ca8", "#111111", "#d1495b", "#2e8b57")
#: Dashes tell curves apart that lie on each other.
DASHES = ("", "2 5", "8 4", "1 3")
TICKS = 5

Curves = Mapping[str, Sequence[float]]


def line_plots(panels: Mapping[str, Curves], x_label: str, y_label: str) -> str:
    """Return an SVG picture with a panel for each set of curves.

    Args:
        panels: title -> name -> values at x = 1, 2, ...; every y axis begins at 0.
    """
    width, height = PANEL_W * max(len(panels), 1), PANEL_H
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">'
    )
    parts = [head, f'<rect width="{width}" height="{height}" fill="white"/>']
    for number, (title, curves) in enumerate(panels.items()):
        parts.append(f'<g transform="translate({number * PANEL_W} 0)">')
        parts += _panel(title, curves, x_label, y_label)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _panel(title: str, curves: Curves, x_label: str, y_label: str) -> list[str]:
    count = max((len(curve) for curve in curves.values()), default=1)
    top = max((value for curve in curves.values() for value in curve), default=1.0) or 1.0
    parts = [_text(PANEL_W / 2, 18, title, weight="bold")]
    for k in range(TICKS + 1):
        y = _y(top * k / TICKS, top)
        parts.append(_line((LEFT, y), (PANEL_W - RIGHT, y), "#dddddd"))
        parts.append(_text(LEFT - 6, y + 4, f"{top * k / TICKS:.3g}", anchor="end"))
    for k in range(1, count + 1):
        if count <= 12 or k % (count // 10) == 0:
            parts.append(_text(_x(k, count), PANEL_H - BOTTOM + 16, str(k)))
    parts.append(_text(PANEL_W / 2, PANEL_H - 8, x_label))
    parts.append(_text(LEFT, TOP - 10, y_label, anchor="start"))
    for number, (name, curve) in enumerate(curves.items()):
        parts += _curve(number, name, [(_x(k, count), _y(v, top)) for k, v in enumerate(curve, 1)])
    return parts


def _curve(number: int, name: str, points: Sequence[tuple[float, float]]) -> list[str]:
    colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
    style = f'stroke="{colour}" stroke-width="2"' + (f' stroke-dasharray="{dash}"' if dash else "")
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    y = TOP + 8 + 16 * number
    x = PANEL_W - RIGHT - 130
    return [
        f'<polyline points="{path}" fill="none" {style}/>',
        f'<line x1="{x}" y1="{y}" x2="{x + 24}" y2="{y}" {style}/>',
        _text(x + 30, y + 4, name, anchor="start"),
    ]


def _x(k: int, count: int) -> float:
    span = PANEL_W - LEFT - RIGHT
    return LEFT + span * (k - 1) / max(count - 1, 1)


def _y(value: float, top: float) -> float:
    return PANEL_H - BOTTOM - (PANEL_H - TOP - BOTTOM) * value / top


def _line(start: tuple[float, float], end: tuple[float, float], colour: str) -> str:
    (x1, y1), (x2, y2) = start, end
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "middle", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">'
        f"{escape(text)}</text>"
    )
