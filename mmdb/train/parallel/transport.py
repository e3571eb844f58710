"""torch.distributed at the edge: a store, its clients, and the process group of some members.

A process group of its own, not torch's global one: a session may leave a broken group at once and
join another.
"""

from __future__ import annotations

import os
import socket
import threading
from datetime import timedelta
from time import sleep
from typing import Any

import torch
from torch import distributed

from mmdb.errors import DeviceMissing, GroupBroken
from mmdb.train.parallel.group import Group
from mmdb.train.threads import start_without_signals

#: Seconds for what takes milliseconds once all members are there.
_CONNECT_S = 10.0
#: Seconds between two looks at whether a group that was left can be closed.
_CLOSE_POLL_S = 0.02


def serve(host: str, port: int, descriptor: int) -> Any:
    """Return a store that answers on a listening socket for as long as it is kept.

    Args:
        descriptor: of the socket, which belongs to the store from now on.
    """
    return distributed.TCPStore(  # type: ignore[attr-defined]
        host,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=_CONNECT_S),
        master_listen_fd=descriptor,
    )


def reach(group: Group) -> Any:
    """Return a client of the rendezvous' store that sees this group's keys alone.

    Raises:
        GroupBroken: nothing answers there.
    """
    limit = timedelta(seconds=min(_CONNECT_S, group.timeout_s))
    try:
        store = distributed.TCPStore(  # type: ignore[attr-defined]
            group.host, group.port, is_master=False, wait_for_workers=False, timeout=limit
        )
    except RuntimeError as error:
        raise GroupBroken(
            f"No rendezvous answers at {group.host}:{group.port}.",
            hint="Every worker must reach the driver's rendezvous address.",
        ) from error
    return view(store, group.name)


def view(store: Any, name: str) -> Any:
    """Return a group's part of a store."""
    return distributed.PrefixStore(name, store)  # type: ignore[attr-defined]


def connect(store: Any, group: Group, device: torch.device) -> Any:
    """Return a process group of members that are all at the rendezvous.

    Raises:
        DeviceMissing: this torch has no such backend.
        RuntimeError: a member is gone again.
    """
    if group.backend == "nccl":
        return _connect_nccl(store, group, device)
    kind: Any = distributed.ProcessGroupGloo
    options = kind._Options()
    # The host's name may resolve to an address that other machines, or no one, can reach.
    options._devices = [kind.create_device(hostname=_own_address(group))]
    options._timeout = timedelta(seconds=min(_CONNECT_S, group.timeout_s))
    made = kind(store, group.rank, group.size, options)
    made.set_timeout(timedelta(seconds=group.timeout_s))
    return made


def _connect_nccl(store: Any, group: Group, device: torch.device) -> Any:
    kind: Any = getattr(distributed, "ProcessGroupNCCL", None)
    if kind is None or device.type != "cuda":
        raise DeviceMissing(
            f"A group over nccl needs NVIDIA GPUs; this worker has {device}.",
            hint="Start every worker of the group on a GPU: --device cuda:0.",
        )
    # Else a watchdog ends the process, and inside PostgreSQL all sessions with it.
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    options = kind.Options()
    options._timeout = timedelta(seconds=group.timeout_s)
    with torch.cuda.device(device):
        return kind(store, group.rank, group.size, options)


def _own_address(group: Group) -> str:
    """Return the address by which this machine reaches the rendezvous; sends nothing."""
    family = socket.getaddrinfo(group.host, group.port, type=socket.SOCK_DGRAM)[0][0]
    with socket.socket(family, socket.SOCK_DGRAM) as probing:
        probing.connect((group.host, group.port))
        return str(probing.getsockname()[0])


def drop(process_group: Any, pending: Any) -> None:
    """Close a process group's connections, without waiting for it.

    Whoever lets go of it last waits for 10 ms, and as long as an operation is under way; so it is
    kept until `pending`, the last operation, has come to an end.
    """
    kept = [process_group]

    def body() -> None:
        while pending is not None and not pending.is_completed():
            sleep(_CLOSE_POLL_S)
        kept.clear()

    closing = threading.Thread(target=body, name="mmdb-leave-group", daemon=True)
    start_without_signals(closing)
