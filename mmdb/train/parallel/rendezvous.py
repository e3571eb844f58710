"""The driver's side of groups: it names them, and holds the store in which members meet."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from itertools import count
from typing import Any

from mmdb.errors import GroupBroken
from mmdb.train.parallel.failure import DRIVER, leave_word
from mmdb.train.parallel.group import Backend, Group
from mmdb.train.parallel.transport import serve, view
from mmdb.train.threads import start_without_signals

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
        self._numbers = count()

    def group(self, members: Sequence[str]) -> tuple[Group, ...]:
        """Return the members' places, in rank order; the same group while they stay together.

        Sessions that were in another group meanwhile have left this one. They meet under a new
        name, since under the old one they would find the addresses that they had then.

        Args:
            members: names of sessions in rank order. A session that was opened anew has a new name.
        """
        key = tuple(members)
        name = self._names.get(key)
        if name is None or any(self._latest.get(one) != name for one in key):
            name = self._names[key] = f"group {next(self._numbers)}"
        self._latest |= dict.fromkeys(key, name)
        return tuple(
            Group(
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
