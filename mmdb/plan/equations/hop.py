"""What a hop takes, piece by piece: compute, and the way of a state from one worker to the next."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Number = float | Floats | npt.NDArray[np.int64]


def steps(rows: Number, batch_size: Number) -> Floats:
    """Return the optimizer's steps of a pass over `rows`.

    ceil(n / b), less one where the last batch would have a single row: it joins the one before
    (mmdb.train.compute.optimizer.batches).
    """
    n, b = np.asarray(rows, dtype=np.float64), np.asarray(batch_size, dtype=np.float64)
    count = np.ceil(n / b)
    return np.asarray(count - ((count > 1) & (n - (count - 1) * b == 1)))


def train_s(rows: Number, batch_size: Number, step_s: Number, row_s: Number) -> Floats:
    """Return the seconds of a pass: steps * a0 + rows * a1.

    Source: the step is a0 + a1 * b (Pollux, OSDI 2021, T_grad; fitted to measured steps), and its
        sum over a pass; only the last batch is smaller.
    """
    found = steps(rows, batch_size) * step_s + np.asarray(rows) * row_s
    return np.asarray(found, dtype=np.float64)


def take_s(state_bytes: Number, build_s: Number, load_byte_s: float) -> Floats:
    """Return the seconds until a state that another worker left is live here: build, then load.

    Source: measured; linear in the bytes (mmdb.train.hops.device_worker.DeviceWorker._take).
    """
    return np.asarray(build_s + np.asarray(state_bytes) * load_byte_s)


def leave_s(state_bytes: Number, hop_s: Number, encode_byte_s: float) -> Floats:
    """Return the seconds that each train hop ends with: naming its state, and writing its row.

    The state is encoded and hashed even where it stays (Session.perform). Source: measured.
    """
    return np.asarray(hop_s + np.asarray(state_bytes) * encode_byte_s)


def merge_s(
    partitions: int, state_bytes: Number, hop_s: Number, load_byte_s: float, merge_byte_s: float
) -> Floats:
    """Return the seconds in which one worker averages the states of `partitions` hops.

    They are read and added one by one, in float64: hop + P * S * (load + merge).
    Source: mmdb.train.group.average; the rates are measured.
    """
    bytes_read = partitions * np.asarray(state_bytes)
    return np.asarray(hop_s + bytes_read * (load_byte_s + merge_byte_s))
