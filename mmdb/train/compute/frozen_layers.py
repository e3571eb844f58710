"""What frozen layers are: names by content, time, and whether features can be shared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter

import torch
from blake3 import blake3
from torch import Tensor, nn

from mmdb.errors import NotACut
from mmdb.graph.cut.pool import pooled_shape, resolve_pool
from mmdb.graph.spec.layer_form import traced
from mmdb.store.tensors.tensor_bytes import dtype_name, raw_bytes
from mmdb.train.compute.backbone import Backbone, arguments_of
from mmdb.train.compute.device import CPU, synchronize
from mmdb.train.compute.exact import environment, exact
from mmdb.train.compute.feature_pass import features_in
from mmdb.train.compute.hop import blaming_the_model
from mmdb.train.values.feature_spec import Examined, FrozenPrefix
from mmdb.train.values.jobs import ExamineSpec
from mmdb.train.values.row_batch import Inputs, call, inputs_to, row_count, take_inputs, tensors_in
from mmdb.train.values.spec import CandidateSpec


class Identities:
    """Hashes of a network's parts; a tensor is hashed once."""

    def __init__(self, candidate: CandidateSpec) -> None:
        self._candidate = candidate
        self._hashes: dict[int, tuple[Tensor, bytes]] = {}  # a tensor keeps its id taken

    def architecture(self, layers: nn.Module, cut: str, pool: str) -> bytes:
        """Return a hash of what layers compute, 32 bytes.

        Where their forward was followed whole, names and what comes after the cut do not count.

        Args:
            layers: up to the cut, not pooled.
        """
        structure = traced(layers)
        found = blake3(b"mmdb.layers" + structure.canonical_hash + pool.encode())
        if not structure.is_traced:
            candidate = self._candidate
            known = [candidate.architecture, arguments_of(candidate), candidate.factories, cut]
            found.update(json.dumps(known, sort_keys=True).encode())
        return found.digest()

    def tensors(self, layers: nn.Module) -> bytes:
        """Return a hash of the tensors of layers, 32 bytes: in their order, without their names."""
        return blake3(b"".join(self._hash(tensor) for tensor in _tensors(layers))).digest()

    def _hash(self, tensor: Tensor) -> bytes:
        if id(tensor) not in self._hashes:
            form = f"{dtype_name(tensor.dtype)}{list(tensor.shape)}".encode()
            data = raw_bytes(tensor.detach().to(CPU).contiguous())
            self._hashes[id(tensor)] = tensor, blake3(form).update(data.data).digest()
        return self._hashes[id(tensor)][1]


def _tensors(layers: nn.Module) -> Iterator[Tensor]:
    """Yield the tensors that layers compute with, those that are no buffers among them."""
    kept = layers.state_dict(keep_vars=True)
    yield from (tensor for tensor in kept.values() if isinstance(tensor, Tensor))
    yield from (buffer for path, buffer in layers.named_buffers() if path not in kept)
    for module in layers.modules():
        yield from (value for value in vars(module).values() if isinstance(value, torch.Tensor))


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
    once, again = _ForwardRun(layers, [x], 1, device), _ForwardRun(layers, [x], 2, device)
    apart = _ForwardRun(layers, _parts(x), 1, device)
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


def _draws(once: _ForwardRun, again: _ForwardRun, place: int) -> Doubt | None:
    if _equal(once.features[place], again.features[place]):
        return None
    where = once.first_apart(again, _equal)
    return Doubt(reason=f"The layers draw random numbers when they are evaluated{where}.")


def _mixes(once: _ForwardRun, apart: _ForwardRun, place: int) -> Doubt | None:
    if _close(once.features[place], apart.features[place]):
        return None
    where = once.first_apart(apart, _close)
    return Doubt(reason=f"A row's features depend on the other rows of its batch{where}.")


class _ForwardRun:
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

    def first_apart(self, other: _ForwardRun, alike: Callable[[Tensor, Tensor], bool]) -> str:
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


#: Seconds that looking at rows may take, about; and how many passes over them that is.
_BUDGET_S, _PASSES = 1.5, 7
#: Rows that are looked at where a row takes long, and runs of which one is timed.
_FEWEST_ROWS, _TIMED = 8, 3
#: Rows whose features are a part of the layers' name.
_NAMING_ROWS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Time:
    """Seconds of a row; see `FrozenPrefix`."""

    shape: tuple[int, ...]  # of a row's outputs at the cut
    row_s: float
    stage_s: float
    source: str | None


