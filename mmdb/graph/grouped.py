"""A network for each group of rows, such as a store or an article: tensors with a row per group."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from mmdb.arguments import is_whole
from mmdb.errors import FactoryFailed
from mmdb.graph.spec.build import MAX_PARAMETERS, build, parameter_count
from mmdb.graph.spec.factory_call import Outputs, Shape
from mmdb.graph.tabular import UNKNOWN_CODE
from mmdb.memory import require
from mmdb.messages import show

#: The group whose network learns from all rows: it answers for groups that no train row had.
COMMON = UNKNOWN_CODE
#: What the paths of the networks' tensors begin with.
EACH = "each."
#: Numbers of weights that are gathered at once.
_MOST_GATHERED = 2**22


class Grouped(nn.Module):
    """A network for each group, which answers that group's rows: (n, F) to (n, outputs).

    One of a row's numbers is the code of its group. Its tensors are `each.<path>`, those of one
    network with a dimension in front, and `steps`, int64 (groups,): the optimizer's steps that
    each group has had.
    """

    def __init__(self, network: nn.Module, groups: int, place: int) -> None:
        """Begin with the weights of one network in all groups.

        Args:
            groups: codes that there are, 0 to groups - 1; see `mmdb.data.transform.transform`.
            place: of a row's number that is the code; the networks do not see it.
        """
        super().__init__()
        self.place = place
        numbers = sum(t.numel() for _, t in _tensors(network))
        require(groups * numbers * 4, f"A network for each of {groups:,} groups")
        for _, tensor in _tensors(network):
            tensor.data = tensor.detach().expand(groups, *tensor.shape).clone()
        self.each = network
        self.steps: Tensor
        self.register_buffer("steps", torch.zeros(groups, dtype=torch.int64))
        self._chunk = max(1, _MOST_GATHERED // max(numbers, 1))

    @property
    def groups(self) -> int:
        """How many codes there are."""
        return len(self.steps)

    def codes(self, x: Tensor) -> Tensor:
        """Return the group of each row, int64 (n,)."""
        return x[:, self.place].long()

    def rows(self, x: Tensor) -> Tensor:
        """Return what the networks see, (n, F - 1)."""
        return torch.cat([x[:, : self.place], x[:, self.place + 1 :]], 1)

    def tensors(self) -> dict[str, Tensor]:
        """Return what the networks have, by path within one."""
        return dict(_tensors(self.each))

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of each row's group."""
        parts = [
            self._outputs(codes, rows)
            for codes, rows in zip(
                self.codes(x).split(self._chunk), self.rows(x).split(self._chunk), strict=True
            )
        ]
        return torch.cat(parts)

    def _outputs(self, codes: Tensor, rows: Tensor) -> Tensor:
        own = {path: tensor[codes] for path, tensor in self.tensors().items()}

        def one(tensors: Mapping[str, Tensor], row: Tensor) -> Tensor:
            return cast("Tensor", functional_call(self.each, dict(tensors), (row[None],))[0])

        return torch.vmap(one)(own, rows)

    def of(self, code: int) -> nn.Module:
        """Return the network of a group, with weights of its own."""
        network = copy.deepcopy(self.each)
        for _, tensor in _tensors(network):
            tensor.data = tensor.detach()[code].clone()
        return network


def build_grouped(
    parsed: Mapping[str, Any],
    arguments: Mapping[str, object],
    input_shape: Shape,
    outputs: Outputs,
    factories: Mapping[str, str],
    *,
    max_parameters: int = MAX_PARAMETERS,
) -> Grouped:
    """Return the module of {"per", "groups", "place", "network"}.

    Args: as of `mmdb.graph.spec.build.build`; arguments are of the network.
    Raises:
        ArchitectureError
    """
    groups, place = parsed["groups"], parsed["place"]
    if isinstance(input_shape, dict) or len(input_shape) != 1 or input_shape[0] < 2:
        raise FactoryFailed(
            f"a model per {parsed['per']} reads rows of columns, not of shape {show(input_shape)}",
            hint="The dataset needs a feature beside the column of groups.",
        )
    if not is_whole(place, 0, input_shape[0] - 1) or not is_whole(groups, 2, 2**24):
        raise FactoryFailed(f"groups is {show(groups)}, and their place {show(place)}")
    shape = (input_shape[0] - 1,)
    network = build(
        parsed["network"], arguments, shape, outputs, factories, max_parameters=max_parameters
    )
    count = parameter_count(network)
    if count * groups > max_parameters:
        raise FactoryFailed(
            f"a network of {count:,} parameters for each of {groups:,} groups makes "
            f"{count * groups:,}; the limit is {max_parameters:,}",
            hint="Make the network smaller, or let the dataset's index group rare values.",
        )
    return Grouped(network, groups, place)


def _tensors(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from network.named_parameters()
    kept = network.state_dict().keys()
    yield from ((path, buffer) for path, buffer in network.named_buffers() if path in kept)
