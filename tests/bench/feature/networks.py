"""A backbone whose cost and whose features are set apart from each other.

It is a factory that a database can register: `tests.bench.feature.networks:tower`.
"""

from __future__ import annotations

import math
from collections import OrderedDict

from torch import nn

#: The cut that has the features.
FEATURES = "features"


def tower(
    input_shape: tuple[int, ...],
    outputs: int,
    *,
    width: int = 512,
    depth: int = 4,
    features: int = 64,
) -> nn.Module:
    """Return a perceptron: `depth` layers of one width, the features, and a linear layer.

    Args:
        features: numbers at the cut `features`.
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    before = math.prod(input_shape)
    for level in range(depth):
        layers[f"layer{level}"] = nn.Sequential(nn.Linear(before, width), nn.ReLU())
        before = width
    layers[FEATURES] = nn.Sequential(nn.Linear(before, features), nn.ReLU())
    layers["out"] = nn.Linear(features, outputs)
    return nn.Sequential(layers)
