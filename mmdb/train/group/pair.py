"""The connection of two members, by which each sends its tensor and takes the other's.

A thread that sends and receives by itself is woken once. gloo's all-reduce goes through two more
threads in each process, and where members have no core to spare those wait for the scheduler: sums
of 80 kB took 1.5 ms on two cores, and take a tenth of a millisecond.
"""

from __future__ import annotations

import hmac
import secrets
import selectors
import socket
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from mmdb.train.values.spec import WorkerGroup

#: Bytes that are sent at once, so that what arrives is taken meanwhile.
_PIECE = 1 << 16
_KEY, _TOKEN_BYTES = "pair", 16


def connect_pair(store: Any, group: WorkerGroup, address: str, limit_s: float) -> socket.socket:
    """Return the connection between two members that are both at the rendezvous.

    The first one listens, and lets in who has the token that it left in the group's store.

    Args:
        address: of this machine, as the other one reaches it.
    Raises:
        RuntimeError: the other one is gone again.
    """
    try:
        reach = _accepted if group.rank == 0 else _connected
        connection = reach(store, address, limit_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
    except (OSError, ValueError) as error:
        raise RuntimeError(f"the other member does not connect: {error}") from error
    return connection


def _accepted(store: Any, address: str, limit_s: float) -> socket.socket:
    token, deadline = secrets.token_bytes(_TOKEN_BYTES), monotonic() + limit_s
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        store.set(_KEY, f"{address} {server.getsockname()[1]} {token.hex()}")
        while True:
            server.settimeout(max(0.001, deadline - monotonic()))
            connection, _ = server.accept()
            connection.settimeout(max(0.001, deadline - monotonic()))
            with suppress(OSError):
                said = connection.recv(_TOKEN_BYTES, socket.MSG_WAITALL)
                if hmac.compare_digest(said, token):
                    return connection
            connection.close()


def _connected(store: Any, _: str, limit_s: float) -> socket.socket:
    address, port, token = store.get(_KEY).decode().split()
    connection = socket.create_connection((address, int(port)), limit_s)
    connection.sendall(bytes.fromhex(token))
    return connection


def sum_of_two(
    connection: socket.socket,
    rank: int,
    flat: Tensor,
    room: dict[str, Tensor],
    poll_s: float,
    look: Callable[[], None],
) -> None:
    """Replace `flat`, (n,), by the sum of both members', the first one's plus the second one's.

    Args:
        room: keeps what arrives, from one sum to the next.
        look: is called where nothing came for `poll_s`; may raise to end the wait.
    Raises:
        RuntimeError: the other member is gone.
    """
    its = room.get("pair")
    if its is None or its.dtype != flat.dtype or its.numel() < flat.numel():
        its = room["pair"] = torch.empty_like(flat)
    its = its[: flat.numel()]
    try:
        _swap(connection, _bytes_of(flat), _bytes_of(its), poll_s, look)
    except OSError as error:
        raise RuntimeError(f"the other member is gone: {error}") from error
    torch.add(*((flat, its) if rank == 0 else (its, flat)), out=flat)


def _bytes_of(flat: Tensor) -> memoryview:
    return flat.numpy().data.cast("B")


def _swap(
    connection: socket.socket,
    mine: memoryview,
    its: memoryview,
    poll_s: float,
    look: Callable[[], None],
) -> None:
    """Send bytes while as many are received."""
    sent = taken = 0
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while sent < len(mine) or taken < len(its):
            ready = selector.select(poll_s)
            if not ready:
                look()
            for _, events in ready:
                with suppress(BlockingIOError):
                    if events & selectors.EVENT_WRITE:
                        sent += connection.send(mine[sent : sent + _PIECE])
                        if sent == len(mine):
                            selector.modify(connection, selectors.EVENT_READ)
                with suppress(BlockingIOError):
                    if events & selectors.EVENT_READ:
                        count = connection.recv_into(its[taken:])
                        if not count:
                            raise ConnectionError("it has closed the connection")
                        taken += count
