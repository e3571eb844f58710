"""Features of rows: in chunks of a fixed size and in order, which decides their bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from mmdb.data.feature_files import coded
from mmdb.errors import Cancelled, OutputMismatch
from mmdb.train.compute.device import CPU
from mmdb.train.compute.exact import exact
from mmdb.train.compute.hop import blaming_the_model
from mmdb.train.values.feature_spec import FEATURE_ROWS, STORAGES
from mmdb.train.values.row_batch import Inputs, call, inputs_to, row_count, take_inputs, tensors_in

_FEATURES = "Freeze up to a module that returns one tensor of floats: a row for each of its input."


def compute(
    layers: nn.Module,
    x: Inputs,
    take: Callable[[tuple[Tensor, ...]], object],
    *,
    device: torch.device = CPU,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Hand the features of each chunk of rows to `take`, float32 and on `device`.

    Args:
        layers: on `device`; returns one tensor of features, or a tuple of several.
        stopped: asked between chunks.
    Raises:
        TrainingFailed: the layers are the owner's code.
        OutputMismatch: they return something else than features of each row.
        Cancelled
    """
    with exact(0, device=device), torch.no_grad():
        for chunk in _chunks(x):
            if stopped():
                raise Cancelled("The features are no longer wanted.")
            rows = row_count(chunk)
            with blaming_the_model():
                found = call(layers, inputs_to(chunk, device))
            several = found if isinstance(found, tuple) else (found,)
            take(tuple(features_in(one, rows) for one in several))


def features_of(
    layers: nn.Module,
    x: Inputs,
    storage: str,
    *,
    device: torch.device = CPU,
    stopped: Callable[[], bool] = lambda: False,
) -> Tensor:
    """Return the features of rows as they are after they were stored, float32 on `device`."""
    found: list[Tensor] = []

    def take(several: tuple[Tensor, ...]) -> None:
        (features,) = several
        found.append(after_storing(features, storage))

    compute(layers, x, take, device=device, stopped=stopped)
    return torch.cat(found)


def after_storing(features: Tensor, storage: str) -> Tensor:
    """Return features as they are after they were stored."""
    if storage == STORAGES[0]:
        return features
    decoded: np.ndarray = coded(features.to(CPU).numpy(), storage)
    return torch.from_numpy(decoded).to(features.device)


def features_in(found: object, rows: int) -> Tensor:
    """Return what layers made of some rows as float32.

    Raises:
        OutputMismatch: it is not a tensor of floats with as many rows.
    """
    if not isinstance(found, Tensor) or not found.is_floating_point():
        raise OutputMismatch(
            f"The layers before the cut return a {type(found).__name__}.", hint=_FEATURES
        )
    if found.ndim < 2 or len(found) != rows:
        shape = tuple(found.shape)
        raise OutputMismatch(
            f"The layers before the cut return {shape} for {rows} rows.", hint=_FEATURES
        )
    return found.detach().float()


def _chunks(x: Inputs) -> Iterator[Inputs]:
    device = tensors_in(x)[0].device
    for start in range(0, row_count(x), FEATURE_ROWS):
        end = min(start + FEATURE_ROWS, row_count(x))
        yield take_inputs(x, torch.arange(start, end, device=device))
