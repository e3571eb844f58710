"""Where the members of a group meet: the driver's store and torch's process group."""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
from collections.abc import Sequence
from datetime import timedelta
from time import sleep
from typing import Any

import torch
from torch import distributed

from mmdb.errors import (
    DeviceMissing,
    GroupBroken,
    HopError,
    MmdbError,
    TrainingFailed,
    from_sqlstate,
)
from mmdb.train.group.pair import connect_pair
from mmdb.train.values.runtime import start_without_signals, trace_of
from mmdb.train.values.spec import Backend, WorkerGroup

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


def reach(group: WorkerGroup) -> Any:
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


def connect(store: Any, group: WorkerGroup, device: torch.device) -> Any:
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


def pair_of(store: Any, group: WorkerGroup) -> socket.socket:
    """Return the connection of two members that are both at the rendezvous.

    Raises:
        RuntimeError: the other one is gone again.
    """
    limit_s = min(_CONNECT_S, group.timeout_s)
    return connect_pair(store, group, _own_address(group), limit_s)


def _connect_nccl(store: Any, group: WorkerGroup, device: torch.device) -> Any:
    kind: Any = getattr(distributed, "ProcessGroupNCCL", None)
    if kind is None or distributed.get_default_backend_for_device(device) != "nccl":
        raise DeviceMissing(
            f"A group over nccl needs NVIDIA GPUs; this worker has {device}.",
            hint="Start every worker of the group on a GPU: --device cuda:0.",
        )
    # Else a watchdog ends the process, and inside PostgreSQL all sessions with it.
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    options = kind.Options()
    options._timeout = timedelta(seconds=group.timeout_s)
    with torch.accelerator.device_index(device.index):
        return kind(store, group.rank, group.size, options)


def _own_address(group: WorkerGroup) -> str:
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


_KEY = "failure"
#: The driver's, where members have ranks.
DRIVER = -1


def leave_word(store: Any, rank: int, error: BaseException) -> None:
    """Say why a group's round ends; the first word stands.

    Args:
        store: the group's part of the rendezvous' store.
        rank: of the member that failed, or DRIVER.
    """
    known = error if isinstance(error, MmdbError) else HopError(repr(error))
    word = {
        "rank": rank,
        "sqlstate": known.sqlstate,
        "message": known.message,
        "hint": known.hint,
        "trace": trace_of(error),
    }
    try:
        store.compare_set(_KEY, "", json.dumps(word))
    except RuntimeError:
        pass  # the rendezvous is gone: the others notice that


def heed_word(store: Any, rank: int) -> None:
    """Raise the error that another member has left word of, if one has.

    Raises:
        MmdbError: of the class that it met.
        GroupBroken: the store does not answer.
    """
    try:
        if not store.check([_KEY]):
            return
        word = json.loads(store.get(_KEY))
    except RuntimeError as error:
        raise GroupBroken("The driver's rendezvous does not answer any more.") from error
    if word["rank"] == rank:
        return
    found = from_sqlstate(word["sqlstate"], word["message"], word["hint"])
    assert found is not None
    if isinstance(found, TrainingFailed):
        found.trace = word["trace"]
    raise found


#: Connections that wait to be accepted.
_BACKLOG = 128


class Rendezvous:
    """Where the members of groups meet: a store of small values, served by threads of this process.

    It listens on one address, without a password: anyone who reaches it can join or break a group.
    Keep it on the loopback address, or in a network of which every machine is trusted.
    """

    def __init__(
        self, host: str = "127.0.0.1", *, backend: Backend = "gloo", timeout_s: float = 60.0
    ) -> None:
        """Listen on a free port of `host`: an address of this machine that all members reach.

        Raises:
            OSError: the address is not of this machine.
        """
        family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
        with socket.create_server((host, 0), family=family, backlog=_BACKLOG) as listening:
            self._host, self._port = host, int(listening.getsockname()[1])
            self._store = _serve(host, self._port, listening.detach())
        self._backend: Backend = backend
        self._timeout_s = timeout_s
        self._names: dict[tuple[str, ...], str] = {}
        self._latest: dict[str, str] = {}  # of each session, the group that it was last asked into

    def group(self, members: Sequence[str]) -> tuple[WorkerGroup, ...]:
        """Return the members' places, in rank order; the same group while they stay together.

        Sessions that were in another group meanwhile have left this one. They meet under a new
        name, since under the old one they would find the addresses that they had then. Nobody
        guesses it: whoever knows the name of a group and its port can join it.

        Args:
            members: names of sessions in rank order. A session that was opened anew has a new name.
        """
        key = tuple(members)
        name = self._names.get(key)
        if name is None or any(self._latest.get(one) != name for one in key):
            name = self._names[key] = f"group {secrets.token_hex(16)}"
        self._latest |= dict.fromkeys(key, name)
        return tuple(
            WorkerGroup(
                name=name,
                rank=rank,
                size=len(members),
                host=self._host,
                port=self._port,
                backend=self._backend,
                timeout_s=self._timeout_s,
            )
            for rank in range(len(members))
        )

    def part(self, members: Sequence[str]) -> None:
        """End the members' group: one of them has failed, and the others may wait for it.

        Their waits end at once, also for a member that never came. Next time they meet anew.
        """
        name = self._names.pop(tuple(members), None)
        if name is not None:
            lost = GroupBroken("Another worker of the group failed or was lost.")
            leave_word(view(self._store, name), DRIVER, lost)

    def close(self) -> None:
        """Stop listening."""
        self._store = None


def _serve(host: str, port: int, descriptor: int) -> Any:
    """Start the store in a thread whose threads no signal handler runs in."""
    stores: list[Any] = []
    thread = threading.Thread(
        target=lambda: stores.append(serve(host, port, descriptor)), name="mmdb-rendezvous"
    )
    start_without_signals(thread)
    thread.join()
    return stores[0]
