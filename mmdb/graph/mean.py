"""The mean of several networks that read the same rows, such as the best candidates of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from mmdb.errors import FactoryFailed
from mmdb.graph.spec.build import BuildRequest, parameter_count
from mmdb.graph.spec.parse import AVERAGES

OUTPUTS, PROBABILITIES, LABEL_PROBABILITIES = AVERAGES
#: What is averaged by a label's task.
BY_TASK: Mapping[str, str] = {
    "regression": OUTPUTS,
    "classification": PROBABILITIES,
    "multilabel": LABEL_PROBABILITIES,
}


class MeanOf(nn.Module):
    """Networks with one input and one label, whose mean it is; they are its children "0", "1", ...

    While it trains, it returns the outputs of each, (n, members, outputs), so that each learns for
    itself; else (n, outputs).
    """

    def __init__(self, members: Sequence[nn.Module], averages: str) -> None:
        """Args: averages: of `mmdb.graph.spec.parse.AVERAGES`."""
        super().__init__()
        self.averages = averages
        for place, member in enumerate(members):
            self.add_module(str(place), member)

    def forward(self, x: Tensor) -> Tensor:
        """Return what the networks say together."""
        found = [member(x) for member in self.children()]
        if self.training:  # of a network that is an ensemble itself there are several already
            return torch.cat([y if y.ndim == 3 else y.reshape(len(y), 1, -1) for y in found], 1)
        return mean_of(found, self.averages)


def mean_of(outputs: Sequence[Tensor], averages: str) -> Tensor:
    """Return the mean of outputs, each (n, outputs) or of one output (n,), as such outputs."""
    found = torch.stack([*outputs], 1)
    if averages == OUTPUTS:
        return found.mean(1)
    if averages == LABEL_PROBABILITIES:  # how probable it is that a label is there, and is not
        there, absent = (torch.logsumexp(logsigmoid(sign * found), 1) for sign in (1, -1))
        return there - absent
    return torch.logsumexp(torch.log_softmax(found, 2), 1) - math.log(len(outputs))


def build_mean(parsed: Mapping[str, Any], request: BuildRequest) -> MeanOf:
    """Return the module of {"mean", "averages"}.

    Args: as of `mmdb.graph.spec.build.build`; request.arguments are of each network.
    Raises:
        ArchitectureError
    """
    if isinstance(request.input_shape, dict) or isinstance(request.outputs, dict):
        raise FactoryFailed("a mean is of networks with one input and one label")
    members: list[nn.Module] = []
    count = 0
    for form in parsed["mean"]:
        member = request.build(form, max_parameters=request.max_parameters - count)
        members.append(member)
        count += parameter_count(member)
    return MeanOf(members, cast("str", parsed["averages"]))
