"""A profile as the machines of a plan."""

from __future__ import annotations

from collections.abc import Sequence

from mmdb.plan.cost import Cluster, Link, Node
from mmdb.plan.profile.profile import Profile

#: Shares of a machine's memory that workers may take: the rest is the database's and the system's.
_MEMORY_SHARE = 0.75
#: A machine that nobody has looked at.
_ASSUMED_CORES, _ASSUMED_BYTES = 2, 4 * 2**30
#: A state of this many bytes decides what a byte of one costs; so many are next to nothing.
_STATE_BYTES, _SMALL_BYTES = 2.0**22, 256.0
#: Queries of a hop whose candidate the session knows.
HOP_QUERIES = 8


def cluster_of(profile: Profile, names: Sequence[str] = ("",), slots: int | None = None) -> Cluster:
    """Return machines that are all as the one that was measured.

    Args:
        names: of the nodes.
        slots: workers that each may have; its cores if left out.
    """
    machine = profile.stamp.machine if profile.stamp else None
    count = slots or (machine.cores if machine else _ASSUMED_CORES)
    memory = _MEMORY_SHARE * (machine.memory_bytes if machine else _ASSUMED_BYTES)
    slowdown = profile.slowdown(count)
    nodes = tuple(
        Node(name=name, slots=count, memory_bytes=memory, slowdown=slowdown) for name in names
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


def local_link(profile: Profile) -> tuple[Link, float]:
    """Return the way between two workers of a node, and the fixed cost of a collective operation.

    A sum over g workers takes start + 2 (g - 1) latency + 2 (g - 1) / g * bytes / bandwidth (see
    `mmdb.plan.equations.collective`). Without four workers the smallest sums do not tell the start
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


def hop_s(profile: Profile) -> float:
    """Return what a hop costs whatever its rows and its state's bytes."""
    fixed = (profile.seconds(kind, 0.0) for kind in ("state_hash", "publish"))
    return HOP_QUERIES * profile.seconds("query", 1.0) + sum(fixed)


def read_row_s(profile: Profile, row_bytes: float, *, pixels: bool = False) -> float:
    """Return what bringing a row out of the database into the node's cache takes.

    Args:
        row_bytes: as it is kept in a block.
        pixels: whether it is a byte string, which becomes four times as large.
    """
    decode_s = profile.seconds("decode_pixels" if pixels else "decode", row_bytes)
    return row_bytes * profile.unit_s("read") + decode_s


def _sum(profile: Profile, *kinds: str) -> float:
    return sum(profile.unit_s(kind, _STATE_BYTES) for kind in kinds)
