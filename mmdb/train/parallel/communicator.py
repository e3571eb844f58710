"""A member's side of a group: messages to all members, and sums over them in rank order.

A wait ends when the session is cancelled, when another member has failed (it leaves word in the
rendezvous' store), when a connection closes, or after the group's time-out. What ended a wait has
broken the group: its members leave it, and meet anew under another name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic, sleep
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmdb.errors import Cancelled, GroupBroken
from mmdb.train.compute.device import CPU
from mmdb.train.parallel import sums
from mmdb.train.parallel.failure import heed_word, leave_word
from mmdb.train.parallel.group import Backend, Group
from mmdb.train.parallel.transport import connect, drop, reach

Stopped = Callable[[], bool]

#: Seconds between two looks at what else could end a wait.
POLL_S = 0.05
#: Seconds between two looks at whether a GPU has done an operation.
_GPU_POLL_S = 0.0001


class Communicator:
    """One member's connections to the other members of its group."""

    def __init__(self, group: Group, device: torch.device, stopped: Stopped) -> None:
        """Meet the other members.

        Raises:
            GroupBroken: one did not come, or failed. Cancelled, DeviceMissing
        """
        self.group = group
        self.closed = False
        self._device = device if group.backend == "nccl" else CPU
        self._stopped = stopped
        self._store: Any = None
        self._process_group: Any = None
        self._pending: Any = None
        self._room: dict[str, Tensor] = {}
        if group.size > 1:
            self._store = reach(group)
            self._meet()
            with self._blaming_the_group():
                self._process_group = connect(self._store, group, self._device)

    def gather(self, message: bytes) -> list[bytes]:
        """Return each member's message, in rank order.

        Raises:
            GroupBroken, Cancelled, or what another member failed with.
        """
        if self.group.size == 1:
            return [message]
        sizes = self._gather(torch.tensor([len(message)])).tolist()
        padded = np.zeros(max(sizes), dtype=np.uint8)
        padded[: len(message)] = np.frombuffer(message, dtype=np.uint8)
        rows = self._gather(torch.from_numpy(padded)).view(self.group.size, -1)
        pairs = zip(rows, sizes, strict=True)
        return [row[:size].numpy().tobytes() for row, size in pairs]

    def sum(self, flat: Tensor) -> None:
        """Replace `flat`, (n,), by the sum of all members' in rank order.

        Raises:
            GroupBroken, Cancelled, or what another member failed with.
        """
        rank, size = self.group.rank, self.group.size
        if size == 1 or not flat.numel():
            return
        here = flat.to(self._device)
        with self._blaming_the_group():
            if size == 2:
                sums.all_reduce(self._process_group, here, self._wait)
            elif self.group.backend == "gloo":
                sums.direct(self._process_group, rank, size, here, self._wait, self._room)
            else:
                sums.all_to_all(self._process_group, size, here, self._wait)
        if here is not flat:
            flat.copy_(here)

    @contextmanager
    def during(self, stopped: Stopped) -> Iterator[None]:
        """Inside the block waits ask `stopped`; an error in it reaches the other members."""
        self._stopped = stopped
        try:
            yield
        except BaseException as error:
            if self._store is not None:
                leave_word(self._store, self.group.rank, error)
            self.close()
            raise

    def close(self) -> None:
        """Leave the group; the others' waits end."""
        self.closed = True
        process_group, self._process_group = self._process_group, None
        if process_group is not None:
            drop(process_group, self._pending)

    def _gather(self, tensor: Tensor) -> Tensor:
        found = torch.empty(len(tensor) * self.group.size, dtype=tensor.dtype, device=self._device)
        with self._blaming_the_group():
            self._wait(self._process_group._allgather_base(found, tensor.to(self._device)))
        return found.cpu()

    def _meet(self) -> None:
        with self._blaming_the_group():
            self._store.set(f"here {self.group.rank}", "")
            missing = set(range(self.group.size))
            deadline, pause_s = monotonic() + self.group.timeout_s, 0.001
            while missing := {r for r in missing if not self._store.check([f"here {r}"])}:
                who = ", ".join(map(str, sorted(missing)))
                self._look(deadline, f"Rank {who} of {self.group.size} did not come to the group.")
                sleep(pause_s)
                pause_s = min(2 * pause_s, POLL_S)

    def _wait(self, work: Any) -> None:
        """Wait until an operation is done.

        Raises:
            RuntimeError: the operation failed.
        """
        self._pending = work
        deadline = monotonic() + self.group.timeout_s
        while not _done_soon(work, self.group.backend):
            self._look(deadline, "Another worker of the group did not answer in time.")
        work.wait()

    def _look(self, deadline: float, late: str) -> None:
        """Raise what ends a wait, if anything does."""
        if self._stopped():
            raise Cancelled("The hop was cancelled.")
        heed_word(self._store, self.group.rank)
        if monotonic() > deadline:
            raise GroupBroken(late)

    @contextmanager
    def _blaming_the_group(self) -> Iterator[None]:
        """Turn what torch.distributed raises into the error of the member that caused it."""
        try:
            yield
        except RuntimeError as error:
            heed_word(self._store, self.group.rank)
            reason = str(error).split("] ")[-1].splitlines()[0][:200]
            raise GroupBroken(f"Rank {self.group.rank} lost its group: {reason}") from error


def _done_soon(work: Any, backend: Backend) -> bool:
    """Wait for an operation, but no longer than POLL_S; return whether it is done or has failed."""
    if backend == "gloo":
        try:
            if not work.is_completed():
                work.wait(timedelta(seconds=POLL_S))
        except RuntimeError:
            pass  # POLL_S are over, or it failed
        return bool(work.is_completed())
    until = monotonic() + POLL_S
    while not work.is_completed() and monotonic() < until:
        sleep(_GPU_POLL_S)
    return bool(work.is_completed())


class Membership:
    """The group that a session is in, at most one; it stays connected until it is in another."""

    def __init__(self) -> None:
        self._communicator: Communicator | None = None

    def join(
        self, group: Group, device: torch.device = CPU, stopped: Stopped = lambda: False
    ) -> Communicator:
        """Return the connections to a group; those at hand if the session is in it already.

        Raises:
            GroupBroken: a member did not come, or failed. Cancelled, DeviceMissing
        """
        now = self._communicator
        if now is not None and now.group == group and not now.closed:
            return now
        self.leave()
        self._communicator = Communicator(group, device, stopped)
        return self._communicator

    def leave(self) -> None:
        """Leave the group, if the session is in one."""
        if self._communicator is not None:
            self._communicator.close()
            self._communicator = None
