"""What a run says of its warm start. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mmdb.arguments import check_flag, check_known, check_whole, is_number, unfit
from mmdb.errors import InvalidOption
from mmdb.messages import show
from mmdb.store.parents import Limits
from mmdb.store.parents.choice import MIN_COVERAGE, MIN_SIMILARITY

#: Values of `warm_start` that name no model.
OFF, AUTO = "off", "auto"
#: The learning rate is never scaled below this (ModelKeeper's rule).
LEAST_LR_SCALE = 0.3

_SHARES = {"threshold": MIN_SIMILARITY, "coverage": MIN_COVERAGE}
_KNOWN = (*_SHARES, "shrink", "lr_epochs", "within_run", "optimizer")
_MOST_EPOCHS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmOptions:
    """A run's `options.warm_start`, or what `Database.warm_start` was told.

    Attributes:
        limits: below which a parent is refused.
        shrink: what the parent's parameters are multiplied by before 1 - shrink times the child's
            own are added (shrink and perturb, arXiv 1910.08475); None leaves them as they are.
        lr_epochs: epochs in which the learning rate is scaled by `lr_scale`.
        within_run: whether candidates of the same run that have ended may be parents too.
        optimizer: whether the parent's optimizer goes on, where the state that it had is kept.
    """

    limits: Limits = field(default_factory=Limits)
    shrink: float | None = None
    lr_epochs: int = 0
    within_run: bool = False
    optimizer: bool = False


def parse_warm_options(
    raw: object, warm_start: str = AUTO, *, prefix: str = "options.warm_start."
) -> WarmOptions:
    """Return the options of a warm start.

    Args:
        raw: a mapping, or None.
        prefix: of options' names in messages.
    Raises:
        InvalidOption: an unknown option or value, or one that does nothing here.
    """
    if raw is None:
        return WarmOptions()
    if not isinstance(raw, Mapping):
        raise unfit("options.warm_start", raw, 'Such as {"threshold": 0.5, "lr_epochs": 2}.')
    if warm_start == OFF:
        raise InvalidOption(
            "options.warm_start is given, and warm_start is 'off'.",
            hint="Pass warm_start => 'auto', or a model.",
        )
    check_known(raw, _KNOWN, "A warm start has no option")
    within_run = check_flag(raw.get("within_run", False), f"{prefix}within_run")
    if within_run and warm_start != AUTO:
        raise InvalidOption(
            f"{prefix}within_run is given with the parent {show(warm_start)}.",
            hint="With warm_start => 'auto' candidates of the run compete with the zoo.",
        )
    optimizer = check_flag(raw.get("optimizer", False), f"{prefix}optimizer")
    if optimizer and warm_start == AUTO:
        raise InvalidOption(
            f"{prefix}optimizer is given with warm_start 'auto'.",
            hint="Name the model that candidates are to go on from.",
        )
    return WarmOptions(
        limits=Limits(
            similarity=_share(raw, "threshold", prefix), coverage=_share(raw, "coverage", prefix)
        ),
        shrink=_shrink(raw.get("shrink"), prefix),
        lr_epochs=check_whole(raw.get("lr_epochs", 0), f"{prefix}lr_epochs", 0, _MOST_EPOCHS),
        within_run=within_run,
        optimizer=optimizer,
    )


def lr_scale(coverage: float) -> float:
    """Return what the learning rate of the first epochs is multiplied by.

    >>> lr_scale(0.5), lr_scale(0.98), lr_scale(0.0)
    (0.5, 0.3, 1.0)
    """
    return min(1.0, max(LEAST_LR_SCALE, 1.0 - coverage))


def _share(raw: Mapping[str, Any], key: str, prefix: str) -> float:
    value = raw.get(key, _SHARES[key])
    if not is_number(value, 0, 1):
        raise unfit(f"{prefix}{key}", value, "It is a number from 0 to 1.")
    return float(value)


def _shrink(value: Any, prefix: str) -> float | None:
    if value is None or (is_number(value) and value == 1):
        return None
    if not is_number(value, 0, 1) or value == 0:
        raise unfit(f"{prefix}shrink", value, "It is a number above 0, up to 1.")
    return float(value)
