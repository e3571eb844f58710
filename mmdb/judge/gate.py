"""Gates: whether a new model is good enough to take an old one's place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmdb.arguments import check_known, is_number, unfit
from mmdb.errors import InvalidOption
from mmdb.messages import show


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The condition for a new model to replace the old one, measured on the same rows."""

    metric: str | None = None  # None: by which the run compares its candidates
    at_least: float = 0.0  # how much better it must be; below 0: how much worse it may be
    significance: float | None = None  # how probable it may be that it is not; None: anyhow

    @classmethod
    def parse(cls, given: Mapping[str, Any] | None) -> Gate:
        """Return the gate of a call.

        Raises:
            InvalidOption
        """
        known = ("metric", "at_least", "significance")
        check_known(given or {}, known, "A gate has no")
        gate = cls(**dict(given or {}))
        if gate.metric is not None and not isinstance(gate.metric, str):
            raise unfit("The gate's metric", gate.metric, "Name one.")
        if not is_number(gate.at_least):
            raise InvalidOption(
                f"The gate's at_least is {show(gate.at_least)}.",
                hint="It is a number: 0.01 asks for a metric that is better by as much.",
            )
        if gate.significance is not None and not (
            is_number(gate.significance, 0) and 0 < gate.significance < 1
        ):
            raise unfit(
                "The gate's significance", gate.significance, "It is a probability, such as 0.05."
            )
        return gate

    def passes(self, gain: float, chance: float) -> bool:
        """Return whether a new model is let through.

        Args:
            gain: how much better its metric is.
            chance: how probable a gain below `at_least` is, by the rows that happened to be drawn.
        """
        is_sure = self.significance is None or chance < self.significance
        return gain >= self.at_least and is_sure

    def reason(self, metric: str, old: float, new: float, gain: float, chance: float) -> str:
        """Return in a sentence why a new model is let through, or is not."""
        told = f"{metric} went from {old:.6g} to {new:.6g}"
        if gain < self.at_least:
            least = f"at least {self.at_least:g} better" if self.at_least else "no worse"
            return f"{told}; it must be {least}."
        if not self.passes(gain, chance):
            return f"{told}, which may be chance (p = {chance:.3g})."
        return f"{told}."
