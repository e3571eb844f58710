"""A group of real processes trains as one process would, to the bit, and ends when a rank does."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import count
from typing import Any

import pytest
import torch
from torch import nn

from mmdb.errors import Cancelled, GroupBroken, NotANumber, StatesDiffer
from mmdb.train.compute.live import encode, state_hash, weights
from mmdb.train.group.collectives import PIECE, Membership, in_rank_order
from mmdb.train.group.group_pass import portion_sizes
from mmdb.train.group.rendezvous import Rendezvous
from mmdb.train.replay.stages import replay_group
from mmdb.train.values.spec import WorkerGroup
from tests.ranks import Rank, errors_of, live_of, module_of, ranks, rows_of, setup_from, together

ADAM = {"lr": 0.01, "batch_size": 16}
MOMENTUM = {
    "lr": 0.05,
    "batch_size": 12,
    "weight_decay": 0.01,
    "optimizer": {"name": "sgd", "momentum": 0.9},
    "clip_norm": 0.5,
    "accumulate": 2,
    "schedule": {"name": "step", "step_size": 1},
}
_names = count()


@pytest.fixture(scope="module")
def members() -> Iterator[list[Rank]]:
    with ranks(3) as started:
        yield started


@pytest.fixture(scope="module")
def rendezvous() -> Iterator[Rendezvous]:
    meeting = Rendezvous(timeout_s=20)
    yield meeting
    meeting.close()


def groups(rendezvous: Rendezvous, size: int, **changes: Any) -> list[dict[str, Any]]:
    """Return the places of a group that no process is in yet."""
    name = f"members {next(_names)}"
    found = rendezvous.group([f"{name}, {rank}" for rank in range(size)])
    return [asdict(group) | changes for group in found]


def jobs(
    places: list[dict[str, Any]], rows: list[int], config: object, module: str, rounds: int = 1
) -> list[dict[str, Any]]:
    """Return the training jobs of a group's ranks; each round has other partitions."""
    return [
        {
            "job": "train",
            "group": place,
            "config": config,
            "module": module,
            "parts": [(100 * k + place["rank"], rows[place["rank"]]) for k in range(rounds)],
        }
        for place in places
    ]


def replayed(asked: list[dict[str, Any]]) -> tuple[bytes, list[dict[str, Any]]]:
    """Return the state and the outcomes of the same jobs in this process."""
    setup = setup_from(asked[0]["config"])
    lives = [live_of(asked[0]["module"], setup) for _ in asked]
    outcomes = []
    for parts in zip(*(job["parts"] for job in asked), strict=True):
        found = replay_group(
            lives,
            [rows_of(seed, rows) for seed, rows in parts],
            setup=setup,
            seeds=[seed for seed, _ in parts],
            ends_epoch=True,
        )
        outcomes += [asdict(outcome) for outcome in found]
    assert len({encode(live) for live in lives}) == 1
    return encode(lives[0]), outcomes


@pytest.mark.parametrize(
    ("rows", "config", "module"),
    [
        ([50, 41], ADAM, "mlp"),
        ([50, 41, 33], ADAM, "mlp"),
        ([50, 3, 33], MOMENTUM, "mlp"),
        ([20, 41], MOMENTUM | {"batch_size": 2}, "mlp"),
        ([20, 22, 18], MOMENTUM, "partly"),
    ],
)
def test_a_group_gives_the_bits_of_its_replay(
    members: list[Rank], rendezvous: Rendezvous, rows: list[int], config: object, module: str
) -> None:
    asked = jobs(groups(rendezvous, len(rows)), rows, config, module, rounds=2)
    found = together(members[: len(rows)], asked)
    state, outcomes = replayed(asked)
    assert [rank["state"] for rank in found] == [state.hex()] * len(rows)
    assert [rank["outcomes"] for rank in found] == [outcomes] * len(rows)
    assert [outcome["rows"] for outcome in outcomes] == rows * 2


