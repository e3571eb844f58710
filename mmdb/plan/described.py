"""A cluster that need not exist, out of a description in JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from mmdb.arguments import check_flag, is_number, is_whole
from mmdb.errors import InvalidOption
from mmdb.messages import show
from mmdb.plan.checks import MOST_NODES
from mmdb.plan.cost import Cluster, Link, Node

_NODE = ("slots", "memory_bytes", "slowdown")
_LINKS = ("link", "local")
_RATES = tuple(
    f.name for f in fields(Cluster) if f.name not in ("nodes", "simulated", "shards", *_LINKS)
)
_KNOWN = ("nodes", *_NODE, *_LINKS, "shards", *_RATES)


def cluster_of(description: Mapping[str, Any], base: Cluster | None = None) -> Cluster:
    """Return the cluster that a description stands for; it is marked as simulated.

    `nodes` is how many there are, all with the `slots`, `memory_bytes` and `slowdown` given beside
    it, or a list of nodes, each with its own and a `count`. `link` (between nodes) and `local`
    (inside a node) have `latency_s` and `bytes_per_s`. `shards` says that each partition lies on
    one node. Every other number is named as in `Cluster`. What is left out is as in `base`.

    >>> found = cluster_of({"nodes": 1000, "slots": 8, "link": {"latency_s": 5e-5}})
    >>> len(found.nodes), found.nodes[0].slots, found.link.latency_s
    (1000, 8, 5e-05)

    Args:
        description: with or without {"cluster": ...} around it.
        base: a measured cluster; its first node is what nodes are like.
    Raises:
        InvalidOption: an unknown name, or a value that cannot be; values of the right type are
            checked when they are planned with.
    """
    if set(description) == {"cluster"}:
        description = _mapping("cluster", description["cluster"])
    _know("cluster", description, _KNOWN)
    base = base or Cluster(nodes=(Node(),))
    given: dict[str, Any] = {
        name: _number(name, description[name]) for name in _RATES if name in description
    }
    for name in _LINKS:
        if name in description:
            given[name] = _link(name, description[name], getattr(base, name))
    shards = check_flag(description.get("shards", base.shards), "shards")
    like = _node("cluster", description, base.nodes[0])
    nodes = _nodes(description.get("nodes", len(base.nodes)), like)
    return replace(base, nodes=nodes, shards=shards, simulated=True, **given)


def _nodes(given: object, like: Node) -> tuple[Node, ...]:
    groups: Sequence[object] = [{"count": given}] if not isinstance(given, list) else given
    found: list[Node] = []
    for group in groups:
        one = _mapping("nodes", group)
        _know("nodes", one, ("name", "count", *_NODE))
        count = _whole("count of nodes", one.get("count", 1))
        if len(found) + count > MOST_NODES:
            raise InvalidOption(
                f"The cluster has more than {MOST_NODES} nodes.",
                hint=f"Describe 1 to {MOST_NODES}.",
            )
        name = one.get("name", "")
        if not isinstance(name, str):
            raise InvalidOption(f"The name of a node is {show(name)}.", hint="It is a text.")
        for k in range(count):
            alone = name and count == 1
            full = name if alone else f"{name or 'node'} {len(found) + 1 if not name else k + 1}"
            found.append(replace(_node("nodes", one, like), name=full))
    if not found:
        raise InvalidOption("The cluster has no nodes.", hint=f"Describe 1 to {MOST_NODES}.")
    return tuple(found)


def _node(where: str, given: Mapping[str, Any], like: Node) -> Node:
    changes: dict[str, Any] = {}
    if "slots" in given:
        changes["slots"] = _whole(f"slots of {where}", given["slots"])
    if "memory_bytes" in given:
        changes["memory_bytes"] = _number("memory_bytes", given["memory_bytes"])
    if "slowdown" in given:
        factors = given["slowdown"]
        if not isinstance(factors, list):
            raise InvalidOption(
                f"slowdown is {show(factors)}.",
                hint="It is a list: the factor of a step's time at 1, 2, ... busy workers.",
            )
        changes["slowdown"] = tuple(_number("slowdown", factor) for factor in factors)
    return replace(like, **changes)


def _link(name: str, given: object, like: Link) -> Link:
    numbers = _mapping(name, given)
    _know(name, numbers, ("latency_s", "bytes_per_s"))
    return replace(like, **{key: _number(f"{key} of {name}", x) for key, x in numbers.items()})


def _mapping(name: str, given: object) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InvalidOption(
            f"{name} is {show(given)}.", hint="It is an object of names and values."
        )
    return given


def _know(where: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise InvalidOption(
                f"The description of {where} knows no {show(name)}.",
                hint=f"Known: {', '.join(known)}.",
            )


def _number(name: str, value: object) -> float:
    if not is_number(value, -math.inf, math.inf):
        raise InvalidOption(f"{name} is {show(value)}.", hint="It is a number.")
    try:
        return float(value)
    except OverflowError:
        raise InvalidOption(f"{name} is {show(value)}.", hint="It is too large.") from None


def _whole(name: str, value: object) -> int:
    if not is_whole(value, 1):
        raise InvalidOption(f"{name} is {show(value)}.", hint="It is a whole number from 1.")
    return value
