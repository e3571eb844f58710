"""What explain_train is asked beside a run, checked. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmdb.errors import InvalidOption
from mmdb.graph.values import show
from mmdb.plan.cost import EXECUTED, Kind
from mmdb.plan.ranking import KINDS, Objective

KNOWN = ("cluster", "objective", "strategies", "workers", "group", "batches", "partitions",
         "bytes_limit", "rows")  # fmt: skip
#: Rows that a plan keeps and returns, if nothing else is asked.
ROWS = 100
_WHOLE = "It is a whole number from 1."


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """See docs/planning.md."""

    cluster: Mapping[str, Any] | None = None  # a description; None for the machine that is there
    objective: Objective = "time"
    strategies: tuple[Kind, ...] = KINDS
    workers: int | None = None
    group: int | None = None
    batches: tuple[int | None, ...] = (None,)
    partitions: tuple[int, ...] = ()
    bytes_limit: float | None = None
    rows: int = ROWS


def wishes_of(raw: Mapping[str, Any]) -> Wishes:
    """Return the wishes that options say; what a plan checks itself is left to it.

    Raises:
        InvalidOption: an unknown name, or a value of the wrong type.
    """
    for name in raw:
        if name not in KNOWN:
            raise InvalidOption(
                f"A plan has no option {show(name)}.", hint=f"Known: {', '.join(KNOWN)}."
            )
    given: dict[str, Any] = {}
    if raw.get("cluster") is not None:
        if not isinstance(raw["cluster"], Mapping):
            raise InvalidOption(
                f"cluster is {show(raw['cluster'])}.",
                hint='It is a description, such as {"nodes": 10, "slots": 4}.',
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
        given["batches"] = tuple(
            None if one is None else _whole("batches", one)
            for one in _list("batches", raw["batches"])
        )
    if "partitions" in raw:
        counts = _list("partitions", raw["partitions"])
        given["partitions"] = tuple(_whole("partitions", one) for one in counts)
    limit = raw.get("bytes_limit")
    if limit is not None:
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not limit >= 0:
            raise InvalidOption(f"bytes_limit is {show(limit)}.", hint="It is a number of bytes.")
        given["bytes_limit"] = float(limit)
    return Wishes(**given)


def _strategies(value: object) -> tuple[Kind, ...]:
    """Return strategies by name; "executed" stands for those that mmdb executes."""
    if value == "executed":
        return EXECUTED
    found: list[Kind] = []
    for name in _list("strategies", value):
        if name not in KINDS:
            raise InvalidOption(
                f"There is no strategy {show(name)}.", hint=f"Known: {', '.join(KINDS)}."
            )
        found.append(name)
    return tuple(found)


def _list(name: str, value: object) -> Sequence[Any]:
    if not isinstance(value, list) or not value:
        raise InvalidOption(f"{name} is {show(value)}.", hint="It is a list, and not empty.")
    return value


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidOption(f"{name} is {show(value)}.", hint=_WHOLE)
    return value