def examine(spec: ExamineSpec, backbone: Backbone, x: Inputs, device: torch.device) -> Examined:
    """Look at the layers up to each cut, and time them on rows.

    Args:
        x: rows of the dataset, on any device.
    Raises:
        CutNotFound, NotACut, BackboneMismatch, TrainingFailed, OutputMismatch
    """
    running = {path: place for place, path in enumerate(backbone.cuts)}
    for cut, _ in spec.cuts:
        backbone.prefix(cut)  # says what is no cut
    cuts = sorted({cut for cut, _ in spec.cuts}, key=lambda cut: (running.get(cut, 0), cut))
    with blaming_the_model(), unchanged(backbone.network):
        rows = _few(backbone.chain([(cut, "none") for cut in cuts]), x, spec.rows, device)
        doubts = doubts_of(backbone, cuts, rows, device)
        times = _times(backbone, cuts, rows, device)
    identities = Identities(spec.candidate)
    found = []
    for cut, pool in spec.cuts:
        time, doubt = times[cut], doubts.get(cut)
        pool = resolve_pool(pool, time.shape, has_head=True)
        layers = backbone.prefix(cut)
        tensors = blake3(identities.tensors(layers))
        if doubt is None:
            tensors.update(_made_of(layers, x, device))
        found.append(
            FrozenPrefix(
                cut=cut,
                pool=pool,
                architecture_hash=identities.architecture(layers, cut, pool).hex(),
                tensors_hash=tensors.hexdigest(),
                shape=pooled_shape(pool, time.shape),
                row_s=time.row_s,
                stage_s=time.stage_s,
                order=running.get(cut, len(running)),
                source=time.source,
                not_reusable=doubt.reason if doubt else None,
                learns=doubt is not None and doubt.learns,
            )
        )
    with exact(0, device=device):
        return Examined(prefixes=tuple(found), environment=environment(device))


def _made_of(layers: nn.Module, x: Inputs, device: torch.device) -> bytes:
    """Return what layers make of a few rows, as bytes: always the same for the same layers.

    What a forward has besides tensors of the module (constants, hooks, the code itself) shows in
    nothing else.
    """
    with exact(0, device=device), torch.no_grad(), blaming_the_model():
        rows = _first(x, min(row_count(x), _NAMING_ROWS), device)
        made = features_in(call(layers, rows), row_count(rows))
    return made.cpu().contiguous().numpy().tobytes()


def _few(layers: nn.Module, x: Inputs, most: int, device: torch.device) -> Inputs:
    """Return as many rows, on the device, as can be looked at in the time."""
    count = min(row_count(x), most)
    few = _first(x, min(count, _FEWEST_ROWS), device)
    with exact(0, device=device), torch.no_grad():
        call(layers, few)  # what is loaded and allocated at first does not count
        begun = perf_counter()
        call(layers, few)
        synchronize(device)
    row_s = (perf_counter() - begun) / row_count(few)
    fit = int(_BUDGET_S / _PASSES / max(row_s, 1e-9))
    return _first(x, min(count, max(fit, _FEWEST_ROWS)), device)


def _first(x: Inputs, count: int, device: torch.device) -> Inputs:
    index = torch.arange(count, device=tensors_in(x)[0].device)
    return inputs_to(take_inputs(x, index), device)


def _times(
    backbone: Backbone, cuts: Sequence[str], x: Inputs, device: torch.device
) -> dict[str, _Time]:
    """Return what a row takes up to each cut: from the cut before it, where that is possible."""
    rows = row_count(x)
    found: dict[str, _Time] = {}
    with exact(0, device=device), torch.no_grad():
        outputs = call(backbone.chain([(cut, "none") for cut in cuts]), x)
        assert isinstance(outputs, tuple)
        features = {c: features_in(o, rows) for c, o in zip(cuts, outputs, strict=True)}
        for place, cut in enumerate(cuts):
            source, run = _way(backbone, cuts[:place], cut, x, features)
            stage_s = _seconds(run, device) / rows
            before_s = found[source].row_s if source is not None else 0.0
            found[cut] = _Time(
                shape=tuple(features[cut].shape[1:]),
                row_s=before_s + stage_s,
                stage_s=stage_s,
                source=source,
            )
    return found


def _way(
    backbone: Backbone,
    before: Sequence[str],
    cut: str,
    x: Inputs,
    features: dict[str, torch.Tensor],
) -> tuple[str | None, Callable[[], object]]:
    """Return the nearest cut from which features can be computed, and what does it."""
    for source in reversed(before):
        try:
            stage = backbone.stages(source, [(cut, "none")])
        except NotACut:
            continue
        return source, partial(stage, features[source])
    return None, partial(call, backbone.prefix(cut), x)


def _seconds(run: Callable[[], object], device: torch.device) -> float:
    """Return the median of some runs."""
    taken = []
    for _ in range(_TIMED):
        begun = perf_counter()
        run()
        synchronize(device)
        taken.append(perf_counter() - begun)
    return median(taken)
