"""The peak of a fresh process's memory over three training steps of a model."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

STEPS = 3


def peak_bytes(name: str, batch: int) -> float:
    """Return the most memory that a worker's process holds that trains the model.

    Args:
        name: of a model of `tests.bench.plan.models`.
    """
    paths = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.plan.memory", name, str(batch)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    )
    return float(done.stdout.split()[-1])


def main() -> None:
    """Train and print the peak, less what a worker's process does not hold of its own.

    That is the benchmark's code, the library of the model, and the rows, which a worker maps.
    """
    import torch

    from mmdb.train.hops.device_worker import warm_up
    from mmdb.train.values.runtime import keep_freed_memory

    import_module("mmdb.train.drive.child")  # what a worker loads
    keep_freed_memory()
    warm_up()
    before = _held("VmRSS")
    from mmdb.train.compute.exact import exact
    from tests.bench.plan.models import models, rows_of
    from tests.bench.plan.steps import taken

    name, batch = sys.argv[1], int(sys.argv[2])
    model = next(one for one in models() if one.name == name)
    with suppress(Exception), torch.device("meta"):
        model.build()
    more = max(0.0, _held("VmRSS") - before)
    rows = 2 * batch * sum(one.nbytes for one in rows_of(model, 1))
    with exact(0):
        list(taken(model, batch, 0.0, least=STEPS - 2))
    print(_held("VmHWM") - more - rows)


def _held(what: str) -> float:
    """Return bytes by the kernel's account of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what + ":"):
            return 1024.0 * int(line.split()[1])
    return 0.0


if __name__ == "__main__":
    main()
