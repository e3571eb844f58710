"""Modules without memory."""

from __future__ import annotations

import subprocess
import sys

import torch
from torch import nn

from mmdb.graph.trace.stand_ins import on_meta

BUILT = """
import sys
from mmdb.graph.factories import transformer
from mmdb.graph.trace.stand_ins import on_meta
with on_meta():
    transformer((8, 8), 10)
print("sympy" in sys.modules)
"""


def test_nothing_is_allocated() -> None:
    with on_meta():
        layer, table = nn.Linear(3, 4), nn.Embedding(5, 6)
        assert nn.init.normal_(table.weight) is table.weight
    assert layer.weight.is_meta and table.weight.shape == (5, 6)


def test_what_is_real_is_filled_all_the_same() -> None:
    with on_meta():
        real = torch.zeros(4, device="cpu")
        nn.init.constant_(real, 2.0)
        nn.init.normal_(real, mean=real[0].item())
    assert not real.is_meta and (real != 0).all()


def test_torch_loads_no_symbols_to_draw_what_is_not_there() -> None:
    done = subprocess.run([sys.executable, "-c", BUILT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
