"""Whether features can be shared: a row's are a function of that row, and layers stay as they are.

It is found out on rows: with two seeds, and in two batchings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mmdb.train.batch import Inputs, call, row_count, take_inputs, tensors_in
from mmdb.train.compute.exact import exact
from mmdb.train.features.backbone import Backbone
from mmdb.train.features.compute import features_in

#: A row's features may differ by rounding from batch to batch: as a share of their magnitude.
ROUNDING = 1e-3

_Outputs = dict[str, list[Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Why features cannot be shared, in one sentence.

    Attributes:
        learns: whether the layers change as they run.
    """

    reason: str
    learns: bool = False


@contextmanager
def unchanged(network: nn.Module) -> Iterator[None]:
    """Put the buffers of a network back, whatever runs inside the block."""
    before = {path: buffer.clone() for path, buffer in network.named_buffers()}
    versions = _versions(network)
    try:
        yield
    finally:
        with torch.no_grad():
            for path, buffer in network.named_buffers():
                if buffer._version != versions[path]:
                    buffer.copy_(before[path])


def doubts_of(
    backbone: Backbone, cuts: Sequence[str], x: Inputs, device: torch.device
) -> dict[str, Doubt]:
    """Return why features cannot be shared, by cut; for use inside `unchanged`.

    Args:
        cuts: in the order in which they run.
        x: some rows, on `device`.
    """
    layers = backbone.chain([(cut, "none") for cut in cuts])
    before = _versions(backbone.network)
    once, again = _Run(layers, [x], 1, device), _Run(layers, [x], 2, device)
    apart = _Run(layers, _parts(x), 1, device)
    after = _versions(backbone.network)
    changed = [path for path in before if before[path] != after[path]]
    found: dict[str, Doubt] = {}
    for place, cut in enumerate(cuts):
        doubt = _changes(backbone, cut, changed) or _draws(once, again, place)
        doubt = doubt or _mixes(once, apart, place)
        if doubt is not None:
            found[cut] = doubt
    return found


def _versions(network: nn.Module) -> dict[str, int]:
    """Return how often each buffer was written to."""
    return {path: buffer._version for path, buffer in network.named_buffers()}


def _changes(backbone: Backbone, cut: str, changed: Sequence[str]) -> Doubt | None:
    own = {path for path, _ in backbone.prefix(cut).named_buffers()}
    path = next((path for path in changed if path in own), None)
    if path is None:
        return None
    return Doubt(reason=f"{path!r} changes whenever the layers run.", learns=True)


def _draws(once: _Run, again: _Run, place: int) -> Doubt | None:
    if _equal(once.features[place], again.features[place]):
        return None
    where = once.first_apart(again, _equal)
    return Doubt(reason=f"The layers draw random numbers when they are evaluated{where}.")


def _mixes(once: _Run, apart: _Run, place: int) -> Doubt | None:
    if _close(once.features[place], apart.features[place]):
        return None
    where = once.first_apart(apart, _close)
    return Doubt(reason=f"A row's features depend on the other rows of its batch{where}.")


class _Run:
    """What layers made of batches, and what each of their parts did."""

    def __init__(
        self, layers: nn.Module, batches: Sequence[Inputs], seed: int, device: torch.device
    ) -> None:
        self._seen: _Outputs = {}
        parts = [(p, m) for p, m in layers.named_modules() if p and not list(m.children())]
        hooks = [part.register_forward_hook(self._note(path, part)) for path, part in parts]
        found: list[tuple[Tensor, ...]] = []
        try:
            with exact(seed, device=device), torch.no_grad():
                for batch in batches:
                    several = call(layers, batch)
                    assert isinstance(several, tuple)
                    rows = row_count(batch)
                    found.append(tuple(features_in(one, rows) for one in several))
        finally:
            for hook in hooks:
                hook.remove()
        self.features = [torch.cat(chunks) for chunks in zip(*found, strict=True)]

    def first_apart(self, other: _Run, alike: Callable[[Tensor, Tensor], bool]) -> str:
        """Return where the runs part, as a part of a sentence; "" where no module shows it."""
        for name, outputs in self._seen.items():
            if not alike(_joined(outputs), _joined(other._seen.get(name, outputs))):
                return f", from {name} on"
        return ""

    def _note(self, path: str, part: nn.Module) -> Callable[..., None]:
        name = f"{path!r} ({type(part).__name__})"

        def note(module: nn.Module, args: object, output: object) -> None:
            if isinstance(output, Tensor) and output.ndim:
                self._seen.setdefault(name, []).append(output.detach())

        return note


def _joined(outputs: Sequence[Tensor]) -> Tensor:
    """Return a module's outputs as one tensor; a module that runs several times counts once."""
    shapes = {output.shape[1:] for output in outputs}
    return torch.cat(list(outputs)) if len(shapes) == 1 else outputs[0]


def _parts(x: Inputs) -> list[Inputs]:
    """Return rows in two batches of different sizes; as they are where there are too few."""
    rows, first = row_count(x), max(1, row_count(x) // 3)
    index = torch.arange(rows, device=tensors_in(x)[0].device)
    return [take_inputs(x, part) for part in (index[:first], index[first:]) if len(part)]


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(torch.equal(a.nan_to_num(), b.nan_to_num()))


def _close(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape:
        return True  # it has no row of its own for each row
    a, b = a.float().nan_to_num(), b.float().nan_to_num()
    allowed = ROUNDING * max(float(a.abs().max()), 1e-12) if a.numel() else 0.0
    return not a.numel() or float((a - b).abs().max()) <= allowed
