"""A report as one page of HTML that needs nothing else: no network, no other file.

The page's own policy forbids it to ask for anything, and names the scripts that may run by their
hashes. Whatever comes from data is escaped, or is JSON that no browser takes for markup.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

from mmdb.report import vega
from mmdb.report.formats import markup
from mmdb.report.graph.drawing import style
from mmdb.report.parts import Report
from mmdb.report.texts import time_text
from mmdb.report.theme import THEMES, Theme, config

_HERE = Path(__file__).parent
#: A page's own scripts, in the order in which they run; Vega comes before them.
SCRIPTS = ("page.js", "graph.js")
_NO_SCRIPT = "The charts need JavaScript; the tables have all of their numbers."


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What surrounds a report: in a file nothing, in a browser that is served links and scripts."""

    above: str = ""  # elements before the heading
    scripts: tuple[str, ...] = ()  # addresses; within the page where there are none
    page_of: markup.PageOf = markup.nowhere
    state: str = ""  # an address that says whether the page is out of date
    tag: str = ""  # what it says as long as it is not


def page(report: Report, frame: Frame | None = None) -> bytes:
    """Return the page.

    Raises:
        EngineError: vl-convert is not installed.
    """
    frame = frame or Frame()
    charts = [chart.spec for section in report.sections for chart in section.charts]
    configs = {
        name: {"wide": config(theme), "narrow": config(theme, narrow=True)}
        for name, theme in THEMES.items()
    }
    links = "".join(f'<a href="#{s.key}">{escape(s.title)}</a>' for s in report.sections)
    few = " hidden" if len(report.sections) < 2 else ""
    made = f"Made by mmdb on {time_text(report.made)}."
    policy, scripts = _scripts(frame, needs_vega=bool(charts))
    state = ""
    if frame.state:
        state = f' data-state="{escape(frame.state)}" data-tag="{escape(frame.tag)}"'
    icon = '<link rel="icon" href="data:,">\n' if frame.scripts else ""  # else it is asked for
    text = f"""<!DOCTYPE html>
<html lang="en"{state}>
<head>
<meta charset="utf-8">
{policy}<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(report.title)}</title>
{icon}<style>
{stylesheet()}</style>
</head>
<body>
<a class="skip" href="#{report.sections[0].key if report.sections else "end"}">To the content</a>
<header>
{frame.above}<h1>{escape(report.title)}</h1>
<button id="theme" type="button" hidden></button>
<div id="facts">{markup.facts(report.facts, frame.page_of)}</div>
<nav id="sections" aria-label="Sections"{few}>{links}</nav>
</header>
<main>
<noscript><p class="warning">{_NO_SCRIPT}</p></noscript>
{"".join(markup.section(section, frame.page_of) for section in report.sections)}</main>
<footer id="end">{escape(made)}</footer>
<script type="application/json" id="charts">{_data({"configs": configs, "charts": charts})}</script>
{scripts}
</body>
</html>
"""
    return text.encode()


def stylesheet() -> str:
    """Return the rules of all pages, for light and for dark."""
    return f"{_variables()}\n{style()}\n{(_HERE / 'page.css').read_text()}"


def script(name: str) -> str:
    """Return one of SCRIPTS."""
    return (_HERE / name).read_text()


def _scripts(frame: Frame, *, needs_vega: bool) -> tuple[str, str]:
    """Return the policy that a page without a server declares, and its scripts."""
    if frame.scripts:
        return "", "\n".join(f'<script src="{escape(one)}"></script>' for one in frame.scripts)
    texts = [vega.libraries()] if needs_vega else []
    texts += [script(name) for name in SCRIPTS]
    hashes = " ".join(f"'sha256-{_hash(f'{chr(10)}{text}')}'" for text in texts)
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    elements = "\n".join(f"<script>\n{text}</script>" for text in texts)
    return f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n', elements


def _hash(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


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
