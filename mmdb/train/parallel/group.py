"""Who is in a group of workers that train one candidate together, and where they meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mmdb.errors import InvalidOption

#: The library that carries tensors between the members: over TCP, or between GPUs.
Backend = Literal["gloo", "nccl"]


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
        InvalidOption: it says none.
    """
    try:
        group = Group(**raw)
    except TypeError as error:
        raise InvalidOption(f"member is {dict(raw)!r}, which is no place in a group.") from error
    if not 0 <= group.rank < group.size or group.backend not in ("gloo", "nccl"):
        raise InvalidOption(f"member is {dict(raw)!r}, which is no place in a group.")
    return group
