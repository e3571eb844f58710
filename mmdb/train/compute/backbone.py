"""Networks with frozen layers: built once in a session, and shared by all that freeze them."""

from __future__ import annotations

import copy
import json
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TypeVar

import torch
from blake3 import blake3
from torch import Tensor, nn

from mmdb.data import node_cache
from mmdb.errors import (
    ArchitectureError,
    BackboneMismatch,
    BackboneMissing,
    FactoryFailed,
    stops_the_caller,
)
from mmdb.graph.cut.cut import (
    backbone_of,
    chain_of,
    cuts_of,
    frozen_paths,
    prefix_of,
    rest_of,
    stage_of,
)
from mmdb.graph.spec.build import initial_module
from mmdb.graph.spec.factory_call import Shape
from mmdb.memory import shortage
from mmdb.messages import explain
from mmdb.store.tensors.tensor_bytes import raw_bytes
from mmdb.train.candidate.config import ARCHITECTURE_PREFIX
from mmdb.train.compute.device import CPU
from mmdb.train.compute.live import mapped_weights, weights
from mmdb.train.values.feature_spec import Frozen
from mmdb.train.values.row_batch import Inputs, call
from mmdb.train.values.spec import CandidateSpec

#: Bytes of networks with frozen layers, and of models' tensors, that a session keeps, each; the
#: least recently used one goes first.
BACKBONE_BYTES = int(os.environ.get("MMDB_BACKBONE_BYTES", 2 << 30))
#: Inputs whose dtypes are found out by trying; those of others are taken to be float32.
_TRIED_INPUTS = 6

#: Tensors of a model that are as large are mapped.
_MAPPED_BYTES = 1 << 20

_V = TypeVar("_V")


class Backbone:
    """A network, evaluated and without gradients, and the parts of it that are asked for.

    Parts share its tensors.
    """

    def __init__(
        self,
        network: nn.Module,
        input_shape: Shape,
        fresh: frozenset[str] = frozenset(),
    ) -> None:
        """Take a network over.

        Args:
            input_shape: of a row.
            fresh: paths of tensors that the model which is to be frozen does not have.
        """
        self.network = network
        self.fresh = fresh
        self._input_shape = input_shape
        self._inputs = input_shape
        named = network.named_parameters(remove_duplicate=False)
        self.trainable = frozenset(path for path, p in named if p.requires_grad)
        network.eval().requires_grad_(False)
        self._parts: dict[tuple[object, ...], nn.Module] = {}
        self._shapes: dict[tuple[str, str], tuple[int, ...]] = {}
        self._frozen_paths: dict[str, frozenset[str]] = {}

    @property
    def byte_count(self) -> int:
        """Bytes of its tensors."""
        tensors = [*self.network.parameters(), *self.network.buffers()]
        return sum(tensor.nbytes for tensor in tensors)

    def prefix(self, cut: str, pool: str = "none") -> nn.Module:
        """Return the layers up to a cut: inputs -> features.

        Raises:
            CutNotFound, NotACut
            BackboneMismatch: they have a tensor that the frozen model lacks.
        """
        key = ("prefix", cut, pool)
        if key not in self._parts:
            self._parts[key] = self._checked(
                prefix_of(self.network, cut, pool, inputs=self._inputs), cut
            )
        return self._parts[key]

    def chain(self, cuts: Sequence[tuple[str, str]]) -> nn.Module:
        """Return inputs -> tuple of the features at each (cut, pool), in one pass."""
        key = ("chain", *cuts)
        if key not in self._parts:
            layers = chain_of(self.network, list(cuts), inputs=self._inputs)
            self._parts[key] = self._checked(layers, cuts[-1][0])
        return self._parts[key]

    def stages(self, source: str, cuts: Sequence[tuple[str, str]]) -> nn.Module:
        """Return features at `source`, not pooled -> tuple of the features at each (cut, pool)."""
        key = ("stages", source, *cuts)
        if key not in self._parts:
            stages = [
                self._checked(stage_of(self.network, source, cut, pool, inputs=self._inputs), cut)
                for cut, pool in cuts
            ]
            self._parts[key] = _InTurn(stages)
        return self._parts[key]

    def rest(self, cut: str) -> nn.Module:
        """Return the layers after a cut: features -> outputs; to be copied, not to be trained."""
        key = ("rest", cut)
        if key not in self._parts:
            self._parts[key] = rest_of(self.network, cut, inputs=self._inputs)
        return self._parts[key]

    def whole(self, cut: str, pool: str) -> nn.Module:
        """Return a copy of the layers up to a cut that could be trained as any network."""
        self.prefix(cut, pool)  # says what the model lacks
        rank = len(self.shape(cut, "none"))
        network = self.copied()
        return backbone_of(network, cut, pool, inputs=self._inputs, rank=rank)

    def copied(self) -> nn.Module:
        """Return a copy of the network that could be trained as any."""
        network = copy.deepcopy(self.network)
        for path, parameter in network.named_parameters(remove_duplicate=False):
            if path in self.trainable:
                parameter.requires_grad_(True)
        return network

    @property
    def cuts(self) -> tuple[str, ...]:
        """The paths that it can be cut at, in the order in which they run."""
        return cuts_of(self.network, inputs=self._inputs)

    def frozen_paths(self, cut: str) -> frozenset[str]:
        """Return the paths, in the network's state dict, of the tensors up to a cut."""
        if cut not in self._frozen_paths:
            found = frozen_paths(self.network, cut, inputs=self._inputs)
            self._frozen_paths[cut] = frozenset(found)
        return self._frozen_paths[cut]

    def shape(self, cut: str, pool: str) -> tuple[int, ...]:
        """Return the shape of a row's features.

        Raises:
            FactoryFailed: the network cannot read rows of that shape.
        """
        key = (cut, pool)
        if key not in self._shapes:
            self._shapes[key] = shape_of(self.prefix(cut, pool), self._input_shape)
        return self._shapes[key]

    def _checked(self, layers: nn.Module, cut: str) -> nn.Module:
        missing = [path for path in layers.state_dict() if path in self.fresh]
        if missing:
            raise BackboneMismatch(
                f"The model that is to be frozen up to {cut!r} has no tensor {missing[0]!r} of "
                "the shape and dtype that the architecture has there.",
            )
        return layers


