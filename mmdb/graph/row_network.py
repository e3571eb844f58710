"""A network's pass of one row in numpy, whose calls take a fraction of what calls of torch take."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mmdb.graph import mean, tabular

Step = Callable[[Any], Any]
#: By how much of the greatest output torch and numpy may differ.
_TOLERANCE = 2e-6
#: Where silu is 0; the exponential of much less would overflow.
_LEAST = np.float32(-80)


def row_network(module: nn.Module, examples: np.ndarray) -> Step | None:
    """Return what makes the outputs of one row, float32 (1, ...) to (outputs,).

    Args:
        examples: rows on which it has to agree with the module, float32 (n, ...).
    Returns:
        None where the module has a layer that is not known here, or they do not agree.
    """
    try:
        step = _step(module)
        with torch.no_grad(), np.errstate(all="ignore"):  # of infinite weights
            expected = module(torch.from_numpy(examples)).numpy()
            found = np.stack([step(row) for row in examples])
            near = np.abs(found - expected).max() <= _TOLERANCE * np.abs(expected).max()
    except (NotImplementedError, TypeError, ValueError):  # of numpy: it has another shape or dtype
        return None
    return step if near and found.shape == expected.shape else None


def _step(module: nn.Module) -> Step:
    """Return what a module makes of one row, or of a row of each member."""
    known = ("torch.nn.", tabular.__name__, mean.__name__)
    if not type(module).__module__.startswith(known):
        raise NotImplementedError  # a class of the user's, whatever it inherits
    of = {name: one.detach().numpy() for name, one in module.named_parameters(recurse=False)}
    match module:
        case nn.Flatten():
            return np.ravel
        case nn.Identity() | nn.Dropout():
            return lambda x: x
        case nn.ReLU():
            return lambda x: np.maximum(x, 0.0)
        case nn.Tanh():
            return np.tanh
        case nn.SiLU():
            return lambda x: x / (1.0 + np.exp(-np.maximum(x, _LEAST)))
        case nn.Linear(bias=Tensor()):
            return lambda x: of["weight"].dot(x) + of["bias"]
        case nn.Sequential():
            steps = [_step(one) for one in module]
            return lambda x: reduce(lambda y, step: step(y), steps, x)
        case tabular.Scaled():
            return lambda x: x * module.deviation + module.mean
        case tabular.SharedLinear():
            return lambda x: (x * of["into"]).dot(of["weight"].T) * of["out"] + of["bias"]
        case tabular.MemberLinear():
            return lambda x: np.matmul(x[:, None], of["weight"])[:, 0] + of["bias"]
        case tabular.PeriodicEmbedding():
            return _waves(2 * math.pi * of["frequency"], of["phase"], of["weight"], of["bias"])
        case tabular.ColumnInput(numbers=numbers, readers=readers) if not len(readers):
            tables = [one.weight.detach().numpy() for one in module.embeddings]  # type: ignore[operator]
            return _columns(numbers.numpy(), [*zip(module.codes, tables, strict=True)])
        case tabular.DeepColumns(numbers=count):
            waves = _step(module.embedding or nn.Flatten())
            silu, layers = _step(nn.SiLU()), [_step(layer) for layer in module.layers]
            head = _step(module.head)

            def deep(row: np.ndarray) -> Any:
                x = np.concatenate([waves(row[:count, None]), row[count:]]) * of["feature_scale"]
                for layer in layers:
                    x = silu(layer(x))
                return head(x)

            return deep
        case tabular.TabularNetwork():
            columns, plain, scale = map(_step, (module.columns, module.linear, module.scale))

            def linear(row: np.ndarray) -> Any:
                return plain(row) * module.gain

            further = _step(module.deep) if module.deep else lambda _: 0.0
            if module.deep is None or module.deep.members == 1:
                return lambda x: scale(linear(row := columns(x)) + further(row))
            together = _mean_of_probabilities if module.averages == "probabilities" else _mean
            return lambda x: scale(together(linear(row := columns(x)) + further(row)))
        case mean.MeanOf(averages=mean.OUTPUTS | mean.PROBABILITIES):
            each = [_step(one) for one in module.children()]
            averaged = _mean_of_probabilities if module.averages == mean.PROBABILITIES else _mean
            return lambda x: averaged(np.stack([step(x) for step in each]))
    raise NotImplementedError


def _mean(y: np.ndarray) -> np.ndarray:
    return y.mean(0)  # type: ignore[no-any-return]


def _mean_of_probabilities(y: np.ndarray) -> np.ndarray:
    y = y - y.max(1, keepdims=True)
    y -= np.log(np.exp(y).sum(1, keepdims=True))
    most = y.max(0)
    return most + np.log(np.exp(y - most).mean(0))  # type: ignore[no-any-return]


def _waves(*of: np.ndarray) -> Step:
    frequency, phase, weight, bias = of

    def step(x: np.ndarray) -> np.ndarray:
        waves = np.cos(x * frequency + phase)[:, None]
        return np.concatenate([np.matmul(waves, weight)[:, 0] + bias, x], 1).ravel()

    return step


def _columns(numbers: np.ndarray, coded: list[tuple[int, np.ndarray]]) -> Step:
    def step(x: np.ndarray) -> np.ndarray:
        row = x.ravel()
        return np.concatenate([row[numbers], *(table[int(row[place])] for place, table in coded)])

    return step
