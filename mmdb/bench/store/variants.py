"""Networks with trained-looking weights, and what fine-tuning makes of them.

Weights are drawn, not trained: the stored size of a network depends on how its floats are
distributed, and these are distributed as after training. Real weights pack about 2 % better.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy

import torch
from torch import nn

from mmdb.bench.networks import empty

BATCHES_SEEN = 450_360  # 90 epochs of 5,004 batches: 1,281,167 pictures by 256

#: What one fine-tuning step moves a weight by, in units of its tensor's standard deviation.
STEP = 0.005


def filled(name: str, seed: int) -> nn.Module:
    """Return a network for ImageNet with weights as after training, the same for a seed."""
    module = empty(name).to_empty(device="cpu")
    draw = torch.Generator().manual_seed(seed)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            _fill_norm(layer, draw)
        elif isinstance(layer, nn.Conv2d | nn.Linear):
            he = math.sqrt(2 / layer.weight[0].numel())  # He et al. 2015, equation 10
            layer.weight.detach().normal_(0, he, generator=draw)
            if layer.bias is not None:
                layer.bias.detach().normal_(0, 0.02, generator=draw)
    return module.eval()


def classifier_changed(module: nn.Module, seed: int, sigma: float = STEP) -> nn.Module:
    """Return a copy whose last linear layer a fine-tuning step has moved."""
    return _moved(module, seed, sigma, lambda path: path.startswith(last_linear(module)))


def last_block_changed(module: nn.Module, seed: int, sigma: float = STEP) -> nn.Module:
    """Return a copy whose last convolutional block and classifier a step has moved."""
    parts = (f"{last_block(module)}.", last_linear(module))
    return _moved(module, seed, sigma, lambda path: path.startswith(parts))


def every_weight_moved(module: nn.Module, seed: int, sigma: float = STEP) -> nn.Module:
    """Return a copy that a fine-tuning step has moved, BatchNorm's statistics with it."""
    return _moved(module, seed, sigma, lambda path: True)


def in_bfloat16(module: nn.Module) -> nn.Module:
    """Return a copy with its floats rounded to bfloat16.

    Round the two versions of a network after the step, not before: on weights that are bfloat16
    already most of a small step would round away.
    """
    return deepcopy(module).to(torch.bfloat16)


def last_linear(module: nn.Module) -> str:
    """Return the path prefix of the classifier, such as "fc."."""
    linear: list[str] = [
        path for path, layer in module.named_modules() if isinstance(layer, nn.Linear)
    ]
    return linear[-1] + "."


def last_block(module: nn.Module) -> str:
    """Return the path of the last block of the last stage, such as "layer4.2"."""
    head = last_linear(module).partition(".")[0]
    blocks: list[str] = [name for name, _ in module.named_modules() if name.count(".") == 1]
    *_, last = (name for name in blocks if name.partition(".")[0] != head)
    return last


def raw_bytes(module: nn.Module) -> int:
    """Return the bytes of a module's state dict."""
    return sum(tensor.nbytes for tensor in module.state_dict().values())


def changed_bytes(before: nn.Module, after: nn.Module) -> int:
    """Return the raw bytes of the tensors that differ."""
    old = before.state_dict()
    return sum(t.nbytes for p, t in after.state_dict().items() if not torch.equal(t, old[p]))


def _fill_norm(layer: nn.BatchNorm2d, draw: torch.Generator) -> None:
    assert layer.running_mean is not None and layer.running_var is not None
    assert layer.num_batches_tracked is not None
    layer.weight.detach().normal_(1, 0.2, generator=draw)
    layer.bias.detach().normal_(0, 0.2, generator=draw)
    layer.running_mean.normal_(0, 0.5, generator=draw)
    layer.running_var.log_normal_(0, 0.5, generator=draw)  # positive, skewed
    layer.num_batches_tracked.fill_(BATCHES_SEEN)


def _moved(module: nn.Module, seed: int, sigma: float, chosen: Callable[[str], bool]) -> nn.Module:
    copy, draw = deepcopy(module), torch.Generator().manual_seed(seed)
    for path, tensor in copy.state_dict().items():
        if not chosen(path):
            continue
        if not tensor.is_floating_point():
            tensor += 1  # a batch seen
        elif tensor.numel() > 1:
            std = sigma * float(tensor.float().std())
            tensor += torch.empty_like(tensor, dtype=torch.float32).normal_(0, std, generator=draw)
    return copy
