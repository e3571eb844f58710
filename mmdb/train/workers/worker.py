"""Workers: one long-lived session each, which does the hops it is given, one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mmdb.db.connection import Row
from mmdb.db.install import Mode, installed_mode
from mmdb.db.nodes import is_spread, keys_of_nodes
from mmdb.db.postgres import PostgresConnection
from mmdb.db.url import AnyConnection
from mmdb.errors import InvalidOption, NoServerFunctions
from mmdb.train.workers.child_workers import ClientWorker, DuckWorker
from mmdb.train.workers.citus_worker import CitusWorker
from mmdb.train.workers.orders import Order
from mmdb.train.workers.postgres_worker import PostgresWorker


class Worker(Protocol):
    """One worker; its methods are called from one thread, `cancel` and `close` from any.

    Attributes:
        node: the machine that computes; known once it is open.
        device: where it computes: "cpu", "cuda:0", ...
    """

    name: str
    node: str
    device: str

    def open(self) -> None:
        """Get a fresh, warm session.

        Raises:
            EngineError: none can be had.
        """

    def do(self, order: Order) -> Sequence[Row]:
        """Do what an order says and return the rows of its hops.

        An objective is None where nothing was validated.

        Raises:
            WorkerLost: the session ended; the hop may be committed or not.
            HopTimedOut: it took longer than `order.limit_s`; the session is ended.
            Cancelled: see `cancel`.
            MmdbError: the hop failed.
        """

    def cancel(self) -> None:
        """Break off the hop under way, if any; `open` comes before the next one."""

    def close(self) -> None:
        """End the session, whatever it is doing."""


def workers_of(
    connection: AnyConnection,
    count: int,
    *,
    mode: Mode | None = None,
    devices: tuple[str, ...] = ("cpu",),
    name: str = "worker",
    nodes: Sequence[str] = (),
) -> list[Worker]:
    """Return `count` workers for the database that `connection` is open on.

    On a cluster each belongs to a node; there are as many on each, as far as possible, and one at
    least.

    Args:
        nodes: of a cluster, those to work on; all that hold partitions if left out.
        mode: on PostgreSQL; None for "server" where mmdb's functions are installed, else "client".
        devices: dealt out in turn.
    Raises:
        NoServerFunctions: mode is "server" and the database has no functions.
        InvalidOption: mode is "client" on a cluster.
    """
    slots = [(f"{name} {k}", devices[k % len(devices)]) for k in range(count)]
    if not isinstance(connection, PostgresConnection):
        return [DuckWorker(slot, connection, device) for slot, device in slots]
    spread = is_spread(connection)
    if mode_of(connection, mode) == "client":
        if spread:
            raise InvalidOption("On Citus hops run in the servers.", hint="Leave the mode out.")
        return [ClientWorker(slot, connection.url, device) for slot, device in slots]
    if not spread:
        return [PostgresWorker(slot, connection.url, device) for slot, device in slots]
    places = nodes or sorted(keys_of_nodes(connection))
    slots += [(f"{name} {k}", devices[k % len(devices)]) for k in range(count, len(places))]
    return [
        CitusWorker(slot, connection.url, places[k % len(places)], device)
        for k, (slot, device) in enumerate(slots)
    ]


def mode_of(connection: PostgresConnection, mode: Mode | None) -> Mode:
    """Return where hops compute, if `mode` leaves it open.

    Raises:
        NoServerFunctions
    """
    installed = installed_mode(connection)
    if mode == "server" and installed == "client":
        raise NoServerFunctions()
    return mode or installed
