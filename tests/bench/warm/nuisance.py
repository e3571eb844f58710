"""What a picture shows beside its class: colours, patterns, a cover, noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
#: Draws from a range for each picture: (n, 1, 1).
Between = Callable[[float, float], Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nuisance:
    """What a class says nothing about: ranges from which each picture draws.

    Attributes:
        hues: of shape and background, in turns.
        waves: cycles per picture of the background's pattern.
        size: half the shape's extent; the picture's is 1.
        shift: how far the shape's centre may be from the picture's.
        turn: radians, to either side.
        cover: side of the square that hides a part of three pictures in four.
        pattern: amplitude of the background's waves; values lie in [0, 1].
        noise: standard deviation of each value.
    """

    hues: tuple[float, float]
    waves: tuple[float, float]
    size: tuple[float, float] = (0.5, 0.8)
    shift: float = 0.15
    turn: float = 0.3
    cover: float = 0.4
    pattern: float = 0.1
    noise: float = 0.1


#: No hue and no pattern of the one is in the other.
PARENT = Nuisance(hues=(0.0, 0.5), waves=(1.0, 2.5))
CHILD = Nuisance(hues=(0.5, 1.0), waves=(2.5, 4.0))


def between_of(count: int, draw: np.random.Generator) -> Between:
    """Return a draw for each of `count` pictures."""
    return lambda low, high: draw.uniform(low, high, (count, 1, 1)).astype(np.float32)


def axes(side: int) -> tuple[Array, Array]:
    """Return x (1, 1, side) and y (1, side, 1) of the pixels, in (-1, 1)."""
    axis = (np.arange(side, dtype=np.float32) + 0.5) * (2 / side) - 1
    return axis[None, None, :], axis[None, :, None]


def painted(inside: Array, draw: np.random.Generator, given: Nuisance) -> NDArray[np.uint8]:
    """Return pictures of shapes amid nuisance.

    Args:
        inside: how much of each pixel the shape covers, (n, side, side) in [0, 1].
    Returns:
        (n, 3, side, side)
    """
    between = between_of(len(inside), draw)
    x, y = axes(inside.shape[-1])
    shape = _colour(between(*given.hues), between(0.6, 1))
    ground = _colour(between(*given.hues), between(0, 0.4))
    angle, cycles = between(0, np.pi), between(*given.waves) * np.float32(np.pi)
    pattern: Array = np.sin(
        cycles * (x * np.cos(angle) + y * np.sin(angle)) + between(0, 2 * np.pi)
    )
    ground = ground + given.pattern * pattern[:, None]
    picture = ground + inside[:, None] * (shape - ground)
    hidden = _cover(x, y, between, given.cover)[:, None]
    picture += hidden * (_colour(between(*given.hues), between(0, 1)) - picture)
    noisy = picture + given.noise * draw.standard_normal(picture.shape, dtype=np.float32)
    return (np.clip(noisy, 0, 1) * 255).astype(np.uint8)


def _cover(x: Array, y: Array, between: Between, side: float) -> Array:
    half = side / 2 * (between(0, 1) < 0.75)
    at_x, at_y = between(-0.8, 0.8), between(-0.8, 0.8)
    return ((abs(x - at_x) < half) & (abs(y - at_y) < half)).astype(np.float32)


def _colour(hue: Array, light: Array) -> Array:
    """Return (n, 3, 1, 1) of a hue in [0, 1), slightly saturated, between dark and bright."""
    phases = np.array([0.0, 1 / 3, 2 / 3], np.float32).reshape(1, 3, 1, 1)
    wheel = 0.5 + 0.5 * np.cos(2 * np.pi * (hue[:, None] - phases))
    colour: Array = (0.15 + 0.7 * light[:, None]) * (0.65 + 0.35 * wheel)
    return colour.astype(np.float32)
