"""How a saved classifier's outputs become its answer: calibration, and a threshold for a class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mmdb.arguments import is_number

#: Of one class: scores, ascending, and the share of rows of the class at each.
Knots = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How a model's outputs become its answer; each part may be missing."""

    temperature: float | None = None
    isotonic: tuple[Knots, ...] = ()  # by class
    positive: int | None = None  # the class that is predicted from a threshold on
    threshold: float = 0.0
    goal: Mapping[str, Any] | None = None  # that the threshold meets; None: it is not known

    @classmethod
    def from_json(cls, value: Mapping[str, Any], classes: Sequence[str]) -> Calibration:
        """Return a calibration out of JSON, in which anything may stand.

        Raises:
            LookupError, TypeError, ValueError: it is none of a model with such classes.
        """
        knots = tuple((tuple(at), tuple(shares)) for at, shares in value.get("isotonic") or ())
        positive = value.get("positive")
        place = None if positive is None else classes.index(positive)
        found = cls(**{**value, "isotonic": knots, "positive": place})
        fits = [
            found.temperature is None or is_number(found.temperature, 1e-9),
            is_number(found.threshold, 0, 1),
            found.goal is None or isinstance(found.goal, dict),
            len(knots) in (0, len(classes)),
            all(map(_is_curve, knots)),
        ]
        if not all(fits):
            raise ValueError("calibration")
        return found

    def to_json(self, classes: Sequence[str]) -> dict[str, Any]:
        """Return what `from_json` reads."""
        parts: dict[str, Any] = {"temperature": self.temperature, "isotonic": self.isotonic}
        if self.positive is not None:
            parts |= {"positive": classes[self.positive], "threshold": self.threshold}
            parts["goal"] = self.goal
        return {name: part for name, part in parts.items() if part not in (None, ())}

    def at(self, positive: int, threshold: float, goal: Mapping[str, Any]) -> Calibration:
        """Return the calibration that predicts a class from a probability on, to meet a goal."""
        return replace(self, positive=positive, threshold=threshold, goal=goal)


def _is_curve(knots: Knots) -> bool:
    at, shares = knots
    numbers = all(is_number(one) for one in at) and all(is_number(one, 0, 1) for one in shares)
    return numbers and 0 < len(at) == len(shares) and list(at) == sorted(set(at))
