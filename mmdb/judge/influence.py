"""Which training rows helped a model to answer some rows, and which ones hurt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from mmdb.data.decoding import Task

#: By input; one of the name "" where there is but one.
Arrays = Mapping[str, Tensor]
_ROWS_AT_ONCE = 1024


def losses(output: Tensor, y: Tensor, task: Task) -> Tensor:
    """Return the loss of each row, (n,): cross entropy, or half of the squared error."""
    functional = nn.functional
    if task == "classification":
        return functional.cross_entropy(output, y, reduction="none")
    if task == "multilabel":
        return functional.binary_cross_entropy_with_logits(output, y, reduction="none").sum(-1)
    return (output.reshape(len(output)) - y).square() / 2


def influences(
    module: nn.Module,
    output_of: Callable[[Arrays], Tensor],
    task: Task,
    asked: tuple[Arrays, Tensor],
    trained: tuple[Arrays, Tensor],
) -> tuple[Tensor, Tensor]:
    """Return what each training row did to the loss of the rows asked about, and its own loss.

    Args:
        module: in evaluation mode; `output_of` calls it.
        asked: inputs and labels of the rows whose loss, in sum, is explained.
    Returns:
        Two times (training rows,): the gradients' product, above 0 where a step on the row lowers
        the loss of those asked about; and losses.
    Source: Pruthi et al., NeurIPS 2020 (TracIn), at one checkpoint.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    whole = losses(output_of(asked[0]), asked[1], task).sum()
    toward = torch.autograd.grad(whole, parameters, allow_unused=True)
    used = [(p, g) for p, g in zip(parameters, toward, strict=True) if g is not None]
    found: list[Tensor] = []
    own: list[Tensor] = []
    inputs, labels = trained
    for at in range(0, len(labels), _ROWS_AT_ONCE):
        rows = slice(at, at + _ROWS_AT_ONCE)
        part = losses(output_of({n: x[rows] for n, x in inputs.items()}), labels[rows], task)
        own.append(part.detach())
        found.append(_products(part, used))
    return torch.cat(found), torch.cat(own)


def _products(part: Tensor, used: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the product of each row's gradient with one direction.

    Of weights that rows count by, their loss's gradient is linear, so that the product's derivative
    by a row's weight is that row's own.
    """
    weight = torch.ones_like(part, requires_grad=True)
    parameters = [parameter for parameter, _ in used]
    slopes = torch.autograd.grad((part * weight).sum(), parameters, create_graph=True)
    total = sum(((s * g).sum() for s, (_, g) in zip(slopes, used, strict=True)), torch.zeros(()))
    (found,) = torch.autograd.grad(total, weight)
    return found
