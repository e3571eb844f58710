"""The metrics that a run records, and the one that compares its candidates and epochs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from mmdb.arguments import is_number, is_whole, unfit
from mmdb.data.decoding import Target
from mmdb.errors import FunctionFailed, InvalidOption, NotANumber
from mmdb.messages import show
from mmdb.train.candidate.metrics import DEFAULTS, METRICS, Compute, metrics_of
from mmdb.train.candidate.named_choices import Functions, NamedChoice, function_of, registered

#: Keys of a metric in the options that are no arguments of it.
_OWN = ("name", "target", "maximize", "as")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One metric of one target."""

    key: str  # under which it is recorded
    target: int  # ordinal
    name: str
    maximize: bool | None  # None: registered, and not said
    arguments: dict[str, Any] = field(default_factory=dict)


def measures_of(
    targets: Sequence[Target], options: Mapping[str, Any], functions: Functions
) -> tuple[Measure, ...]:
    """Return what a run records: the defaults of each target's task, `metrics` and `metric`.

    Raises:
        InvalidOption: an unknown metric, target or argument, or two metrics under one key.
    """
    found = {
        measure.key: measure
        for ordinal, target in enumerate(targets)
        for measure in (_named(name, ordinal, targets) for name in DEFAULTS[target.task])
    }
    for spec in _listed(options):
        measure = parse_measure(spec, targets, functions)
        if found.setdefault(measure.key, measure) != measure:
            raise InvalidOption(
                f"Two metrics would be recorded as {measure.key!r}.",
                hint='Give one another key: {"name": ..., "as": ...}.',
            )
    return tuple(found.values())


def _listed(options: Mapping[str, Any]) -> list[Any]:
    further = options.get("metrics", [])
    if not isinstance(further, list):
        raise unfit("options.metrics", further, "It is a list of metrics to record.")
    main = options.get("metric")
    return further if main in (None, "loss") else [main, *further]


def parse_measure(spec: Any, targets: Sequence[Target], functions: Functions) -> Measure:
    """Return the metric that a name, or {"name": ..., <arguments>}, says.

    Raises:
        InvalidOption
    """
    if not isinstance(spec, str) and not (
        isinstance(spec, Mapping) and isinstance(spec.get("name"), str)
    ):
        raise unfit("The metric", spec, _hint(targets, functions))
    given: Mapping[str, Any] = {"name": spec} if isinstance(spec, str) else spec
    ordinal, name = _target_of(given, targets, functions)
    known = metrics_of(targets[ordinal])
    if name not in known and name not in registered(functions, "metric"):
        raise InvalidOption(
            f"There is no metric {name!r} of {targets[ordinal].name!r}.",
            hint=_hint(targets, functions),
        )
    arguments = {key: value for key, value in given.items() if key not in _OWN}
    if name in known:
        _check_arguments(name, given, arguments)
        maximize: object = known[name].maximize
    else:
        maximize = given.get("maximize")
    key = given.get("as", _key(name, ordinal, targets))
    if not isinstance(maximize, bool | None) or not isinstance(key, str) or key in ("", "loss"):
        raise unfit("The metric", spec, "maximize is true or false; as is a text of your own.")
    return Measure(key=key, target=ordinal, name=name, maximize=maximize, arguments=arguments)


def _target_of(
    given: Mapping[str, Any], targets: Sequence[Target], functions: Functions
) -> tuple[int, str]:
    """Return the ordinal of a metric's target and the metric's own name."""
    ordinals = {target.name: ordinal for ordinal, target in enumerate(targets)}
    name, target = given["name"], given.get("target")
    if target is None:
        for prefix, ordinal in ordinals.items():
            if name.startswith(f"{prefix}."):
                return ordinal, name.removeprefix(f"{prefix}.")
        if len(targets) == 1:
            return 0, name
    if target not in ordinals:
        raise InvalidOption(
            f"The metric {name!r} names no label, and the dataset has several."
            if target is None
            else f"The metric {name!r} is of {target!r}, which is no label.",
            hint=_hint(targets, functions),
        )
    return ordinals[target], name


def _check_arguments(name: str, given: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    unknown = [a for a in arguments if a not in METRICS[name].arguments]
    if unknown or "maximize" in given:
        what = unknown[0] if unknown else "maximize"
        takes = ", ".join(METRICS[name].arguments) or "none"
        raise InvalidOption(
            f"Metric {name!r} has no argument {what!r}.", hint=f"It takes: {takes}."
        )
    for argument, value in arguments.items():
        is_share = argument == "quantile"
        if not (is_number(value, 0, 1) if is_share else is_whole(value, 1)):
            raise InvalidOption(
                f"{argument} of metric {name!r} is {show(value)}.",
                hint="It is a number from 0 to 1." if is_share else "It is a whole number from 1.",
            )


def _named(name: str, ordinal: int, targets: Sequence[Target]) -> Measure:
    return Measure(
        key=_key(name, ordinal, targets),
        target=ordinal,
        name=name,
        maximize=METRICS[name].maximize,
    )


def _key(name: str, ordinal: int, targets: Sequence[Target]) -> str:
    return name if len(targets) == 1 else f"{targets[ordinal].name}.{name}"


def _hint(targets: Sequence[Target], functions: Functions) -> str:
    names = [
        _key(name, ordinal, targets)
        for ordinal, target in enumerate(targets)
        for name in (*metrics_of(target), *registered(functions, "metric"))
    ]
    return f"A name, or {{'name': ..., <arguments>}}; names: loss, {', '.join(names)}."


class Meter:
    """Measures with their functions found."""

    def __init__(
        self, measures: Sequence[Measure], targets: Sequence[Target], functions: Functions
    ) -> None:
        """Raises: FunctionNotFound, FunctionFailed"""
        self._measures = [(m, _compute(m, targets[m.target], functions)) for m in measures]

    def __call__(
        self, outputs: Sequence[Tensor], labels: Sequence[Tensor], weight: Tensor | None = None
    ) -> dict[str, float]:
        """Return the values by key; one that is not defined on these rows is left out.

        None is of outputs with a NaN: which class is the largest of them says nothing.

        Args:
            labels: of each target; weights of the rows may come after them.
            weight: of the rows, float64 (n,), in place of these.
        """
        if weight is None and len(labels) > len(outputs):
            weight = labels[-1].double()
        known = [not output.isnan().any() for output in outputs]
        found = {
            m.key: of(outputs[m.target], labels[m.target], weight)
            for m, of in self._measures
            if known[m.target]
        }
        return {key: value for key, value in found.items() if math.isfinite(value)}


def _compute(measure: Measure, target: Target, functions: Functions) -> Compute:
    own = METRICS.get(measure.name)
    if own is not None and target.task in own.by_task:
        return partial(own.by_task[target.task], **measure.arguments)
    choice = NamedChoice(name=measure.name, arguments=measure.arguments)
    function = function_of(functions, "metric", choice)

    def compute(output: Tensor, y: Tensor, weight: Tensor | None = None) -> float:
        found = function(output, y)  # which takes no weights
        try:
            return float(found)  # type: ignore[arg-type]
        except (TypeError, ValueError, RuntimeError) as error:
            raise FunctionFailed(
                f"Metric {measure.name!r} returned {found!r:.80}.", hint="It returns one number."
            ) from error

    return compute


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
