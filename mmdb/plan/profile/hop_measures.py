"""The measuring of what hops cost beside training: reading, states, groups' sums, processes."""

from __future__ import annotations

import json
import resource
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import count
from math import sqrt
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import torch
from torch import nn

from mmdb.data import arrays, node_cache
from mmdb.data.column_layout import Field, Layout, Slot
from mmdb.data.decoding import Column, ColumnKind, Decoding, Input, Label
from mmdb.data.pack import BLOCK_BYTES, digest, pack, unpack
from mmdb.data.reader import BLOCKS
from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.plan.profile.fits import coefficient_of_variation
from mmdb.plan.profile.measurements import Measurement
from mmdb.plan.profile.timing import LEAST, MOST, Allowance, Timed, TimedTask, measure_sizes
from mmdb.store import states
from mmdb.store.states import InFlight
from mmdb.train.candidate.config import parse_config
from mmdb.train.compute.live import Live, build_live, encode, encoding, restore, state_hash
from mmdb.train.compute.optimizer import step_of
from mmdb.train.drive.child import ChildProcess
from mmdb.train.group.collectives import Communicator, Membership
from mmdb.train.group.group_pass import Gradients, average
from mmdb.train.values.spec import WorkerGroup

_FLOAT = 4
#: Of a block: large enough for what opening one takes to be little.
_BYTES = BLOCK_BYTES // 4


