"""Bytes that models and their tensors have, and that are stored for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmdb.messages import bytes_text
from mmdb.report.parts import Chart, Rows, short
from mmdb.report.theme import legend_columns

#: Bars of a chart; what is left is one more.
BARS = 15
KINDS = ("size", "stored")
#: What became of a model's bytes, and where a row has them.
PARTS = {
    "stored": "stored_bytes",
    "shared with other models": "shared_bytes",
    "saved by encoding": "encoded_away_bytes",
}


def tensors_chart(rows: Rows) -> Chart:
    """Return the largest tensors of a model, with what is stored of them."""
    largest = sorted(rows, key=lambda row: -row["byte_count"])
    bars = [(row["path"], row["byte_count"], row["stored_bytes"]) for row in largest[:BARS]]
    rest = largest[BARS:]
    if rest:
        bars.append(
            (f"{len(rest):,} more", sum(r["byte_count"] for r in rest),
             sum(r["stored_bytes"] or 0 for r in rest))
        )  # fmt: skip
    return _pairs("The largest tensors", bars, "A tensor that others have too is stored once.")


def models_chart(rows: Rows) -> Chart:
    """Return models as bars of their size: what was stored for them, and what was saved how.

    Args:
        rows: model, version, byte_count, stored_bytes, shared_bytes, encoded_away_bytes.
    """
    names = _distinct([short(f"{row['model']}@{row['version']}", 34) for row in rows[:BARS]])
    values: list[dict[str, Any]] = [
        {"name": name, "part": part, "place": place, "value": value, "text": bytes_text(value)}
        for name, row in zip(names, rows, strict=False)
        for place, (part, key) in enumerate(PARTS.items())
        if (value := max(0, row[key] or 0))
    ]
    ends: list[dict[str, Any]] = [
        {"name": name, "value": sum(v["value"] for v in values if v["name"] == name),
         "text": bytes_text(row["byte_count"] or 0)}
        for name, row in zip(names, rows, strict=False)
    ]  # fmt: skip
    longest = max((end["value"] for end in ends), default=1)
    told = "; ".join(
        f"{name}: " + ", ".join(f"{v['text']} {v['part']}" for v in values if v["name"] == name)
        for name in names
    )
    parts = [part for part in PARTS if any(value["part"] == part for value in values)]
    color = {
        "field": "part",
        "scale": {"domain": list(PARTS), "range": "category"},
        "legend": {"title": None, "values": parts, "columns": legend_columns(parts)},
    }
    x = {"field": "value", "type": "quantitative", **_axis(longest)}
    tooltip = [{"field": "name"}, {"field": "part"}, {"field": "text", "title": "bytes"}]
    text = {"type": "text", "align": "left", "dx": 6, "style": "label"}
    return Chart(
        title="What models take, and what was saved",
        alt=f"Bytes of each model by what became of them. {told}.",
        spec={
            "height": 34 * len(names),
            "encoding": {
                "y": {"field": "name", "type": "nominal", "sort": names, "title": None,
                      "axis": {"domain": False, "ticks": False, "labelPadding": 8}},
            },
            "layer": [
                {
                    "data": {"values": values},
                    "mark": {"type": "bar", "height": {"band": 0.66}, "strokeWidth": 1,
                             "style": "gap"},
                    "encoding": {"x": {**x, "stack": "zero"}, "color": color,
                                 "order": {"field": "place"}, "tooltip": tooltip},
                },
                {
                    "data": {"values": ends},
                    "mark": text,
                    "encoding": {"text": {"field": "text"},
                                 "x": {"field": "value", "type": "quantitative"}},
                },
            ],
        },
        note="A bar is as long as the model is large.",
    )  # fmt: skip


def _pairs(title: str, bars: Sequence[tuple[str, int, int | None]], note: str) -> Chart:
    names = _distinct([short(name, 34) for name, _, _ in bars])
    values = [
        {"name": name, "kind": kind, "value": value, "text": bytes_text(value)}
        for name, (_, size, stored) in zip(names, bars, strict=True)
        for kind, value in zip(KINDS, (size, stored), strict=True)
        if value is not None
    ]
    kinds = list(dict.fromkeys(str(value["kind"]) for value in values))
    longest = max(
        (value["value"] for value in values if isinstance(value["value"], int)), default=1
    )
    x = {"field": "value", "type": "quantitative", **_axis(longest)}
    color = {
        "field": "kind",
        "scale": {"domain": list(KINDS), "range": "pair"},
        "legend": {"title": None, "values": kinds, "columns": legend_columns(kinds)},
    }
    told = "; ".join(
        f"{name}: {bytes_text(size)}, {'unknown' if stored is None else bytes_text(stored)} stored"
        for name, (_, size, stored) in zip(names, bars, strict=True)
    )
    encoding: Mapping[str, Any] = {
        "y": {"field": "name", "type": "nominal", "sort": names, "title": None,
              "axis": {"domain": False, "ticks": False}},
        "yOffset": {"field": "kind", "type": "nominal", "sort": kinds},
        "x": x,
    }  # fmt: skip
    tooltip = [{"field": "name"}, {"field": "kind"}, {"field": "text", "title": "bytes"}]
    text = {"type": "text", "align": "left", "dx": 5, "style": "label"}
    return Chart(
        title=title,
        alt=f"{title}, in bytes. {told}.",
        spec={
            "height": 40 * len(bars),
            "data": {"values": values},
            "encoding": encoding,
            "layer": [
                {"mark": "bar", "encoding": {"color": color, "tooltip": tooltip}},
                {"mark": text, "encoding": {"text": {"field": "text"}}},
            ],
        },
        note=note,
    )


def _axis(longest: float) -> dict[str, Any]:
    """Return an axis of bytes in steps of 1, 2 or 5, with room for texts at the ends of bars."""
    least = max(longest, 1) / 4
    power = 10 ** (len(str(int(least))) - 1)
    step = next(power * k for k in (1, 2, 5, 10) if power * k >= least)
    ticks = [step * k for k in range(int(max(longest, 1) / step) + 1)]
    texts = [bytes_text(tick) for tick in ticks]
    lookup = f"{texts}[indexof({ticks}, datum.value)]"
    return {
        "title": "bytes",
        "scale": {"domain": [0, max(longest, 1) * 1.2], "nice": False},
        "axis": {"values": ticks, "labelExpr": lookup, "labelOverlap": True},
    }


def _distinct(names: list[str]) -> list[str]:
    """Return the names, those that are there already with a number.

    >>> _distinct(["a", "b", "a"])
    ['a', 'b', 'a (2)']
    """
    found: dict[str, None] = {}
    for name in names:
        number, one = 1, name
        while one in found:
            number += 1
            one = f"{name} ({number})"
        found[one] = None
    return list(found)
