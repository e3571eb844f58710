"""What a plan refuses, before it computes anything: work that is none, machines that cannot be."""

from __future__ import annotations

import math
from dataclasses import fields

from mmdb.arguments import is_number, is_whole
from mmdb.errors import EmptySearch, InvalidOption, TooFewRows
from mmdb.messages import show
from mmdb.plan.cost import CandidateCost, Cluster, Link, Load

#: Nodes of a cluster, and candidates or partitions of a load, at most.
MOST_NODES, MOST = 1_000, 100_000
#: Workers of a node, at most; formulas take them one by one.
MOST_SLOTS = 4_096
#: Seconds, bytes and factors that are amounts of something; beyond it sums are no numbers any more.
_MOST_AMOUNT = 1e18
#: A standard deviation, at most.
_MOST_DEVIATION = 2.0
_WHOLE = "It is a whole number from 1."
_NUMBER = f"It is a number from 0 to {_MOST_AMOUNT:.0e}."


def check_load(load: Load) -> None:
    """Raise what is wrong with a load.

    Raises:
        EmptySearch, TooFewRows, InvalidOption
    """
    if not load.candidates:
        raise EmptySearch("There is no candidate to plan for.")
    if not load.rows or min(load.rows) < 1:
        raise TooFewRows("A partition without rows cannot be trained on, nor planned for.")
    if load.epochs < 1:
        raise InvalidOption(f"epochs is {show(load.epochs)}.", hint=_WHOLE)
    if load.validation_rows < 0:
        raise InvalidOption(f"validation_rows is {show(load.validation_rows)}.", hint=_NUMBER)
    for what, count in (("candidates", len(load.candidates)), ("partitions", len(load.rows))):
        if count > MOST:
            raise InvalidOption(f"There are {count} {what}.", hint=f"At most {MOST} are planned.")
    for ordinal, cost in enumerate(dict.fromkeys(load.candidates)):
        _check_cost(ordinal, cost)


def _check_cost(ordinal: int, cost: CandidateCost) -> None:
    for field in fields(cost):
        value = getattr(cost, field.name)
        if field.name in ("layers", "exchanges"):
            bad = any(not _is_amount(x) for several in value for x in several)
        else:
            bad = not _is_amount(value)
        if bad:
            raise InvalidOption(
                f"The cost {field.name} of candidate {ordinal} is {show(value)}.", hint=_NUMBER
            )
    if cost.batch_size < 1:
        raise InvalidOption(
            f"The batch_size of candidate {ordinal} is {show(cost.batch_size)}.", hint=_WHOLE
        )
    if not cost.step_s + cost.row_s:
        raise InvalidOption(
            f"Candidate {ordinal} takes no time.", hint="step_s, row_s or both are above 0."
        )


def check_cluster(cluster: Cluster, load: Load) -> None:
    """Raise what is wrong with a cluster, or with where the load lies on it.

    Raises:
        InvalidOption
    """
    if not 1 <= len(cluster.nodes) <= MOST_NODES:
        raise InvalidOption(
            f"The cluster has {len(cluster.nodes)} nodes.", hint=f"1 to {MOST_NODES} are planned."
        )
    names = {node.name for node in cluster.nodes}
    if len(names) < len(cluster.nodes):
        raise InvalidOption("Two nodes of the cluster have one name.", hint="Give each its own.")
    for node in cluster.nodes:
        here = f"of node {node.name!r}"
        if not is_whole(node.slots, 1):
            raise InvalidOption(f"slots {here} is {show(node.slots)}.", hint=_WHOLE)
        if node.slots > MOST_SLOTS:
            raise InvalidOption(
                f"slots {here} is {show(node.slots)}.", hint=f"At most {MOST_SLOTS} are planned."
            )
        if not _is_amount(node.memory_bytes, infinite=True) or not node.memory_bytes:
            raise InvalidOption(
                f"memory_bytes {here} is {show(node.memory_bytes)}.", hint="It is above 0."
            )
        if not node.slowdown or not all(_is_amount(x) and x > 0 for x in node.slowdown):
            raise InvalidOption(
                f"slowdown {here} is {show(node.slowdown)}.",
                hint="It is the factor of a step's time at 1, 2, ... busy workers, each above 0.",
            )
    for name in ("local", "link"):
        _check_link(name, getattr(cluster, name))
    for field in fields(cluster):
        value = getattr(cluster, field.name)
        if isinstance(value, float) and not _is_amount(value):
            raise InvalidOption(f"{field.name} of the cluster is {show(value)}.", hint=_NUMBER)
    if cluster.deviation > _MOST_DEVIATION:
        raise InvalidOption(
            f"deviation of the cluster is {show(cluster.deviation)}.",
            hint=f"It is relative, and at most {_MOST_DEVIATION:.0f}.",
        )
    for part, nodes in load.placement.items():
        if not nodes & names:
            raise InvalidOption(
                f"Partition {part} lies on no node of the cluster.",
                hint=f"It lies on {', '.join(sorted(nodes)) or 'none'}.",
            )


def _check_link(name: str, link: Link) -> None:
    if not _is_amount(link.latency_s):
        raise InvalidOption(f"latency_s of {name} is {show(link.latency_s)}.", hint=_NUMBER)
    if not _is_amount(link.bytes_per_s, infinite=True) or link.bytes_per_s < 1:
        raise InvalidOption(
            f"bytes_per_s of {name} is {show(link.bytes_per_s)}.", hint="It is 1 or more."
        )


def _is_amount(value: object, *, infinite: bool = False) -> bool:
    """Return whether a value is a number from 0."""
    return is_number(value, 0, _MOST_AMOUNT) or (infinite and value == math.inf)
