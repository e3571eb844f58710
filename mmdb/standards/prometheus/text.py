"""Prometheus' text exposition format, version 0.0.4. Pure.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import groupby

from mmdb.db.connection import Row

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(samples: Iterable[Row]) -> str:
    """Return samples as Prometheus reads them.

    Args:
        samples: rows of `mmdb.metric`, those of one name together.
    """
    families = groupby(samples, lambda row: (row["name"], row["type"], row["help"]))
    return "".join(line + "\n" for family, rows in families for line in _lines(*family, rows))


def _lines(name: str, kind: str, about: str, rows: Iterable[Row]) -> Iterator[str]:
    yield f"# HELP {name} {_escaped(about)}"
    yield f"# TYPE {name} {kind}"
    for row in rows:
        value = _escaped(row["label_value"]).replace('"', r"\"")
        labels = f'{{{row["label"]}="{value}"}}' if row["label"] else ""
        yield f"{name}{labels} {number(row['value'])}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def number(value: float) -> str:
    """Return a sample's value, a whole number without its point.

    >>> number(3.0), number(0.25), number(float("nan")), number(float("inf")), number(1e300)
    ('3', '0.25', 'NaN', '+Inf', '1e+300')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
