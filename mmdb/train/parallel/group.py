"""Who is in a group of workers that train one candidate together, and where they meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Literal

from mmdb.errors import InvalidOption
from mmdb.messages import show

#: The library that carries tensors between the members: over TCP, or between GPUs.
Backend = Literal["gloo", "nccl"]

#: The longest that a member may be told to wait for another.
MAX_TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One member's place in a group; plain values that travel to its session as JSON.

    Members that have met stay connected for as long as they are given the same name.
    """

    name: str
    rank: int  # 0..size-1: the order in which gradients are summed
    size: int
    host: str  # of the driver's rendezvous
    port: int
    backend: Backend = "gloo"
    timeout_s: float = 60.0  # how long a member waits for another, a step of it included


def group_of(raw: Mapping[str, Any]) -> Group:
    """Return the place that JSON says.

    Raises:
        InvalidOption: it says none, or a session would have to connect to another machine for it:
            whoever may call `train_group` must not send the server there.
    """
    try:
        group = Group(**raw)
        fits = (
            0 <= group.rank < group.size
            and group.backend in ("gloo", "nccl")
            and (group.host == "localhost" or ip_address(group.host).is_loopback)
            and 0 < group.port < 65536
            and 0 < group.timeout_s <= MAX_TIMEOUT_S
        )
    except (TypeError, ValueError) as error:
        raise _no_place(raw) from error
    if not fits:
        raise _no_place(raw)
    return group


def _no_place(raw: Mapping[str, Any]) -> InvalidOption:
    return InvalidOption(
        f"member is {show(dict(raw))}, which is no place in a group.",
        hint="A driver calls train_group, with a name, rank, size, host of this machine and port.",
    )