class SyntheticBlock:
    """A packed block, and what decodes it."""

    def __init__(self, kind: ColumnKind, width: int, seed: int) -> None:
        """Pack rows of `width` numbers ("tensor") or bytes ("bytes")."""
        item = _FLOAT if kind == "tensor" else 1
        self.feature_bytes = item * width
        lanes = -(-self.feature_bytes // _FLOAT) * _FLOAT
        x = Field(name="x", type="bytes", kind=kind, scanned="bytes")
        y = Field(name="y", type="float", kind="label", scanned="real", task="regression")
        slots = (Slot(field=x, offset=0, width=width), Slot(field=y, offset=lanes, width=1))
        layout = Layout(slots=slots, labels=slots[1:], row_bytes=lanes + _FLOAT, hashes=0)
        self.rows = max(1, _BYTES // layout.row_bytes)
        random = np.random.default_rng(seed)
        values = random.integers(0, 64, (self.rows, layout.row_bytes), dtype=np.uint8)
        self.data = pack(values, layout, {})
        self.digest = digest(self.data)
        self._decoding = Decoding(
            columns=(
                Column(name="x", kind=kind, width=width),
                Column(name="y", kind="label", width=1),
            ),
            inputs=(Input(name="", columns=("x",), shape=(width,)),),
            labels=(Label(name="y", task="regression"),),
        )

    def decode(self, folder: Path) -> None:
        """Check, decode and write to files in a folder what a partition's reader would."""
        assert digest(self.data) == self.digest
        decoded = unpack(self.data, self._decoding)
        with arrays.writing(folder, self._decoding, self.rows) as add:
            add(decoded)


_Q = load("datasets")
#: Numbers or bytes of a row.
ROW_WIDTHS = (16, 256, 3072)
#: What is measured of which kind of column.
COLUMNS: dict[str, ColumnKind] = {"decode": "tensor", "decode_pixels": "bytes"}


def measure_decoding(allowance: Allowance, seed: int) -> Iterator[Measurement]:
    """Measure how rows become arrays in the node's cache: seconds of a row over its bytes."""
    made: dict[tuple[str, float], int] = {}  # rows of each block, by kind and size

    def tasks(width: int, folder: Path) -> Iterator[TimedTask]:
        for kind, column in COLUMNS.items():
            block = SyntheticBlock(column, width, seed)
            size = float(block.feature_bytes)
            made[kind, size] = block.rows
            yield TimedTask(kind, size, partial(block.decode, folder))

    # A folder that is left behind is one that the cache clears away.
    place = node_cache.directory()
    with tempfile.TemporaryDirectory(prefix="profile-", suffix=".part", dir=place) as name:
        cases = [
            partial(lambda width: list(tasks(width, Path(name))), width) for width in ROW_WIDTHS
        ]
        for row in measure_sizes(allowance, cases):
            yield replace(row, value=row.value / made[row.kind, row.size])


def measure_queries(allowance: Allowance, connection: Connection) -> Iterator[Measurement]:
    """Measure a small query, there and back."""
    query = partial(connection.rows, load("catalog").find_setting, name="worker_dsn")
    return measure_sizes(allowance, [lambda: [TimedTask("query", 1.0, query)]])


def measure_reading(
    allowance: Allowance, connection: Connection, part_id: int
) -> Iterator[Measurement]:
    """Measure queries for the first blocks of a partition: one, and as many as one query reads.

    The first query of each, which may find the blocks on the disk alone, is not counted.
    """
    found = connection.rows(_Q.read_blocks, part_id=part_id, low=0, high=BLOCKS)
    sizes: list[int] = []
    for block in found:
        sizes.append(len(block["data"]) + (sizes[-1] if sizes else 0))

    def read(high: int) -> None:
        connection.rows(_Q.read_blocks, part_id=part_id, low=0, high=high)

    highs = sorted({1, len(sizes)}) if sizes else []
    cases = [
        partial(lambda high: [TimedTask("read", float(sizes[high - 1]), partial(read, high))], high)
        for high in highs
    ]
    yield from measure_sizes(allowance, cases)


#: Inputs and outputs of a layer without a bias; with Adam a state has 12 n * n bytes.
STATE_WIDTHS = (32, 128, 384, 768, 1536)


def measure_states(allowance: Allowance, seed: int, device: torch.device) -> Iterator[Measurement]:
    """Measure what a hop does with its state."""
    return measure_sizes(allowance, [partial(_tasks, n, device) for n in STATE_WIDTHS])


def _tasks(width: int, device: torch.device) -> list[TimedTask]:
    live = made_live(width, device)
    state = encode(live)
    other = encode(made_live(width, device, value=2e-3))  # equal tensors would not be added up
    size = float(len(state))
    return [
        TimedTask("state_hash", size, lambda: encoding(live).digest()),
        TimedTask("state_encode", size, lambda: encode(live)),
        TimedTask("state_decode", size, lambda: restore(live, state)),
        TimedTask("merge", 2 * size, lambda: average([state, other], [1, 1])),
    ]


def made_live(width: int, device: torch.device, value: float = 1e-3) -> Live:
    """Return a candidate of one layer that has taken a step of Adam."""
    config = parse_config({"optimizer": "adam"}, "regression")
    module = nn.utils.skip_init(nn.Linear, width, width, bias=False)
    nn.init.constant_(module.weight, value)
    live = build_live(module, config, device)
    module.weight.grad = torch.full_like(module.weight, value)
    live.optimizer.step()
    live.optimizer.zero_grad()
    live.generator = torch.get_rng_state()
    return live


#: Bytes of states.
STATE_BYTES = (2**14, 2**18, 2**20, 2**22, 2**24)
#: Bytes that are read in chunks: about a block's, and those of as many as one query reads.
READ_BYTES = (2**20, BLOCKS * 2**20)
PART_ID = -1


def measure_hops(allowance: Allowance, seed: int, connection: Connection) -> Iterator[Measurement]:
    """Measure states of several sizes, on their way and made durable.

    A candidate that does not exist leaves states and takes them up again; nothing of it stays. Its
    number is below zero, so that no hop can meet it.
    """
    with closing(_Scratch(connection, seed)) as scratch:
        cases = [partial(scratch.tasks, size) for size in STATE_BYTES]
        yield from measure_sizes(allowance, cases)


def measure_chunks(
    allowance: Allowance, seed: int, connection: Connection
) -> Iterator[Measurement]:
    """Measure reading where there is no partition: a durable state's chunks are kept as blocks."""
    with closing(_Scratch(connection, seed)) as scratch:
        cases = [partial(scratch.reading, size) for size in READ_BYTES]
        yield from measure_sizes(allowance, cases)


class _Scratch:
    """The states of a candidate that does not exist."""

    def __init__(self, connection: Connection, seed: int) -> None:
        self._connection, self._candidate_id = connection, -1 - secrets.randbelow(2**31)
        self._in_flight: InFlight = states.in_flight(connection)
        self._generator = torch.Generator().manual_seed(seed)
        self._numbers = count()

    def tasks(self, size: int) -> list[TimedTask]:
        """Return what is measured of a state of `size` bytes."""
        state = self._drawn(size)
        name = state_hash(state).hex()
        place = (PART_ID, self._candidate_id)

        def publish() -> None:
            self._in_flight.keep_only(self._candidate_id, ())
            self._in_flight.write(*place, name, state)

        def load_state() -> None:
            assert self._in_flight.read(*place, name) is not None

        def checkpoint() -> None:
            # The name tells states apart, and is no longer the hash: nobody will ever look.
            new = next(self._numbers).to_bytes(32, "big").hex()
            with self._connection.transaction():
                states.write_checkpoint(self._connection, *place, 0, new, state)
                states.prune_checkpoints(self._connection, self._candidate_id, {new})

        publish()
        return [
            TimedTask("publish", float(size), publish),
            TimedTask("load", float(size), load_state),
            TimedTask("checkpoint", float(size), checkpoint),
        ]

    def reading(self, size: int) -> list[TimedTask]:
        """Return the reading of `size` bytes in chunks, as blocks are read."""
        name = next(self._numbers).to_bytes(32, "big").hex()
        place = (self._connection, PART_ID, self._candidate_id)
        with self._connection.transaction():
            states.write_checkpoint(*place, 0, name, self._drawn(size))
        return [TimedTask("read", float(size), partial(states.read_checkpoint, *place, name))]

    def close(self) -> None:
        """Leave nothing behind."""
        self._in_flight.keep_only(self._candidate_id, ())
        with self._connection.transaction():
            states.prune_checkpoints(self._connection, self._candidate_id, set())

    def _drawn(self, size: int) -> bytes:
        drawn = torch.randint(256, (size,), dtype=torch.uint8, generator=self._generator)
        return drawn.numpy().tobytes()


#: Bytes of gradients in float32, at least.
GRADIENT_BYTES = (2**8, 2**15, 2**19, 2**21, 2**23, 2**25)
#: Rows of a step, and steps of which the mean is taken.
_ROWS, _STEPS = 16, 4
#: A sum takes this at least: where one is lost in what steps take by chance, it is not free.
_LEAST_S = 1e-6
#: Part of the time in which the system finds a core for each of those who have met.
_SETTLING = 0.2


def measure_group(
    allowance: Allowance, group: WorkerGroup, device: torch.device, budget_s: float
) -> Iterator[Measurement]:
    """Measure how long members take to meet, and sums over them; all return the same rows.

    A sum takes what it adds to a step of training: who comes out of computing is slower to answer
    than who only waits, has to wait for who is late, and finds less of its own in the caches.

    All members measure at the same time and take the same decisions: the first one's times are
    those that count, and it tells them to the others.
    """
    membership = Membership()

    def stopped() -> bool:
        allowance.check()
        return False

    try:
        begun = perf_counter()
        communicator = membership.join(group, device, stopped)
        with communicator.during(stopped):
            met_s = _agreed(communicator, perf_counter() - begun)
            yield Measurement(kind="meet", size=float(group.size), value=met_s)
            yield from _sums(communicator, budget_s - met_s, device)
    finally:
        membership.leave()


def _sums(
    communicator: Communicator, budget_s: float, device: torch.device
) -> Iterator[Measurement]:
    left_s, begun = (1 - _SETTLING) * budget_s, perf_counter()
    first = _TrainingStep(GRADIENT_BYTES[0], device)
    while _agreed(communicator, perf_counter() - begun) < _SETTLING * budget_s:
        first.added_s(communicator)
    for place, size in enumerate(GRADIENT_BYTES):
        share_s = left_s / (len(GRADIENT_BYTES) - place)
        step = _TrainingStep(size, device)
        begun = perf_counter()
        step.added_s(communicator)
        step.added_s(communicator)
        estimate_s = _agreed(communicator, (perf_counter() - begun) / 2)
        left_s -= 2 * estimate_s
        if place > 1 and LEAST * estimate_s > share_s:  # two sizes are measured in any case
            return
        samples = min(MOST, max(LEAST, int(share_s / estimate_s)))
        begun = perf_counter()
        found = [step.added_s(communicator) for _ in range(samples)]
        left_s -= _agreed(communicator, perf_counter() - begun)
        mine = Timed(max(_LEAST_S, median(found)), coefficient_of_variation(found), samples)
        yield Timed(
            _agreed(communicator, mine.seconds), _agreed(communicator, mine.deviation), samples
        ).row(f"all_reduce_{communicator.group.size}", float(size))


class _TrainingStep:
    """A step of a small network of two layers, with and without the sum of its gradients."""

    def __init__(self, gradient_bytes: int, device: torch.device) -> None:
        width = max(1, round(sqrt(gradient_bytes / (2 * _FLOAT))))
        self._module = nn.Sequential(nn.Linear(width, width), nn.Linear(width, width)).to(device)
        self._x = torch.ones(_ROWS, width, device=device)
        self._gradients = Gradients(self._module)
        self._update = step_of(torch.optim.Adam(self._module.parameters()))

    def added_s(self, communicator: Communicator) -> float:
        """Return the seconds that the sum adds to a step, as the mean of some."""
        communicator.gather(b"")  # all begin at once
        summed_s = self._steps_s(lambda: self._gradients.sum(communicator))
        return (summed_s - self._steps_s(lambda: None)) / _STEPS

    def _steps_s(self, reduce: Callable[[], None]) -> float:
        begun = perf_counter()
        for _ in range(_STEPS):
            for parameter in self._module.parameters():
                parameter.grad = None
            self._module(self._x).sum().backward()
            reduce()
            self._update()
        self._x[0, 0].item()  # which waits for the device
        return perf_counter() - begun


def _agreed(communicator: Communicator, seconds: float) -> float:
    """Return the first member's value."""
    return float(json.loads(communicator.gather(json.dumps(seconds).encode())[0]))


#: Pages of its own, and of files that it maps; a database's shared memory is not a worker's.
_COUNTED = ("RssAnon", "RssFile")


def measure_process(allowance: Allowance, seed: int, device: torch.device) -> Iterator[Measurement]:
    """Measure a worker's process: of a server's session itself, else a child that is started."""
    if "plpy" in sys.modules:
        yield _row(held_bytes())
        return
    with closing(ChildProcess(str(device))) as worker:
        worker.warm_up()
        yield _row(held_bytes(worker.pid))


def _row(size: int) -> Measurement:
    return Measurement(kind="process", size=1.0, value=float(size), unit="byte")


def held_bytes(pid: int | None = None) -> int:
    """Return the bytes of a process's memory, this one's if left out.

    Where the system does not say, they are the most that this one ever had.
    """
    status = Path("/proc") / ("self" if pid is None else str(pid)) / "status"
    if status.exists():
        lines = (line.split() for line in status.read_text().splitlines())
        return 1024 * sum(int(line[1]) for line in lines if line[0].rstrip(":") in _COUNTED)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
