"""mmdb beside HDF5 through h5py: whole networks, one tensor, a few rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from statistics import median

from mmdb.bench import store_subject
from mmdb.bench.figures import Figure, least, take_turns
from mmdb.bench.store_access import NETWORK, ROWS_OF, medium
from mmdb.bench.store_subject import MB, Subject, reference
from tests.bench.store import peer_h5py

READS, ROUNDS = 200, 3


def measure_h5py(subject: Subject) -> Iterator[Figure]:
    """Yield mmdb's figures and those of an HDF5 file that stays open."""
    module = store_subject.filled(NETWORK, 90)
    state, path = module.state_dict(), subject.folder / "peer.h5"
    size = peer_h5py.save(state, path)
    name = reference(subject.save("h5py", NETWORK, module))
    where = f"{subject.engine}, {NETWORK}"
    fresh = iter([store_subject.filled(NETWORK, 91 + k) for k in range(ROUNDS)])
    whole = take_turns(
        {
            "first save": lambda: subject.save("h5py-first", NETWORK, next(fresh)),
            "h5py save + fsync": lambda: peer_h5py.save(state, path),
        },
        ROUNDS,
        warm=0,
    )
    for label, runs in whole.items():
        yield least(f"{where}: {label}", runs)
    yield Figure(name=f"{where}: h5py, file", value=size / MB, unit="MB")
    with peer_h5py.H5File(path) as file:
        draw = random.Random(2)
        tensors = iter(draw.choices(medium(state), k=READS * 4))
        picks = iter([(draw.randrange(1, 36), draw.randrange(256)) for _ in range(READS * 4)])

        def some_rows() -> tuple[str, tuple[int, int]]:
            block, row = next(picks)
            return ROWS_OF.format(block), (row, row + 1)

        def ours() -> object:
            path, rows = some_rows()
            return subject.db.tensor(name, path, rows=rows)

        calls = {
            "one tensor": lambda: subject.db.tensor(name, next(tensors)),
            "h5py one tensor": lambda: file.tensor(next(tensors)),
            "4 KiB of rows": ours,
            "h5py 4 KiB of rows": lambda: file.tensor(*some_rows()),
        }
        for label, runs in take_turns(calls, READS, warm=20).items():
            p50 = median(runs) * 1e3
            yield Figure(name=f"{where}: {label}, p50", value=p50, unit="ms")
