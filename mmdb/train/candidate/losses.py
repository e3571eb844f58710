"""Losses by name, and their weighted sum over a dataset's targets.

Every loss takes a module's raw output in float32 and returns the mean over the batch; where rows
have weights, the weighted mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mmdb.arguments import is_number
from mmdb.data.decoding import Target, Task
from mmdb.errors import FunctionFailed, InvalidHyperparameter
from mmdb.messages import show
from mmdb.train.candidate.named_choices import (
    Functions,
    NamedChoice,
    function_of,
    parse_choice,
    registered,
    takes,
)
from mmdb.train.values.row_batch import Labels, fitted, tensors_in

#: By task; the first is the default.
LOSSES: dict[Task, dict[str, type[nn.Module]]] = {
    "classification": {
        "cross_entropy": nn.CrossEntropyLoss,
        "multi_margin": nn.MultiMarginLoss,
        "nll": nn.NLLLoss,
    },
    "regression": {
        "mse": nn.MSELoss,
        "mae": nn.L1Loss,
        "huber": nn.HuberLoss,
        "smooth_l1": nn.SmoothL1Loss,
        "poisson_nll": nn.PoissonNLLLoss,
    },
    "multilabel": {
        "bce": nn.BCEWithLogitsLoss,
        "soft_margin": nn.MultiLabelSoftMarginLoss,
    },
    "next_token": {"cross_entropy": nn.CrossEntropyLoss},
}

#: Arguments that `class_weights` sets, and those that would change what a loss is: a mean.
TAKEN = {"weight", "pos_weight", "size_average", "reduce", "reduction", "ignore_index"}

#: Of one target: None, "balanced", or one number for each class or label.
ClassWeights = None | str | tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRows:
    """What "balanced" class weights go by."""

    count: int  # all of them
    by_class: Mapping[str, Sequence[int]]  # by target: of each class, or with each label


Loss = Callable[[Tensor, Tensor], Tensor]


class Criterion:
    """The loss of a batch: the weighted sum of the losses of its targets."""

    def __init__(
        self, losses: Sequence[Loss], weights: Sequence[float], units: Sequence[float] = (1.0,)
    ) -> None:
        """Args: units: what a target's outputs and labels are divided by before they meet."""
        self.losses, self._weights = tuple(losses), tuple(weights)
        self._units = tuple(units)

    def __call__(self, outputs: Sequence[Tensor], labels: Labels) -> Tensor:
        """Return the loss, a scalar.

        Args:
            outputs: in the targets' order, (n, size) or (n,) each, or (n, members, size); of next
                tokens (n, length, size).
            labels: in that order, too; then the rows' weights if they have any.
        Raises:
            FunctionFailed: a registered loss would have to weigh rows.
        """
        found = tensors_in(labels)
        weights = found[-1] if len(found) > len(self.losses) else None
        terms = [
            self._term(loss, *self._compared(place, outputs[place], y), weights)
            for place, (loss, y) in enumerate(zip(self.losses, found, strict=weights is None))
        ]
        if self._weights == (1.0,):
            return terms[0]
        weighted = [w * term for w, term in zip(self._weights, terms, strict=True)]
        return torch.stack(weighted).sum()

    def _term(self, loss: Loss, output: Tensor, y: Tensor, weights: Tensor | None) -> Tensor:
        if weights is None:
            return loss(output, y)
        each = _each(loss, output, y)
        members = len(each) // len(weights)  # of an ensemble
        weights = weights.repeat_interleave(members) if members > 1 else weights
        total = weights.sum().clamp(min=torch.finfo(torch.float32).tiny)
        return (each * weights).sum() / total

    def each(self, output: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each row, (n,), of the only target: (n, size) or (n,), and labels.

        Raises:
            FunctionFailed: a registered loss has none.
        """
        return _each(self.losses[0], *self._compared(0, output, y))

    def _compared(self, place: int, output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return a target's outputs and labels as its loss takes them."""
        if y.ndim == 2 and not y.is_floating_point():  # tokens of texts, each by itself
            return output.flatten(0, 1), y.flatten()
        if output.ndim == 3:  # the members of an ensemble, each compared by itself
            y = y.repeat_interleave(output.shape[1], 0)
            output = output.flatten(0, 1)
        output = fitted(output, y)
        unit = self._units[place]
        return (output, y) if unit == 1.0 else (output / unit, y / unit)

    def to(self, device: torch.device) -> Criterion:
        """Move the weights of classes to a device; return itself."""
        for loss in self.losses:
            if isinstance(loss, nn.Module):
                loss.to(device)
        return self


def _each(loss: Loss, output: Tensor, y: Tensor) -> Tensor:
    if not isinstance(loss, nn.Module):
        raise FunctionFailed(
            "A registered loss returns one number for all rows, which cannot be weighted.",
            hint="Use a loss that is built in, and neither weights of rows nor groups.",
        )
    before, loss.reduction = loss.reduction, "none"  # type: ignore[assignment]
    each: Tensor = loss(output, y)
    loss.reduction = before
    return each.flatten(1).mean(1) if each.ndim > 1 else each


def criterion_of(
    targets: Sequence[Target],
    losses: Sequence[NamedChoice],
    loss_weights: Sequence[float],
    class_weights: Sequence[ClassWeights],
    functions: Functions,
    rows: TrainRows | None,
) -> Criterion:
    """Return the criterion of a configuration; all sequences are in the targets' order.

    Raises:
        InvalidHyperparameter: torch refuses an argument, or "balanced" has no counts to go by.
        FunctionNotFound, FunctionFailed: of a registered loss.
    """
    found = [
        _loss(target, choice, _weights(target, weights, rows), functions)
        for target, choice, weights in zip(targets, losses, class_weights, strict=True)
    ]
    units = [
        target.scale[1] if target.scale is not None and choice.name in _DIFFERENCES else 1.0
        for target, choice in zip(targets, losses, strict=True)
    ]
    return Criterion(found, loss_weights, units)


#: Losses of differences, which are measured in deviations of the target's train rows.
_DIFFERENCES = ("mse", "mae", "huber", "smooth_l1")


def _loss(
    target: Target, choice: NamedChoice, weights: Tensor | None, functions: Functions
) -> Loss:
    kind = LOSSES[target.task].get(choice.name)
    if kind is None:
        return _checked(choice.name, function_of(functions, "loss", choice))
    arguments = dict(choice.arguments)
    if weights is not None:
        arguments["pos_weight" if kind is nn.BCEWithLogitsLoss else "weight"] = weights
    try:
        return kind(**arguments)
    except (TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InvalidHyperparameter(f"loss {choice.name!r}: {reason}") from error


def _checked(name: str, function: Callable[..., object]) -> Loss:
    """Return a registered loss that answers for what it returns."""

    def loss(output: Tensor, y: Tensor) -> Tensor:
        found = function(output, y)
        if not isinstance(found, Tensor) or found.numel() != 1 or not found.is_floating_point():
            what = f"tensor {tuple(found.shape)}" if isinstance(found, Tensor) else f"{found!r:.80}"
            raise FunctionFailed(
                f"Loss {name!r} returned {what}.", hint="It returns one number, as a tensor."
            )
        return found.reshape(())

    return loss


def _weights(target: Target, weights: ClassWeights, rows: TrainRows | None) -> Tensor | None:
    """Return the weight of each class or label, float32 (size,).

    "balanced" weighs a class by n / (k n_c), as scikit-learn does; in a multilabel task the ones
    of a label by its zeros over its ones. What no row has weighs 1.
    """
    if weights is None:
        return None
    if weights != "balanced":
        return torch.tensor(weights, dtype=torch.float32)
    counts = None if rows is None else rows.by_class.get(target.name)
    if rows is None or counts is None:
        raise InvalidHyperparameter(
            f"class_weights of {target.name!r} is 'balanced'; the dataset has no class counts.",
            hint="Give one number for each class, or create the dataset again.",
        )
    if target.task == "multilabel":
        found = [(rows.count - n) / n if 0 < n < rows.count else 1.0 for n in counts]
    else:
        found = [rows.count / (target.size * n) if n else 1.0 for n in counts]
    return torch.tensor(found, dtype=torch.float32)


def parse_losses(
    value: Any, targets: Sequence[Target], functions: Functions
) -> tuple[NamedChoice, ...]:
    """Return the loss of each target.

    Args:
        value: a name, or {"name": ..., <arguments>}; for several targets {target: one of these},
            where a target that is left out has its task's default.
    """
    given = by_target("loss", value, targets)
    return tuple(_parse_loss(given.get(t.name), t, functions) for t in targets)


def _parse_loss(value: Any, target: Target, functions: Functions) -> NamedChoice:
    known = LOSSES[target.task]
    if value is None:
        return NamedChoice(name=next(iter(known)))
    arguments = {name: takes(kind, TAKEN) for name, kind in known.items()}
    try:
        return parse_choice("loss", value, (*known, *registered(functions, "loss")), arguments)
    except InvalidHyperparameter as error:
        error.hint = f"A {target.task}: {error.hint}"
        raise


def parse_loss_weights(value: Any, targets: Sequence[Target]) -> tuple[float, ...]:
    """Return each target's share of the loss, 1 by default."""
    if value is not None and len(targets) == 1:
        raise InvalidHyperparameter(
            "loss_weights is given; the dataset has one label.", hint="Change lr instead."
        )
    given = by_target("loss_weights", value, targets)
    found = tuple(given.get(target.name, 1.0) for target in targets)
    if not all(_is_weight(weight) for weight in found) or not any(found):
        raise InvalidHyperparameter(
            f"loss_weights is {show(value)}.",
            hint="A finite number from 0 for each label, one of them above 0.",
        )
    return tuple(map(float, found))


def parse_class_weights(value: Any, targets: Sequence[Target]) -> tuple[ClassWeights, ...]:
    """Return the weights of each target's classes."""
    per_target = by_target("class_weights", value, targets)
    return tuple(_parse_class_weights(per_target.get(t.name), t) for t in targets)


def _parse_class_weights(value: Any, target: Target) -> ClassWeights:
    if value is None or (value == "balanced" and target.task != "regression"):
        return value  # type: ignore[no-any-return]
    listed = isinstance(value, list | tuple) and len(value) == target.size
    if target.task == "regression" or not listed or not all(map(_is_weight, value)):
        what = "classes" if target.task == "classification" else "labels"
        hint = f"'balanced', or {target.size} finite numbers from 0: one for each of its {what}."
        if target.task == "regression":
            hint = "A regression has no classes; leave it out."
        raise InvalidHyperparameter(
            f"class_weights of {target.name!r} is {show(value)}.", hint=hint
        )
    return tuple(map(float, value))


def by_target(key: str, value: Any, targets: Sequence[Target]) -> Mapping[str, Any]:
    """Return a hyper-parameter's value by target; for one target the value may stand alone.

    Raises:
        InvalidHyperparameter: several targets, and no mapping of some of them.
    """
    names = [target.name for target in targets]
    if value is None:
        return {}
    if len(targets) == 1:
        return {names[0]: value}
    if not isinstance(value, Mapping) or not set(value) <= set(names):
        raise InvalidHyperparameter(
            f"{key} is {show(value)}.", hint=f"An object with a value by label: {', '.join(names)}."
        )
    return value


def _is_weight(value: object) -> bool:
    return is_number(value, 0)
