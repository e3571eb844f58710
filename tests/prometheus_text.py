"""Prometheus' text format, read by the rules of its page: what mmdb prints must come through."""

from __future__ import annotations

import re
from collections.abc import Iterator

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)"
    r'(?:\{(?P<label>[a-zA-Z_]\w*)="(?P<value>(?:[^"\\\n]|\\\\|\\"|\\n)*)"\})? '
    r"(?P<number>NaN|[+-]Inf|[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)"
)

Samples = dict[tuple[str, str], float]  # by name and value of the label


def parse(text: str) -> tuple[dict[str, str], Samples]:
    """Return the types by name, and the samples.

    Raises:
        AssertionError: it is no such text.
    """
    assert text.endswith("\n")
    types: dict[str, str] = {}
    found: Samples = {}
    for name, kind, line in _lines(text):
        if kind is not None:
            assert name not in types, f"two families {name}"
            types[name] = kind
            continue
        match = _SAMPLE.fullmatch(line)
        assert match, line
        assert list(types)[-1] == match["name"], f"{line} is not below its family"
        key = match["name"], match["value"] or ""
        assert key not in found, line
        found[key] = float(match["number"])
    return types, found


def _lines(text: str) -> Iterator[tuple[str, str | None, str]]:
    """Yield the name and type of each TYPE line, and the samples; HELP stands right before TYPE."""
    helped = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            helped = line.split(" ")[2]
            assert _NAME.fullmatch(helped), line
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == helped and kind in ("gauge", "counter"), line
            yield name, kind, line
        else:
            yield "", None, line