class _InTurn(nn.Module):
    """Several modules over the same features."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(modules)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(part(x) for part in self.parts)


class Backbones:
    """The networks with frozen layers of one session, and the tensors of the models they are of."""

    def __init__(self, device: torch.device = CPU, limit: int = BACKBONE_BYTES) -> None:
        self.device, self._limit = device, limit
        self._tensors: OrderedDict[str, tuple[int, dict[str, Tensor]]] = OrderedDict()
        self._networks: OrderedDict[str, tuple[int, Backbone]] = OrderedDict()
        self._digests: dict[tuple[str, frozenset[str]], str] = {}

    @property
    def names(self) -> list[str]:
        """The models whose tensors are here."""
        return list(self._tensors)

    def has(self, name: str) -> bool:
        """Return whether a model's tensors are here; they then stay until others are taken."""
        return name in self._tensors

    def take(self, name: str, tensors: bytes, also: Iterable[str] = ()) -> None:
        """Keep the tensors of a model, as `mmdb.train.compute.live.packed` writes them.

        Args:
            also: other names of the same.
        Raises:
            StateCorrupt
        """
        kept = len(tensors), _shared(tensors)
        self._tensors |= dict.fromkeys((name, *also), kept)
        names = self._tensors.keys() - {name, *also}
        self._digests = {key: found for key, found in self._digests.items() if key[0] in names}
        _shrink(self._tensors, self._limit)

    def on(self, device: torch.device) -> Backbones:
        """Return the same models for a device."""
        if device == self.device:
            return self
        other = Backbones(device, self._limit)
        other._tensors = self._tensors.copy()
        return other

    def tensors(self, name: str) -> Mapping[str, Tensor]:
        """Return the tensors of a model on the device, to be shared and never to be changed.

        Raises:
            BackboneMissing: they are not here.
        """
        if name not in self._tensors:
            raise BackboneMissing("The model that a candidate adapts is not here.")
        size, found = self._tensors[name]
        if any(tensor.device != self.device for tensor in found.values()):
            moved = {id(tensor): tensor.to(self.device) for tensor in found.values()}
            found = {path: moved[id(tensor)] for path, tensor in found.items()}
            self._tensors[name] = size, found
        self._tensors.move_to_end(name)
        return found

    def digest(self, name: str, paths: frozenset[str]) -> str:
        """Return `digest_of` of some tensors of a model.

        Raises:
            BackboneMissing: the model's are not here.
        """
        tensors = self.tensors(name)
        if (name, paths) not in self._digests:
            self._digests[name, paths] = digest_of(tensors, paths)
        return self._digests[name, paths]

    def of(self, candidate: CandidateSpec) -> Backbone:
        """Return the network of a candidate with frozen layers.

        Raises:
            BackboneMissing: it is a model's, whose tensors are not here.
            ArchitectureError
        """
        frozen = _frozen(candidate)
        key = _key(candidate, frozen)
        if key not in self._networks:
            self._networks[key] = self._built(candidate, frozen)
            _shrink(self._networks, self._limit)
        self._networks.move_to_end(key)
        if frozen.backbone is not None and frozen.backbone in self._tensors:
            self._tensors.move_to_end(frozen.backbone)
        return self._networks[key][1]

    def like(self, candidate: CandidateSpec) -> Backbone:
        """Return a network that is as the candidate's, whatever numbers are in its tensors."""
        frozen = _frozen(candidate)
        if frozen.backbone is None or frozen.backbone in self._tensors:
            return self.of(candidate)
        if _key(candidate, frozen) in self._networks:
            return self.of(candidate)
        return self.of(replace(candidate, frozen=replace(frozen, backbone=None)))

    def _built(self, candidate: CandidateSpec, frozen: Frozen) -> tuple[int, Backbone]:
        network = network_of(candidate, frozen.seed).to(self.device)
        if frozen.backbone is None:
            backbone = Backbone(network, candidate.input_shape)
        elif frozen.backbone in self._tensors:
            fresh = _filled(network, self._tensors[frozen.backbone][1])
            backbone = Backbone(network, candidate.input_shape, fresh)
        else:
            raise BackboneMissing("The model whose layers are frozen is not here.")
        return backbone.byte_count, backbone


