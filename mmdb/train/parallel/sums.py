"""Sums over the members of a group, in rank order: the same bits on each, and in a replay.

Ring all-reduce adds each stretch of the tensor in another order. Of two ranks every order gives the
same bits, since a + b is b + a; of more, the sums here are made piece by piece, each by one rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

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


def all_reduce(process_group: Any, flat: Tensor, wait: Wait) -> None:
    """Sum `flat`, (n,), of two ranks, in place."""
    wait(process_group.allreduce([flat]))


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
