"""Whether a network and its two parts at a cut give the same."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from mmdb.errors import NotACut
from mmdb.graph.cut.cut import prefix_of, rest_of

_TOLERANCE = 1e-4  # of the largest number of an output


def check_cut(module: nn.Module, cut: str, *args: Any, **kwargs: Any) -> None:
    """Run rows through a network, and in two parts; all of it in eval mode, without gradients.

    Args:
        args, kwargs: what the forward takes.
    Raises:
        NotACut: the parts give something else than the whole.
    """
    names = tuple(kwargs) or None
    memo: dict[int, Any] = {id(t): t for t in (*module.parameters(), *module.buffers())}
    with torch.no_grad():
        expected = copy.deepcopy(module, memo).eval()(*args, **kwargs)
        features = prefix_of(module, cut, inputs=names)(*args, **kwargs)
        found = rest_of(module, cut, inputs=names).eval()(features)
    if not _same(expected, found):
        raise NotACut(
            f"{cut} and what comes after it do not give what the network gives",
            hint="Its forward keeps something aside: freeze up to another module.",
        )


def _same(a: Any, b: Any) -> bool:
    """Return whether two results are alike; a layout in memory may change the last bits."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        scale = float(a.nan_to_num().abs().max()) if a.numel() else 0.0
        return torch.allclose(a, b, rtol=0.0, atol=_TOLERANCE * scale, equal_nan=True)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)
