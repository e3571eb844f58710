"""Clusters that plans are made for: described in JSON, or as a profile measured them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from mmdb.arguments import check_flag, check_known, is_number, is_whole, unfit
from mmdb.errors import InvalidOption
from mmdb.messages import show
from mmdb.plan.cost import MOST_NODES, Cluster, ClusterNode, Link

if TYPE_CHECKING:
    from mmdb.plan.profile.machine_profile import MachineProfile
    from mmdb.plan.profile.measurements import Machine

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
    check_known(description, _KNOWN, "The description of cluster knows no")
    base = base or Cluster(nodes=(ClusterNode(),))
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


def _nodes(given: object, like: ClusterNode) -> tuple[ClusterNode, ...]:
    groups: Sequence[object] = [{"count": given}] if not isinstance(given, list) else given
    found: list[ClusterNode] = []
    for group in groups:
        one = _mapping("nodes", group)
        check_known(one, ("name", "count", *_NODE), "The description of nodes knows no")
        count = _whole("count of nodes", one.get("count", 1))
        if len(found) + count > MOST_NODES:
            raise InvalidOption(
                f"The cluster has more than {MOST_NODES} nodes.",
                hint=f"Describe 1 to {MOST_NODES}.",
            )
        name = one.get("name", "")
        if not isinstance(name, str):
            raise unfit("The name of a node", name, "It is a text.")
        for k in range(count):
            alone = name and count == 1
            full = name if alone else f"{name or 'node'} {len(found) + 1 if not name else k + 1}"
            found.append(replace(_node("nodes", one, like), name=full))
    if not found:
        raise InvalidOption("The cluster has no nodes.", hint=f"Describe 1 to {MOST_NODES}.")
    return tuple(found)


def _node(where: str, given: Mapping[str, Any], like: ClusterNode) -> ClusterNode:
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
    check_known(numbers, ("latency_s", "bytes_per_s"), f"The description of {name} knows no")
    return replace(like, **{key: _number(f"{key} of {name}", x) for key, x in numbers.items()})


def _mapping(name: str, given: object) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise unfit(name, given, "It is an object of names and values.")
    return given


def _number(name: str, value: object) -> float:
    if not is_number(value, -math.inf, math.inf):
        raise unfit(name, value, "It is a number.")
    try:
        return float(value)
    except OverflowError:
        raise unfit(name, value, "It is too large.") from None


def _whole(name: str, value: object) -> int:
    if not is_whole(value, 1):
        raise unfit(name, value, "It is a whole number from 1.")
    return value


#: Shares of a machine's memory that workers may take: the rest is the database's and the system's.
_MEMORY_SHARE = 0.75
#: A machine that nobody has looked at.
_ASSUMED_CORES, _ASSUMED_BYTES = 2, 4 * 2**30
#: A state of this many bytes decides what a byte of one costs; so many are next to nothing.
_STATE_BYTES, _SMALL_BYTES = 2.0**22, 256.0
#: Queries of a hop whose candidate the session knows.
HOP_QUERIES = 8


def measured_cluster(
    profile: MachineProfile,
    names: Sequence[str] = ("",),
    slots: int | None = None,
    machine: Machine | None = None,
) -> Cluster:
    """Return machines that are all as the one that was measured.

    Args:
        names: of the nodes.
        slots: workers that each may have; its cores if left out.
        machine: what they are; what was measured if left out.
    """
    machine = machine or (profile.stamp.machine if profile.stamp else None)
    count = slots or (machine.cores if machine else _ASSUMED_CORES)
    memory = _MEMORY_SHARE * (machine.memory_bytes if machine else _ASSUMED_BYTES)
    slowdown = profile.slowdown(count)
    nodes = tuple(
        ClusterNode(name=name, slots=count, memory_bytes=memory, slowdown=slowdown)
        for name in names
    )
    local, start_s = local_link(profile)
    return Cluster(
        nodes=nodes,
        local=local,
        link=local,
        start_s=start_s,
        meet_s=profile.seconds("meet", 2.0),
        encode_byte_s=profile.unit_s("state_hash", _STATE_BYTES),
        publish_byte_s=_sum(profile, "state_encode", "publish"),
        load_byte_s=_sum(profile, "load", "state_decode"),
        checkpoint_byte_s=profile.unit_s("checkpoint", _STATE_BYTES),
        merge_byte_s=profile.unit_s("merge", _STATE_BYTES),
        update_byte_s=profile.unit_s("update_sgd", _STATE_BYTES),
        deviation=profile.deviation(),
    )


def local_link(profile: MachineProfile) -> tuple[Link, float]:
    """Return the way between two workers of a node, and the fixed cost of a collective operation.

    A sum over g workers takes start + 2 (g - 1) latency + 2 (g - 1) / g * bytes / bandwidth (see
    `mmdb.plan.equations`). Without four workers the smallest sums do not tell the start
    from the latencies; half of their time is taken for each.
    """
    two_s = profile.seconds("all_reduce_2", _SMALL_BYTES)
    latency_s = two_s / 4
    if "all_reduce_4" not in profile.assumed:
        four_s = profile.seconds("all_reduce_4", _SMALL_BYTES)
        latency_s = min(max(0.0, (four_s - two_s) / 4), two_s / 2)
    byte_s = profile.unit_s("all_reduce_2", _STATE_BYTES)
    link = Link(latency_s=latency_s, bytes_per_s=1 / max(byte_s, 1e-12))
    return link, two_s - 2 * latency_s


def hop_s(profile: MachineProfile) -> float:
    """Return what a hop costs whatever its rows and its state's bytes."""
    fixed = (profile.seconds(kind, 0.0) for kind in ("state_hash", "publish"))
    return HOP_QUERIES * profile.seconds("query", 1.0) + sum(fixed)


def read_row_s(profile: MachineProfile, row_bytes: float, *, pixels: bool = False) -> float:
    """Return what bringing a row out of the database into the node's cache takes.

    Args:
        row_bytes: as it is kept in a block.
        pixels: whether it is a byte string, which becomes four times as large.
    """
    decode_s = profile.seconds("decode_pixels" if pixels else "decode", row_bytes)
    return row_bytes * profile.unit_s("read") + decode_s


def _sum(profile: MachineProfile, *kinds: str) -> float:
    return sum(profile.unit_s(kind, _STATE_BYTES) for kind in kinds)