def test_a_group_learns_as_one_worker_with_the_whole_batch_does(
    members: list[Rank], rendezvous: Rendezvous
) -> None:
    rows, config = [40, 31], {"lr": 0.1, "batch_size": 16, "optimizer": "sgd"}
    asked = jobs(groups(rendezvous, 2), rows, config, "linear")
    found = together(members[:2], asked)[0]
    module = module_of("linear")
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    parts = [rows_of(seed, rows[seed]) for seed in range(2)]
    orders = [
        torch.randperm(rows[seed], generator=torch.Generator().manual_seed(seed))
        for seed in range(2)
    ]
    at = [0, 0]
    for sizes in portion_sizes(rows, 16):
        chosen = [orders[r][at[r] : at[r] + sizes[r]] for r in range(2)]
        at = [at[r] + sizes[r] for r in range(2)]
        x = torch.cat([parts[r][0][chosen[r]] for r in range(2)])
        y = torch.cat([parts[r][1][chosen[r]] for r in range(2)])
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
    assert at == rows
    for path, tensor in weights(bytes.fromhex(found["state"])).items():
        torch.testing.assert_close(tensor, module.state_dict()[path])


def test_parameters_that_no_rank_uses_stay_as_they_are(
    members: list[Rank], rendezvous: Rendezvous
) -> None:
    asked = jobs(groups(rendezvous, 2), [20, 20], MOMENTUM, "partly")
    found = weights(bytes.fromhex(together(members[:2], asked)[0]["state"]))
    before = module_of("partly").state_dict()
    changed = {path for path in before if not torch.equal(before[path], found[path])}
    assert changed == {"wide.weight", "wide.bias", "narrow.weight", "narrow.bias"}


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("elements", [1, 1000, PIECE * 3 + 5])
@pytest.mark.parametrize("all_to_all", [False, True])
def test_a_sum_is_in_rank_order_on_every_rank(
    members: list[Rank], rendezvous: Rendezvous, size: int, elements: int, all_to_all: bool
) -> None:
    asked = [
        {"job": "sum", "group": place, "count": elements, "all_to_all": all_to_all}
        for place in groups(rendezvous, size)
    ]
    tensors = [
        torch.randn(elements, generator=torch.Generator().manual_seed(rank)) for rank in range(size)
    ]
    expected = state_hash(in_rank_order(tensors).numpy().tobytes()).hex()
    assert together(members[:size], asked) == [{"hash": expected}] * size


def test_ranks_that_start_from_different_states_are_refused(
    members: list[Rank], rendezvous: Rendezvous
) -> None:
    asked = jobs(groups(rendezvous, 2), [20, 20], ADAM, "linear")
    asked[1]["module"] = "mlp"
    for member, job in zip(members, asked, strict=False):
        member.ask(**job)
    found = errors_of(members[:2])
    assert all(isinstance(error, StatesDiffer) for error in found)
    assert "Rank 1 of the group starts from state" in str(found[0])


def test_what_one_rank_fails_with_reaches_all(members: list[Rank], rendezvous: Rendezvous) -> None:
    asked = jobs(groups(rendezvous, 3), [20, 20, 20], ADAM | {"batch_size": 100}, "linear")
    asked[1]["fault"] = "nan"  # in the only step: the others' losses stay finite
    for member, job in zip(members, asked, strict=True):
        member.ask(**job)
    assert all(isinstance(error, NotANumber) for error in errors_of(members))


def test_a_cancel_ends_a_wait_for_the_others(members: list[Rank], rendezvous: Rendezvous) -> None:
    places = groups(rendezvous, 2, timeout_s=60)
    waits = jobs(places, [20, 20], ADAM, "linear", rounds=2)[1] | {"stop_s": 0.5}
    members[1].ask(**waits)
    together(members[:1], jobs(places, [20, 20], ADAM, "linear")[:1])  # its second round: none
    [error] = errors_of(members[1:2])
    assert isinstance(error, Cancelled)
    again = jobs(groups(rendezvous, 2), [20, 20], ADAM, "linear")
    assert together(members[:2], again)[0]["state"] == replayed(again)[0].hex()


def test_the_others_end_with_a_cancelled_rank(members: list[Rank], rendezvous: Rendezvous) -> None:
    asked = jobs(groups(rendezvous, 3, timeout_s=60), [60] * 3, ADAM, "slow")
    asked[1]["stop_s"] = 0.15
    for member, job in zip(members, asked, strict=True):
        member.ask(**job)
    assert all(isinstance(error, Cancelled) for error in errors_of(members))


