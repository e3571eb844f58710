"""The options of explain_train, checked. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from mmdb.arguments import check_known, is_number, is_whole, unfit
from mmdb.errors import InvalidOption
from mmdb.plan.cost import EXECUTED, StrategyName
from mmdb.plan.ranking import KINDS, Objective

KNOWN = ("cluster", "objective", "strategies", "workers", "group", "batches", "partitions",
         "bytes_limit", "rows", "probe_s", "target")  # fmt: skip
#: Seconds that steps may be timed for, at most.
MOST_PROBE_S = 60.0
#: Rows that a plan keeps and returns, if nothing else is asked.
ROWS = 100
#: Numbers that may be asked for, and values of a list that are tried, at most.
MOST, MOST_TRIED = 1_000_000, 20
_WHOLE = f"It is a whole number from 1 to {MOST:,}."
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """See docs/planning.md."""

    cluster: Mapping[str, Any] | None = None  # a description; None for the machine that is there
    objective: Objective = "time"
    strategies: tuple[StrategyName, ...] = KINDS
    workers: int | None = None
    group: int | None = None
    batches: tuple[int | None, ...] = (None,)
    partitions: tuple[int, ...] = ()
    bytes_limit: float | None = None
    rows: int = ROWS
    target: float | None = None  # of the run's metric: for as many epochs as that takes
    probe_s: float | None = None  # in which unmeasured steps are timed; None: as `plan`


def plan_options(raw: Mapping[str, Any]) -> PlanOptions:
    """Return options, checked; what a plan checks itself is left to it.

    Raises:
        InvalidOption: an unknown name, or a value of the wrong type.
    """
    check_known(raw, KNOWN, "A plan has no option")
    _check_numbers(raw)
    given: dict[str, Any] = {}
    if raw.get("cluster") is not None:
        if not isinstance(raw["cluster"], Mapping):
            raise unfit(
                "cluster", raw["cluster"], 'It is a description, such as {"nodes": 10, "slots": 4}.'
            )
        given["cluster"] = raw["cluster"]
    if "objective" in raw:
        given["objective"] = raw["objective"]
    if "strategies" in raw:
        given["strategies"] = _strategies(raw["strategies"])
    for name in ("workers", "group", "rows"):
        if raw.get(name) is not None:
            given[name] = _whole(name, raw[name])
    if "batches" in raw:
        sizes = _list("batches", raw["batches"])
        given["batches"] = _distinct(
            None if one is None else _whole("batches", one) for one in sizes
        )
    if "partitions" in raw:
        counts = _list("partitions", raw["partitions"])
        given["partitions"] = _distinct(_whole("partitions", one) for one in counts)
    limit = raw.get("bytes_limit")
    if limit is not None:
        if not is_number(limit, 0):
            raise unfit("bytes_limit", limit, "It is a number of bytes.")
        given["bytes_limit"] = float(limit)
    target = raw.get("target")
    if target is not None:
        if not is_number(target):
            raise unfit("target", target, "A value of the run's metric.")
        given["target"] = float(target)
    seconds = raw.get("probe_s")
    if seconds is not None:
        if not is_number(seconds, 0, MOST_PROBE_S):
            raise unfit("probe_s", seconds, "Seconds, from 0 to 60.")
        given["probe_s"] = float(seconds)
    return PlanOptions(**given)


def _check_numbers(raw: Mapping[str, Any]) -> None:
    """Refuse NaN and infinity, which Python reads in JSON and no database keeps."""
    try:
        json.dumps(raw, allow_nan=False)
    except ValueError as error:
        raise InvalidOption(
            "options holds a number that is none.", hint="Use finite numbers."
        ) from error


def _strategies(value: object) -> tuple[StrategyName, ...]:
    """Return strategies by name; "executed" stands for those that mmdb executes."""
    if value == "executed":
        return EXECUTED
    found: Sequence[StrategyName] = _list("strategies", value)
    check_known(found, KINDS, "There is no strategy")
    return _distinct(found)


def _list(name: str, value: object) -> Sequence[Any]:
    if not isinstance(value, list) or not value:
        raise unfit(name, value, "It is a list, and not empty.")
    if len(value) > MOST_TRIED:
        raise InvalidOption(
            f"{name} has {len(value)} values.", hint=f"At most {MOST_TRIED} are tried."
        )
    return value


def _distinct(values: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(values))


def _whole(name: str, value: object) -> int:
    if not is_whole(value, 1, MOST):
        raise unfit(name, value, _WHOLE)
    return value