def _shared(tensors: bytes) -> dict[str, Tensor]:
    """Return encoded tensors as the sessions of a node share them: mapped from its cache."""
    if len(tensors) < _MAPPED_BYTES:
        return weights(tensors)
    digest = blake3(tensors).digest()
    key = blake3(b"mmdb.tensors" + digest).digest()
    path = node_cache.path_of(key, "tensors.safetensors")
    try:
        if not path.exists() or blake3().update_mmap(path).digest() != digest:
            with node_cache.placing(key) as folder:
                (folder / "tensors.safetensors").write_bytes(tensors)
        os.utime(path)
        return mapped_weights(path)
    except OSError:  # no room, or another session has just made room
        return weights(tensors)


def digest_of(tensors: Mapping[str, Tensor], paths: Iterable[str]) -> str:
    """Return the hash in hex of some tensors and their paths."""
    found = blake3()
    for path in sorted(paths):
        found.update(f"{path} {tensors[path].dtype} {list(tensors[path].shape)}".encode())
        found.update(raw_bytes(tensors[path]).data)
    return found.hexdigest()


def network_of(candidate: CandidateSpec, seed: int) -> nn.Module:
    """Return the candidate's network, whole and without its own head, with weights of a seed."""
    return initial_module(
        candidate.architecture,
        arguments_of(candidate),
        candidate.input_shape,
        candidate.outputs,
        candidate.factories,
        seed=seed,
    )


def _frozen(candidate: CandidateSpec) -> Frozen:
    assert candidate.frozen is not None
    return candidate.frozen


def arguments_of(candidate: CandidateSpec) -> dict[str, object]:
    """Return the arguments that the configuration gives the architecture."""
    prefix = ARCHITECTURE_PREFIX
    given = candidate.config.items()
    return {key.removeprefix(prefix): value for key, value in given if key.startswith(prefix)}


def _key(candidate: CandidateSpec, frozen: Frozen) -> str:
    whole = [
        candidate.architecture,
        arguments_of(candidate),
        candidate.input_shape,
        candidate.outputs,
        candidate.factories,
        frozen.seed,
        frozen.backbone,
    ]
    return json.dumps(whole, sort_keys=True)


def _filled(network: nn.Module, tensors: Mapping[str, Tensor]) -> frozenset[str]:
    """Copy a model's tensors into those of equal path, shape and dtype; return the other paths."""
    fresh = set()
    with torch.no_grad():
        for path, own in network.state_dict().items():
            given = tensors.get(path)
            if given is None or given.shape != own.shape or given.dtype != own.dtype:
                fresh.add(path)
            else:
                own.copy_(given)
    return frozenset(fresh)


def _shrink(kept: OrderedDict[str, tuple[int, _V]], limit: int) -> None:
    while len(kept) > 1 and sum(size for size, _ in kept.values()) > limit:
        kept.popitem(last=False)


def shape_of(layers: nn.Module, input_shape: Shape) -> tuple[int, ...]:
    """Return the shape of what layers make of a row.

    Raises:
        FactoryFailed: they cannot read rows of that shape.
    """
    device = next((t.device for t in (*layers.parameters(), *layers.buffers())), CPU)
    first: BaseException | None = None
    for batch in _examples(input_shape, device):
        try:
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                return tuple(call(layers, batch).shape[1:])  # type: ignore[attr-defined]
        except ArchitectureError:
            raise
        except BaseException as error:  # the owner's code
            if stops_the_caller(error):
                raise
            if (short := shortage(error)) is not None:
                raise short from error
            first = first or error
    assert first is not None
    raise FactoryFailed(
        f"The layers before the cut cannot read rows: {type(first).__name__}: {explain(first)}",
        hint="Check the model against the dataset's input shape (options.shape).",
    ) from first


def _examples(shape: Shape, device: torch.device) -> Iterator[Inputs]:
    """Yield batches of two zeros, of one combination of dtypes after the other."""
    dtypes = (torch.float32, torch.int64)
    if not isinstance(shape, dict):
        for dtype in dtypes:
            yield torch.zeros(2, *shape, dtype=dtype, device=device)
        return
    names = list(shape)[:_TRIED_INPUTS]
    for chosen in product(dtypes, repeat=len(names)):
        kinds = dict(zip(names, chosen, strict=True))
        yield {
            name: torch.zeros(2, *one, dtype=kinds.get(name, torch.float32), device=device)
            for name, one in shape.items()
        }
