"""Processes that are ranks of groups: each serves jobs, one JSON line each, as a worker would."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, TextIO

import torch
from torch import Tensor, nn

from mmdb.data.decoding import Target
from mmdb.errors import MmdbError, from_sqlstate
from mmdb.train.candidate.setup import Setup, setup_of
from mmdb.train.compute.hop import HopOutcome
from mmdb.train.compute.live import Live, build_live, encode, restore, state_hash
from mmdb.train.group.collectives import Membership
from mmdb.train.group.group_pass import group_pass
from mmdb.train.values.runtime import start_without_signals
from mmdb.train.values.spec import WorkerGroup

WIDTH, CLASSES = 6, 3
TARGET = Target(name="y", task="classification", size=CLASSES)


class Slow(nn.Module):
    """A layer that takes its time."""

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.1)
        return x


class Partly(nn.Module):
    """A layer that is never used, one in float64 and one in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(WIDTH, WIDTH)
        self.wide = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)
        self.narrow = nn.Linear(WIDTH, CLASSES, dtype=torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        return self.narrow(torch.tanh(self.wide(x.double())).bfloat16()).float()  # type: ignore[no-any-return]


def module_of(name: str) -> nn.Module:
    """Return a module with the initial weights that its name decides."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        if name == "linear":
            return nn.Linear(WIDTH, CLASSES)
        if name == "slow":
            return nn.Sequential(Slow(), nn.Linear(WIDTH, CLASSES))
        if name == "partly":
            return Partly()
        return nn.Sequential(
            nn.Linear(WIDTH, 8),
            nn.BatchNorm1d(8),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(8, CLASSES),
        )


def rows_of(seed: int, count: int, fault: str = "") -> tuple[Tensor, Tensor]:
    """Return a partition of made-up rows: float32 (count, WIDTH), int64 (count,)."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(count, WIDTH, generator=random)
    if fault == "nan":
        x[0, 0] = float("nan")
    return x, torch.randint(CLASSES, (count,), generator=random)


def setup_from(config: dict[str, Any]) -> Setup:
    """Return the setup of a configuration."""
    return setup_of(config, (TARGET,))


def live_of(module: str, setup: Setup) -> Live:
    """Return a fresh candidate."""
    return build_live(module_of(module), setup.config)


class Rank:
    """One process, as its parent sees it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._stream = connection.makefile("rw")
        self._pid = int(self._stream.readline())

    def ask(self, **job: Any) -> None:
        """Begin a job."""
        self._stream.write(json.dumps(job) + "\n")
        self._stream.flush()

    def answer(self) -> dict[str, Any]:
        """Wait for the job's result.

        Raises:
            MmdbError: that the job raised.
        """
        found: dict[str, Any] = json.loads(self._stream.readline())
        if "sqlstate" in found:
            error = from_sqlstate(found["sqlstate"], found["message"])
            assert error is not None
            raise error
        return found

    def kill(self) -> None:
        """End the process with SIGKILL."""
        os.kill(self._pid, signal.SIGKILL)
        self._stream.close()
        self._connection.close()


@contextmanager
def ranks(count: int) -> Iterator[list[Rank]]:
    """Start processes; what is in the list at the end is killed."""
    ours, theirs = zip(*(socket.socketpair() for _ in range(count)), strict=True)
    descriptors = [connection.fileno() for connection in theirs]
    parent = subprocess.Popen(
        [sys.executable, "-m", "tests.ranks", *map(str, descriptors)],
        pass_fds=descriptors,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    for connection in theirs:
        connection.close()
    started = [Rank(connection) for connection in ours]
    try:
        yield started
    finally:
        for rank in started:
            rank.kill()
        parent.wait()


def together(members: Sequence[Rank], jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Let each process do its job at the same time; return the results in order."""
    for member, job in zip(members, jobs, strict=True):
        member.ask(**job)
    return [member.answer() for member in members]


def errors_of(members: Sequence[Rank]) -> list[MmdbError | None]:
    """Wait for the jobs under way; return the error that each raised."""
    found: list[MmdbError | None] = []
    for member in members:
        try:
            member.answer()
            found.append(None)
        except MmdbError as error:
            found.append(error)
    return found


def _train(membership: Membership, job: dict[str, Any]) -> dict[str, Any]:
    """Train a fresh candidate for the job's rounds, as a worker's session would."""
    setup = setup_from(job["config"])
    live = live_of(job["module"], setup)
    if job.get("state"):
        restore(live, bytes.fromhex(job["state"]))
    ends = time.monotonic() + job.get("stop_s", 1e9)
    outcomes: list[HopOutcome] = []
    for seed, count in job["parts"]:
        state = encode(live)
        communicator = membership.join(WorkerGroup(**job["group"]), live.device)
        x, y = rows_of(seed, count, job.get("fault", ""))
        outcomes += group_pass(
            live,
            x,
            y,
            communicator=communicator,
            state=state_hash(state).hex(),
            setup=setup,
            seed=seed,
            ends_epoch=True,
            stopped=lambda: time.monotonic() > ends,
        )
    return {"state": encode(live).hex(), "outcomes": [asdict(outcome) for outcome in outcomes]}


def _sum(membership: Membership, job: dict[str, Any]) -> dict[str, Any]:
    """Sum a tensor over the group; `all_to_all` by the way that NCCL takes."""
    from mmdb.train.group import collectives

    group = WorkerGroup(**job["group"])
    communicator = membership.join(group)
    flat = torch.randn(job["count"], generator=torch.Generator().manual_seed(group.rank))
    if job.get("all_to_all"):
        collectives.all_to_all(communicator._process_group, group.size, flat, communicator._wait)
    else:
        communicator.sum(flat)
    return {"hash": state_hash(flat.numpy().tobytes()).hex()}


def _threads(membership: Membership, job: dict[str, Any]) -> dict[str, Any]:
    """Return the blocked signals of the threads that joining a group has started, as bit masks."""
    before = set(os.listdir("/proc/self/task"))
    membership.join(WorkerGroup(**job["group"]))
    masks = []
    for thread in set(os.listdir("/proc/self/task")) - before:
        with open(f"/proc/self/task/{thread}/status") as status:
            masks += [line.split()[1] for line in status if line.startswith("SigBlk")]
    return {"masks": masks}


JOBS = {"train": _train, "sum": _sum, "threads": _threads}


def _serve(membership: Membership, job: dict[str, Any], stream: TextIO) -> None:
    try:
        answer = JOBS[job["job"]](membership, job)
    except MmdbError as error:
        answer = {"sqlstate": error.sqlstate, "message": error.message}
    stream.write(json.dumps(answer) + "\n")
    stream.flush()


def _serve_all(descriptor: int) -> None:
    """Serve jobs, each in a thread that takes no signal, as inside PostgreSQL."""
    membership = Membership()
    with socket.socket(fileno=descriptor) as connection, connection.makefile("rw") as stream:
        stream.write(f"{os.getpid()}\n")
        stream.flush()
        for line in stream:
            thread = threading.Thread(target=_serve, args=(membership, json.loads(line), stream))
            start_without_signals(thread)
            thread.join()


def main() -> None:
    """Become one process for each socket; only the first has to load torch."""
    descriptors = [int(text) for text in sys.argv[1:]]
    for descriptor in descriptors:
        if os.fork() == 0:
            for other in set(descriptors) - {descriptor}:
                os.close(other)
            _serve_all(descriptor)
            os._exit(0)
    for descriptor in descriptors:
        os.close(descriptor)
        os.wait()


if __name__ == "__main__":
    main()
