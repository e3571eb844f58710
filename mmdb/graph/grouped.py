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
from mmdb.graph.spec.build import BuildRequest, parameter_count
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
    each group has had. While it trains it may hold the weights of each group's best epoch, too,
    which answer in evaluation mode: see `keep_best`.
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
        self.best: Tensor | None  # (groups, numbers of a network's parameters)
        self.best_loss: Tensor | None  # of the rows held out; infinite where there were none
        self.waited: Tensor | None  # epochs since the best one
        for name in ("best", "best_loss", "waited"):
            self.register_buffer(name, None, persistent=False)

    def keep_best(self) -> None:
        """Begin to hold the weights of each group's best epoch; see `mark`."""
        numbers = sum(parameter[0].numel() for parameter in self.each.parameters())
        require(self.groups * numbers * 4, f"The best of each of {self.groups:,} groups")
        self.best = torch.zeros(self.groups, numbers)
        self.best_loss = torch.full((self.groups,), torch.inf, dtype=torch.float64)
        self.waited = torch.zeros(self.groups, dtype=torch.int64)

    def mark(self, losses: Tensor) -> None:
        """Hold what each group has where its loss, float64 (groups,), is less than ever before.

        NaN is the loss of a group without rows held out, which goes on with what it has.
        """
        assert self.best is not None and self.best_loss is not None and self.waited is not None
        better = losses < self.best_loss
        own = [parameter.detach()[better].flatten(1) for parameter in self.each.parameters()]
        self.best[better] = torch.cat(own, 1)
        self.best_loss[better] = losses[better]
        self.waited = torch.where(better, 0, self.waited + ~losses.isnan())

    def settle(self) -> Grouped:
        """Give each group the weights of its best epoch, and hold no others; return itself."""
        if self.best is not None:
            found = self.eval()._answering(torch.arange(self.groups))
            for path, parameter in self.each.named_parameters():
                parameter.data = found[path]
            self.best = self.best_loss = self.waited = None
        return self

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
        return self.answers(self.codes(x), self.rows(x))

    def answers(self, codes: Tensor, rows: Tensor) -> Tensor:
        """Return the outputs of rows (n, F - 1) by the networks of groups (n,)."""
        parts = zip(codes.split(self._chunk), rows.split(self._chunk), strict=True)
        return torch.cat([self._outputs(own, some) for own, some in parts])

    def _answering(self, codes: Tensor) -> dict[str, Tensor]:
        """Return the tensors that answer rows of these groups, a copy for each row."""
        if self.best is None or self.training:
            return {path: tensor[codes] for path, tensor in self.tensors().items()}
        codes = torch.where(self.steps[codes] > 0, codes, COMMON)
        found = {path: tensor.detach()[codes] for path, tensor in self.tensors().items()}
        sizes = [parameter[0].numel() for parameter in self.each.parameters()]
        assert self.best_loss is not None
        known = self.best_loss[codes] < torch.inf
        for (path, _), own in zip(
            self.each.named_parameters(), self.best[codes].split(sizes, 1), strict=True
        ):
            found[path][known] = own.view_as(found[path])[known]
        return found

    def _outputs(self, codes: Tensor, rows: Tensor) -> Tensor:
        own = self._answering(codes)

        def one(tensors: Mapping[str, Tensor], row: Tensor) -> Tensor:
            return cast("Tensor", functional_call(self.each, dict(tensors), (row[None],))[0])

        return torch.vmap(one)(own, rows)

    def of(self, code: int) -> nn.Module:
        """Return the network of a group, with weights of its own."""
        network = copy.deepcopy(self.each)
        for _, tensor in _tensors(network):
            tensor.data = tensor.detach()[code].clone()
        return network


def build_grouped(parsed: Mapping[str, Any], request: BuildRequest) -> Grouped:
    """Return the module of {"per", "groups", "place", "network"}.

    Args: as of `mmdb.graph.spec.build.build`; request.arguments are of the network.
    Raises:
        ArchitectureError
    """
    groups, place, input_shape = parsed["groups"], parsed["place"], request.input_shape
    if isinstance(input_shape, dict) or len(input_shape) != 1 or input_shape[0] < 2:
        raise FactoryFailed(
            f"a model per {parsed['per']} reads rows of columns, not of shape {show(input_shape)}",
            hint="The dataset needs a feature beside the column of groups.",
        )
    if not is_whole(place, 0, input_shape[0] - 1) or not is_whole(groups, 2, 2**24):
        raise FactoryFailed(f"groups is {show(groups)}, and their place {show(place)}")
    network = request.build(parsed["network"], input_shape=(input_shape[0] - 1,))
    count = parameter_count(network)
    if count * groups > request.max_parameters:
        raise FactoryFailed(
            f"a network of {count:,} parameters for each of {groups:,} groups makes "
            f"{count * groups:,}; the limit is {request.max_parameters:,}",
            hint="Make the network smaller, or let the dataset's index group rare values.",
        )
    return Grouped(network, groups, place)


def _tensors(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from network.named_parameters()
    kept = network.state_dict().keys()
    yield from ((path, buffer) for path, buffer in network.named_buffers() if path in kept)
