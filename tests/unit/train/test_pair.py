"""Two members' own connection: sums of any size, strangers at the door, a member that goes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import distributed

from mmdb.train.group.pair import connect_pair, sum_of_two
from mmdb.train.values.spec import WorkerGroup

POLL_S = 0.01


class Gone(Exception):
    """What a look raises that ends a wait."""


def place(rank: int) -> WorkerGroup:
    """Return a member's place."""
    return WorkerGroup(
        name="two", rank=rank, size=2, host="127.0.0.1", port=1, backend="gloo", timeout_s=10
    )


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield both ends of a connection, at whose door a stranger has stood first."""
    store, threads = distributed.HashStore(), ThreadPoolExecutor(2)  # type: ignore[attr-defined]
    first = threads.submit(connect_pair, store, place(0), "127.0.0.1", 10.0)
    address, port, _ = store.get("pair").decode().split()
    with socket.create_connection((address, int(port))) as stranger:
        stranger.sendall(b"x" * 16)
        second = connect_pair(store, place(1), "127.0.0.1", 10.0)
        ends = first.result(), second
        assert stranger.recv(1) == b""  # it was sent away
    yield ends
    for end in ends:
        end.close()
    threads.shutdown()


def summed(
    ends: tuple[socket.socket, socket.socket], flats: list[torch.Tensor]
) -> list[torch.Tensor]:
    """Return the members' tensors after a sum."""
    rooms: list[dict[str, torch.Tensor]] = [{}, {}]

    def member(rank: int) -> None:
        sum_of_two(ends[rank], rank, flats[rank], rooms[rank], POLL_S, lambda: None)

    other = threading.Thread(target=member, args=(1,))
    other.start()
    member(0)
    other.join()
    return flats


@pytest.mark.parametrize("count", [1, 16384, 16385, 3_000_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sum_has_the_bits_of_the_first_plus_the_second(
    pair: tuple[socket.socket, socket.socket], count: int, dtype: torch.dtype
) -> None:
    draw = torch.Generator().manual_seed(count)
    flats = [torch.randn(count, dtype=dtype, generator=draw) for _ in range(2)]
    wanted = flats[0] + flats[1]
    assert all(torch.equal(one, wanted) for one in summed(pair, flats))


def test_a_wait_is_ended_by_a_look_and_by_a_member_that_goes(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    def look() -> None:
        raise Gone

    def wait(look: Callable[[], None]) -> None:
        sum_of_two(pair[0], 0, torch.ones(4), {}, POLL_S, look)

    with pytest.raises(Gone):
        wait(look)
    pair[1].close()
    with pytest.raises(RuntimeError, match="the other member is gone"):
        wait(lambda: None)


def test_a_member_that_never_comes_is_not_waited_for() -> None:
    store = distributed.HashStore()  # type: ignore[attr-defined]
    with ThreadPoolExecutor(1) as threads:
        first: Future[Any] = threads.submit(connect_pair, store, place(0), "127.0.0.1", 0.05)
        with pytest.raises(RuntimeError, match="does not connect"):
            first.result()
