"""A report as one page of HTML that needs nothing else: no network, no other file.

The page's own policy forbids it to ask for anything. Whatever comes from data is escaped, or is
JSON that no browser takes for markup.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from mmdb.report import vega
from mmdb.report.parts import Chart, Column, Report, Section, Table
from mmdb.report.texts import time_text
from mmdb.report.theme import THEMES, Theme, config

_HERE = Path(__file__).parent
#: Characters of a cell that goes over several lines.
LONG = 40
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'"
)

_NO_SCRIPT = "The charts need JavaScript; the tables have all of their numbers."


def page(report: Report) -> bytes:
    """Return the page.

    Raises:
        EngineError: vl-convert is not installed.
    """
    charts = [chart.spec for section in report.sections for chart in section.charts]
    configs = {
        name: {"wide": config(theme), "narrow": config(theme, narrow=True)}
        for name, theme in THEMES.items()
    }
    links = "".join(f'<a href="#{s.key}">{escape(s.title)}</a>' for s in report.sections)
    made = f"Made by mmdb on {time_text(report.made)}."
    text = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(report.title)}</title>
<style>
{_variables()}
{(_HERE / "page.css").read_text()}</style>
</head>
<body>
<a class="skip" href="#{report.sections[0].key if report.sections else "end"}">To the content</a>
<header>
<h1>{escape(report.title)}</h1>
<button id="theme" type="button" hidden></button>
{_facts(report)}
<nav aria-label="Sections">{links}</nav>
</header>
<main>
<noscript><p class="warning">{_NO_SCRIPT}</p></noscript>
{"".join(_section(section) for section in report.sections)}</main>
<footer id="end">{escape(made)}</footer>
<script type="application/json" id="charts">{_data({"configs": configs, "charts": charts})}</script>
<script>
{vega.libraries()}
</script>
<script>
{(_HERE / "page.js").read_text()}</script>
</body>
</html>
"""
    return text.encode()


def _data(value: Any) -> str:
    """Return JSON that may stand within a script element, whatever its texts hold."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _variables() -> str:
    """Return the themes as CSS: what the system asks for, unless the page is told otherwise."""
    light, dark = (_colors(theme) for theme in THEMES.values())
    return (
        f":root {{ color-scheme: light; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ color-scheme: dark; {dark} }} }}\n"
        f':root[data-theme="light"] {{ color-scheme: light; {light} }}\n'
        f':root[data-theme="dark"] {{ color-scheme: dark; {dark} }}'
    )


def _colors(theme: Theme) -> str:
    names = ("ground", "text", "quiet", "line")
    plain = [f"--{name}: {getattr(theme, name)};" for name in names]
    return " ".join([*plain, *(f"--c{k}: {c};" for k, c in enumerate(theme.category))])


def _facts(report: Report) -> str:
    items = "".join(
        f"<div><dt>{escape(fact.label)}</dt><dd>{escape(fact.text)}</dd></div>"
        for fact in report.facts
    )
    return f"<dl>{items}</dl>"


def _section(section: Section) -> str:
    parts = [f'<section id="{section.key}" tabindex="-1">\n<h2>{escape(section.title)}</h2>\n']
    parts += [f"<p>{escape(text)}</p>\n" for text in section.texts]
    parts += [f'<p class="warning">{escape(text)}</p>\n' for text in section.warnings]
    parts += [_chart(chart) for chart in section.charts]
    parts += [_table(table) for table in section.tables]
    return "".join([*parts, "</section>\n"])


def _chart(chart: Chart) -> str:
    note = f'<p class="note">{escape(chart.note)}</p>' if chart.note else ""
    return (
        f"<figure><figcaption>{escape(chart.title)}</figcaption>{note}"
        f'<div class="chart" role="img" aria-label="{escape(chart.alt)}"></div></figure>\n'
    )


def _table(table: Table) -> str:
    head = "".join(f"<th scope=col{_side(c)}>{escape(c.label)}</th>" for c in table.columns)
    body = "\n".join(_row(table, row) for row in table.rows)
    shown = (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(table.title)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )
    if table.folded:
        return f"<details><summary>{escape(table.title)}</summary>{shown}</details>\n"
    return shown + "\n"


def _row(table: Table, row: Any) -> str:
    color = row.get(table.swatch) if table.swatch else None
    cells = []
    for place, column in enumerate(table.columns):
        text = column.show(row[column.key])
        kind = " class=long" if len(text) > LONG else _side(column)
        mark = ""
        if place == 1 and color is not None:
            mark = f'<i class="swatch" style="background:var(--c{int(color)})"></i>'
        cells.append(f"<td{kind}>{mark}{escape(text)}")
    return f"<tr>{''.join(cells)}"


def _side(column: Column) -> str:
    return " class=n" if column.right else ""
