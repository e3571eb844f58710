"""By which metric a run's candidates and epochs are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmdb.data.target import Target
from mmdb.errors import InvalidOption, NotANumber
from mmdb.train.candidate.functions import Functions
from mmdb.train.candidate.measures import measures_of, parse_measure

#: The validation loss as an objective.
LOSS = "loss"


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The metric that a run compares its candidates by."""

    metric: str  # "loss", or a key of a validation's metrics: "accuracy", "digit.accuracy"
    maximize: bool

    def value(self, metrics: Mapping[str, float], loss: float) -> float:
        """Return the objective's value in a validation.

        Raises:
            NotANumber: the metric is not defined on the validation slice.
        """
        if self.metric == LOSS:
            return loss
        if self.metric not in metrics:
            raise NotANumber(
                f"The metric {self.metric!r} is not defined on the validation slice.",
                hint="Some need rows of every class, or labels other than 0; "
                "choose another options.metric.",
            )
        return metrics[self.metric]


def objective_of(
    targets: Sequence[Target], options: Mapping[str, Any], functions: Functions | None = None
) -> Objective:
    """Return the objective that a run's options choose: `metric`, or the first target's default.

    Raises:
        InvalidOption: an unknown metric; a registered one without its direction.
    """
    given = options.get("metric")
    if given == LOSS:
        return Objective(metric=LOSS, maximize=False)
    if given is None:
        first = measures_of(targets, {}, {})[0]
        assert first.maximize is not None
        return Objective(metric=first.key, maximize=first.maximize)
    measure = parse_measure(given, targets, functions or {})
    if measure.maximize is None:
        raise InvalidOption(
            f"options.metric is {given!r}, a registered metric.",
            hint=f'Say which way is better: {{"name": "{measure.name}", "maximize": true}}.',
        )
    return Objective(metric=measure.key, maximize=measure.maximize)