def test_a_member_that_does_not_come_breaks_the_group(
    members: list[Rank], rendezvous: Rendezvous
) -> None:
    asked = jobs(groups(rendezvous, 2, timeout_s=3.0), [20, 20], ADAM, "linear")
    members[0].ask(**asked[0])
    [error] = errors_of(members[:1])
    assert isinstance(error, GroupBroken)
    assert "Rank 1 of 2 did not come" in str(error)


def test_a_member_that_never_came_ends_the_wait_once_the_driver_knows(
    members: list[Rank], rendezvous: Rendezvous
) -> None:
    names = ["of one round", "never there"]
    [place, _] = rendezvous.group(names)
    members[0].ask(**jobs([asdict(place)], [20], ADAM, "linear")[0])
    rendezvous.part(names)
    [error] = errors_of(members[:1])
    assert isinstance(error, GroupBroken) and "failed or was lost" in str(error)


def test_no_signal_can_reach_the_threads_of_a_group(
    members: list[Rank], rendezvous: Rendezvous
) -> None:
    asked = [{"job": "threads", "group": place} for place in groups(rendezvous, 2)]
    blockable = sum(1 << (number - 1) for number in signal.valid_signals())
    blockable &= ~(1 << (signal.SIGKILL - 1) | 1 << (signal.SIGSTOP - 1))
    for found in together(members[:2], asked):
        assert found["masks"]
        assert all(int(mask, 16) & blockable == blockable for mask in found["masks"])


def test_a_rendezvous_that_does_not_answer_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    group = WorkerGroup(name="g", rank=0, size=2, host="127.0.0.1", port=port, timeout_s=0.2)
    with pytest.raises(GroupBroken, match=f"No rendezvous answers at 127.0.0.1:{port}"):
        Membership().join(group)


def test_a_group_of_one_needs_no_rendezvous() -> None:
    alone = Membership().join(WorkerGroup(name="g", rank=0, size=1, host="nowhere.invalid", port=1))
    flat = torch.arange(3.0)
    alone.sum(flat)
    assert flat.tolist() == [0, 1, 2] and alone.gather(b"x") == [b"x"]


def test_the_same_members_stay_in_their_group_until_they_part(rendezvous: Rendezvous) -> None:
    first = rendezvous.group(["a", "b"])
    assert [place.rank for place in first] == [0, 1]
    assert rendezvous.group(["a", "b"]) == first
    assert rendezvous.group(["b", "a"])[0].name != first[0].name
    again = rendezvous.group(["a", "b"])
    assert again[0].name != first[0].name
    rendezvous.part(["a", "b"])
    assert rendezvous.group(["a", "b"])[0].name not in (first[0].name, again[0].name)


def test_members_that_were_in_another_group_meet_again(
    members: list[Rank], rendezvous: Rendezvous
) -> None:
    names = ["one who comes back", "another"]
    for order in (names, names[::-1]) * 3:
        place_of = dict(zip(order, rendezvous.group(order), strict=True))
        asked = jobs([asdict(place_of[name]) for name in names], [20, 20], ADAM, "linear")
        one, another = together(members[:2], asked)
        assert one["state"] == another["state"]


def test_the_others_end_with_a_killed_rank_and_go_on_in_a_new_group(
    members: list[Rank], rendezvous: Rendezvous
) -> None:
    """The last test: it leaves one process of the three."""
    for size in (3, 2):
        asked = jobs(groups(rendezvous, size, timeout_s=200), [200] * size, ADAM, "slow", rounds=9)
        for member, job in zip(members, asked, strict=True):
            member.ask(**job)
        time.sleep(0.5)  # they are in the middle of a round; how far does not matter
        members.pop().kill()
        assert all(isinstance(error, GroupBroken) for error in errors_of(members))
        again = jobs(groups(rendezvous, size - 1), [20] * (size - 1), ADAM, "linear")
        assert together(members, again)[0]["state"] == replayed(again)[0].hex()
