"""Seconds of processors and bytes on cables, while something runs."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.bench.train.memory import tree
from tests.cluster import Cluster
from tests.network.link import Traffic
from tests.network.network import Host, Network

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_s(server: Cluster) -> float:
    """Return the processor time of a server's sessions so far, ended ones included."""
    return sum(_stat_s(pid, ended=pid == server.pid) for pid in tree([server.pid]))


def _stat_s(pid: int, *, ended: bool) -> float:
    """Return a process's time; with that of the children it has waited for, if `ended`."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    fields = text.rpartition(")")[2].split()  # from the third on: see proc(5)
    return sum(int(field) for field in fields[11 : 15 if ended else 13]) / TICKS_PER_S


@dataclass(slots=True)
class Cost:
    """What a stretch of time took.

    Attributes:
        seconds: by the clock.
        servers_s: processor time of each server.
        driver_s: processor time of this process.
        between_bytes: frames from one node to another.
        coordinator_bytes: frames between the coordinator and the nodes, both ways.
    """

    seconds: float
    servers_s: list[float]
    driver_s: float
    between_bytes: int
    coordinator_bytes: int


class Meter:
    """Measures what its `with` block costs.

    What nodes receive comes from other nodes or from the coordinator, and what the coordinator
    sends goes to nodes or to this process; so the nodes' own exchange can be told from the rest.

    Args:
        servers: to be watched, the coordinator first.
        hosts: of these.
    Attributes:
        cost: of the block, when it has ended.
    """

    def __init__(self, network: Network, servers: Sequence[Cluster], hosts: Sequence[Host]) -> None:
        self._network, self._servers, self._hosts = network, servers, hosts
        self.cost: Cost

    def __enter__(self) -> Self:
        self._before = self._read()
        return self

    def __exit__(self, *_: object) -> None:
        before, after = self._before, self._read()
        links = [now - then for now, then in zip(after.links, before.links, strict=True)]
        us, coordinator, *nodes = links
        # This process talks to the coordinator alone.
        from_coordinator = coordinator.sent - us.received
        to_coordinator = coordinator.received - us.sent
        received = sum(node.received for node in nodes)
        self.cost = Cost(
            seconds=after.at - before.at,
            servers_s=[b - a for a, b in zip(before.servers_s, after.servers_s, strict=True)],
            driver_s=after.driver_s - before.driver_s,
            between_bytes=received - from_coordinator,
            coordinator_bytes=from_coordinator + to_coordinator,
        )

    def _read(self) -> _Reading:
        times = os.times()
        return _Reading(
            at=time.monotonic(),
            servers_s=[cpu_s(server) for server in self._servers],
            driver_s=times.user + times.system,
            links=[link.traffic() for link in (self._network.link, *(h.link for h in self._hosts))],
        )


@dataclass(slots=True)
class _Reading:
    at: float
    servers_s: list[float]
    driver_s: float
    links: list[Traffic]
