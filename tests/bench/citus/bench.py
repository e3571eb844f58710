"""Runs on Citus beside the same runs on one PostgreSQL: places, bits, time, bytes and processors.

    python -m tests.bench.citus.bench --nodes 2 4

All servers are on this machine, each on a host of its own of a network made for the purpose, so
that every byte between them is counted. A single server with as many workers trains the same runs
in turns with the cluster. Needs Citus, and the right to make networks.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

import psycopg

import mmdb
from mmdb.bench.command import show
from mmdb.bench.figures import Figure, report, write_json
from mmdb.db.connection import Row
from mmdb.db.install import install
from tests.bench.citus.meter import Cost, Meter
from tests.bench.citus.run import (
    Work,
    bits,
    changes,
    create_run,
    hops_of,
    idleness,
    make_dataset,
    makespan,
    nodes_of,
)
from tests.citus_cluster import CitusCluster, has_citus
from tests.cluster import Cluster
from tests.network.network import Host, Network
from tests.network.servers import HostedServer

#: Hops of a second, states of 10.6 MB.
WORK = Work(
    rows=60_000,
    width=256,
    hidden=(1024, 1024),
    rates=(0.05, 0.02, 0.01, 0.005, 0.002, 0.001),
    partitions=8,
    epochs=1,
    validation=0.05,
)
ROUNDS = 3
ORDERS = ("fixed", "free")
TIME_BAR, BYTES_BAR, COORDINATOR_BAR = 1.10, 1.1, 0.05


@dataclass(frozen=True, slots=True)
class Trained:
    """A run, and what it cost."""

    cost: Cost
    hops: list[Row]


@dataclass(slots=True)
class Arm:
    """Servers with one database."""

    url: str
    servers: Sequence[Cluster]  # the one that clients talk to first
    hosts: Sequence[Host]
    trained: dict[str, list[Trained]] = field(default_factory=dict)  # by order

    def train(self, network: Network, order: str, round_: int, workers: int) -> Trained:
        """Train a run in a session of its own."""
        with mmdb.connect(self.url) as db:
            name = f"{order}-{round_}"
            run = create_run(db, name, WORK, order)
            with Meter(network, self.servers, self.hosts) as meter:
                run.train(workers=workers)
            trained = Trained(meter.cost, hops_of(db, name))
        self.trained.setdefault(order, []).append(trained)
        return trained


def measure(nodes: int, rounds: int) -> Iterator[Figure]:
    """Yield what a cluster with so many nodes comes to, with a worker on each."""
    with (
        Network() as network,
        HostedServer(network.add_host()) as server,
        CitusCluster(nodes, network=network) as cluster,
    ):
        single = Arm(server.create_database("bench"), [server], network.hosts[:1])
        with psycopg.connect(single.url) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS plpython3u")
        spread = Arm(cluster.create_database("bench"), cluster.servers, network.hosts[1:])
        for arm in (single, spread):
            install(arm.url)
            with mmdb.connect(arm.url) as db:
                make_dataset(db, WORK)
        for round_ in range(rounds):
            for order in ORDERS:
                for arm in (single, spread) if round_ % 2 else (spread, single):
                    say(nodes, order, arm is spread, arm.train(network, order, round_, nodes))
        with mmdb.connect(spread.url) as db:
            homes = nodes_of(db)
        yield from figures(f"{nodes} nodes", single, spread, homes)


def figures(where: str, single: Arm, spread: Arm, homes: dict[int, str]) -> Iterator[Figure]:
    """Yield the figures of a cluster beside a single server."""
    every = [trained for order in ORDERS for trained in spread.trained[order]]
    hops = [hop for trained in every for hop in trained.hops]
    astray = sum(
        hop["node"] != homes[hop["part_id"]] and hop["state_in"] != hop["state_out"] for hop in hops
    )  # validations run on any
    yield Figure(
        name=f"{where}: train hops not on their partition's node, of {len(hops)}",
        value=astray,
        unit="hops",
        bar="0",
        holds=astray == 0 and len(set(homes.values())) > 1,
    )
    expected = bits(single.trained["fixed"][0].hops)
    fixed = spread.trained["fixed"]
    other = sum(bits(t.hops) != expected for t in fixed)
    yield Figure(
        name=f"{where}: runs with other bits than one PostgreSQL, of {len(fixed)}",
        value=other,
        unit="runs",
        peer="one PostgreSQL",
        bar="0",
        holds=other == 0 and len(expected) > 0,
    )
    for order in ORDERS:
        yield from times(where, order, single.trained[order], spread.trained[order])
    shares = [trained.cost.between_bytes / moved_bytes(trained) for trained in every]
    yield bounded(f"{where}: bytes between nodes / states that changed node", shares, BYTES_BAR)
    of_clock = [trained.cost.servers_s[0] / trained.cost.seconds for trained in every]
    yield bounded(f"{where}: coordinator's processor time / run's time", of_clock, COORDINATOR_BAR)
    of_all = [t.cost.servers_s[0] / (sum(t.cost.servers_s) + t.cost.driver_s) for t in every]
    yield Figure(
        name=f"{where}: coordinator's share of all processor time",
        value=median(of_all),
        unit="x",
        runs=of_all,
    )


def times(
    where: str, order: str, single: Sequence[Trained], spread: Sequence[Trained]
) -> Iterator[Figure]:
    """Yield how long a cluster takes beside a single server: the whole call, then the hops."""
    pairs = list(zip(spread, single, strict=True))  # one run right after the other
    peer = "one PostgreSQL"
    runs = [ours.cost.seconds / theirs.cost.seconds for ours, theirs in pairs]
    yield bounded(f"{where}, {order} order: time", runs, TIME_BAR, peer)
    runs = [makespan(ours.hops) / makespan(theirs.hops) for ours, theirs in pairs]
    yield bounded(f"{where}, {order} order: first to last hop", runs, TIME_BAR, peer)
    # What the processors were busy with otherwise made hops longer, but no worker idle.
    runs = [idleness(ours.hops) / idleness(theirs.hops) for ours, theirs in pairs]
    yield bounded(f"{where}, {order} order: the same, in seconds of hops", runs, TIME_BAR, peer)


def moved_bytes(trained: Trained) -> int:
    """Return the size of all states that changed node, each time that they did."""
    return sum(hop["state_bytes"] for hop in changes(trained.hops))


def bounded(name: str, runs: list[float], bar: float, peer: str = "") -> Figure:
    """Return a figure whose median must not exceed the bar."""
    value = median(runs)
    holds = value <= bar
    return Figure(
        name=name, value=value, unit="x", peer=peer, bar=f"<= {bar:g}", holds=holds, runs=runs
    )


def say(nodes: int, order: str, is_spread: bool, trained: Trained) -> None:
    """Print a line on a run that has ended."""
    cost, pulls = trained.cost, [hop["load_s"] for hop in changes(trained.hops)]
    phases = ("total", "load", "compute", "store")
    each = ", ".join(
        f"{name} {median(hop[f'{name}_s'] for hop in trained.hops):.2f}" for name in phases
    )
    print(
        f"{nodes} {'nodes' if is_spread else 'workers'}, {order:5} {cost.seconds:6.1f} s, "
        f"hops {makespan(trained.hops):6.1f} s, each {each} s; processors: first server "
        f"{cost.servers_s[0]:.2f} s, others {sum(cost.servers_s[1:]):.1f} s, driver "
        f"{cost.driver_s:.1f} s; between nodes {cost.between_bytes / 1e6:.1f} MB, {len(pulls)} "
        f"states of {moved_bytes(trained) / 1e6:.1f} MB in {median(pulls or [0]):.2f} s each; "
        f"coordinator {cost.coordinator_bytes / 1e6:.1f} MB",
        file=sys.stderr,
        flush=True,
    )


def main() -> int:
    """Measure; return 1 if a bar does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", metavar="FILE")
    given = parser.parse_args()
    if not has_citus():
        parser.error("this machine has no Citus")
    found = [figure for nodes in given.nodes for figure in measure(nodes, given.rounds)]
    show("Citus beside one PostgreSQL", found)
    if given.json:
        write_json(given.json, report("citus", found))
    return 0 if all(figure.holds is not False for figure in found) else 1


if __name__ == "__main__":
    sys.exit(main())
