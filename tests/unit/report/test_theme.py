"""Colours: enough contrast, and apart for colour-blind people too."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from mmdb.report.parts import THEMES, Theme

Floats = npt.NDArray[np.float64]
#: What people see whose eyes lack a kind of cone, on linear RGB (Machado et al. 2009, severity 1).
SIGHTS = {
    "all": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
         [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
         [-0.011820, 0.042940, 0.968881]]
    ),
}  # fmt: skip


def linear(color: str) -> Floats:
    parts = np.array([int(color[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.asarray(np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4))


def contrast(one: str, other: str) -> float:
    weights = np.array([0.2126, 0.7152, 0.0722])
    high, low = sorted((float(linear(c) @ weights) for c in (one, other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def lab(rgb: Floats) -> Floats:
    """Return a colour in Oklab, where distances are as people see them."""
    to_cones = np.array(
        [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
         [0.0883024619, 0.2817188376, 0.6299787005]]
    )  # fmt: skip
    to_lab = np.array(
        [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
         [0.0259040371, 0.7827717662, -0.8086757660]]
    )  # fmt: skip
    return np.asarray(to_lab @ np.cbrt(to_cones @ np.clip(rgb, 0, 1)))


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_texts_and_marks_stand_out(theme: Theme) -> None:
    for text in (theme.text, theme.quiet):
        assert contrast(text, theme.ground) >= 4.5
    for color in {*theme.category, *theme.phase, *theme.pair}:
        assert contrast(color, theme.ground) >= 3, color
    for color in theme.category:
        assert contrast(theme.inside, color) >= 3, color


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_colours_of_a_chart_are_apart(theme: Theme, sight: str) -> None:
    for name in ("category", "phase", "pair"):
        for one, other in combinations(getattr(theme, name), 2):
            seen = [lab(SIGHTS[sight] @ linear(color)) for color in (one, other)]
            assert float(np.linalg.norm(seen[0] - seen[1])) >= 0.1, (name, one, other)
