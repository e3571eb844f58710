"""A member's side of a group: messages to all members, and sums in rank order.

Sums have the same bits on each member, and in a replay.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic, sleep
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmdb.errors import Cancelled, GroupBroken
from mmdb.memory import ran_out
from mmdb.train.compute.device import CPU
from mmdb.train.group.pair import sum_of_two
from mmdb.train.group.rendezvous import connect, drop, heed_word, leave_word, pair_of, reach
from mmdb.train.values.spec import Backend, WorkerGroup

#: Elements of a piece: large enough for TCP, small enough to add one while others travel.
PIECE = 1 << 20
#: Waits until an operation is done.
Wait = Callable[[Any], None]


def in_rank_order(tensors: Sequence[Tensor]) -> Tensor:
    """Return the sum of the ranks' tensors as the group's sums make it, in one process."""
    total = tensors[0].clone()
    for tensor in tensors[1:]:
        total += tensor
    return total


def direct(
    process_group: Any, rank: int, size: int, flat: Tensor, wait: Wait, room: dict[str, Tensor]
) -> None:
    """Sum `flat`, (n,), in place by sends and receives: each rank adds up the pieces it owns.

    What is sent and received is that of a ring all-reduce: 2 n (size - 1) / size elements a rank.
    An operation between two ranks cannot be waited for a little: on its time-out gloo closes the
    connection. So all ranks meet first, and the exchange takes no longer than the wire needs.

    Args:
        room: keeps what arrives, from one sum to the next: new memory costs more than the wire.
    """
    meeting = torch.zeros(size, dtype=torch.uint8)
    wait(process_group._allgather_base(meeting, meeting[:1].clone()))
    pieces = flat.split(min(PIECE, -(-flat.numel() // size)))
    owned, others = range(rank, len(pieces), size), [r for r in range(size) if r != rank]
    parts = _parts(room, pieces, owned, others)
    arriving = {k: [process_group.recv([parts[k][r]], r, k) for r in others] for k in owned}
    foreign = [k for k in range(len(pieces)) if k % size != rank]
    leaving = [process_group.send([pieces[k]], k % size, k) for k in foreign]
    answers = []
    for k in owned:
        for work in arriving[k]:
            work.wait()
        total = _total(pieces[k], parts[k], rank, size)
        answers += [process_group.send([total], r, len(pieces) + k) for r in others]
    for work in leaving:
        work.wait()
    answers += [process_group.recv([pieces[k]], k % size, len(pieces) + k) for k in foreign]
    for work in answers:
        work.wait()


def _parts(
    room: dict[str, Tensor], pieces: Sequence[Tensor], owned: Sequence[int], others: Sequence[int]
) -> dict[int, dict[int, Tensor]]:
    """Return memory for each other rank's part of each piece that this one owns."""
    places = [(k, r) for k in owned for r in others]
    sizes = [pieces[k].numel() for k, _ in places]
    kept, dtype = room.get("parts"), pieces[0].dtype
    if kept is None or kept.dtype != dtype or kept.numel() < sum(sizes):
        kept = room["parts"] = torch.empty(sum(sizes), dtype=dtype)
    parts: dict[int, dict[int, Tensor]] = {k: {} for k in owned}
    for (k, r), part in zip(places, kept[: sum(sizes)].split(sizes), strict=True):
        parts[k][r] = part
    return parts


def _total(own: Tensor, parts: dict[int, Tensor], rank: int, size: int) -> Tensor:
    """Add up one piece in rank order, into `own`."""
    total = own if rank == 0 else parts[0]
    for r in range(1, size):
        total += own if r == rank else parts[r]
    return own if total is own else own.copy_(total)


def all_to_all(process_group: Any, size: int, flat: Tensor, wait: Wait) -> None:
    """Sum `flat`, (n,), in place by collectives alone, which is all that NCCL orders."""
    for piece in flat.split(PIECE * size):
        padded = torch.nn.functional.pad(piece, (0, -piece.numel() % size))
        parts = torch.empty_like(padded)
        wait(process_group.alltoall_base(parts, padded, [], []))
        total = in_rank_order(parts.view(size, -1).unbind())
        wait(process_group._allgather_base(padded, total))
        piece.copy_(padded[: piece.numel()])


Stopped = Callable[[], bool]

#: Seconds between two looks at what else could end a wait.
POLL_S = 0.05
#: Seconds between two looks at whether a GPU has done an operation.
_GPU_POLL_S = 0.0001


class Communicator:
    """One member's connections to the other members of its group."""

    def __init__(self, group: WorkerGroup, device: torch.device, stopped: Stopped) -> None:
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
        self._pair: socket.socket | None = None  # of two members that sum on CPUs
        self._room: dict[str, Tensor] = {}
        if group.size > 1:
            self._store = reach(group)
            self._meet()
            with self._blaming_the_group():
                self._process_group = connect(self._store, group, self._device)
                if group.size == 2 and group.backend == "gloo":
                    self._pair = pair_of(self._store, group)

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
            if self._pair is not None:
                look = self._looking()
                sum_of_two(self._pair, rank, here, self._room, POLL_S, look)
            elif self.group.backend == "gloo":
                direct(self._process_group, rank, size, here, self._wait, self._room)
            elif size == 2:
                self._wait(self._process_group.allreduce([here]))
            else:
                all_to_all(self._process_group, size, here, self._wait)
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
        if self._pair is not None:
            self._pair.close()
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
        look = self._looking()
        while not _done_soon(work, self.group.backend):
            look()
        work.wait()

    def _looking(self) -> Callable[[], None]:
        """Return what raises what ends a wait that begins now, if anything does."""
        deadline = monotonic() + self.group.timeout_s
        late = "Another worker of the group did not answer in time."
        return lambda: self._look(deadline, late)

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
            if ran_out(error):
                raise
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
        self, group: WorkerGroup, device: torch.device = CPU, stopped: Stopped = lambda: False
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
