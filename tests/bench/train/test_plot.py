"""Curves become well-formed SVG whose points lie where the values are."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from tests.bench.train.plot import BOTTOM, PANEL_H, PANEL_W, TOP, line_plots

SVG = "{http://www.w3.org/2000/svg}"


def points(text: str) -> list[list[tuple[float, float]]]:
    found = ET.fromstring(text).iter(f"{SVG}polyline")
    return [
        [
            (float(x), float(y))
            for x, y in (pair.split(",") for pair in line.attrib["points"].split())
        ]
        for line in found
    ]


def test_each_panel_has_its_curves() -> None:
    text = line_plots(
        {"a < b": {"one": [0.5, 0.25], "two": [1.0, 0.0]}, "c": {"x": [2.0]}}, "x", "y"
    )
    first, second, third = points(text)
    assert first[0][1] == (TOP + PANEL_H - BOTTOM) / 2  # half of the greatest value
    assert second == [(first[0][0], TOP), (first[1][0], PANEL_H - BOTTOM)]
    assert len(third) == 1
    root = ET.fromstring(text)
    assert root.attrib["width"] == str(2 * PANEL_W)
    assert "a < b" in [element.text for element in root.iter(f"{SVG}text")]


def test_nothing_to_draw_is_an_empty_picture() -> None:
    assert points(line_plots({}, "x", "y")) == []
    assert points(line_plots({"zero": {"a": [0.0, 0.0]}}, "x", "y"))[0][0][1] == PANEL_H - BOTTOM


def test_many_epochs_get_few_labels() -> None:
    text = line_plots({"long": {"a": [1.0] * 200}}, "x", "y")
    assert len(list(ET.fromstring(text).iter(f"{SVG}text"))) < 30
