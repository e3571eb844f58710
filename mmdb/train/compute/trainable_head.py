"""What of a candidate with frozen layers trains: its tail, as a module by itself."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from mmdb.errors import NotACut
from mmdb.graph.cut.pool import POOLS, resolve_pool
from mmdb.graph.spec.head import Headed, build_head
from mmdb.train.compute.backbone import Backbone, Backbones, network_of
from mmdb.train.compute.feature_pass import after_storing
from mmdb.train.values.feature_spec import READY, STORAGES, Frozen
from mmdb.train.values.spec import CandidateSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The module that trains, and what goes with it.

    Attributes:
        layers: what rows pass first, where the features do not lie ready.
        omitted: paths of tensors that the backbone has: they are not a part of a state.
    """

    module: nn.Module
    layers: nn.Module | None = None
    omitted: frozenset[str] = frozenset()


def needs_backbone(candidate: CandidateSpec, state: str | None) -> bool:
    """Return whether a hop takes the tensors of the candidate's model.

    Args:
        state: hash of the state that the hop begins with; None: the initial one.
    """
    frozen = candidate.frozen
    if frozen is None or frozen.backbone is None:
        return False
    if frozen.choice == "whole":
        return state is None
    if frozen.choice not in READY or frozen.adapter is not None:
        return True
    return state is None and frozen.head is None


def head_of(
    candidate: CandidateSpec,
    backbones: Backbones,
    *,
    blank: bool = False,
    feature_shape: tuple[int, ...] | None = None,
) -> Head:
    """Return what trains of a candidate, as its seed and its backbone make it.

    A head, and layers that the backbone's model lacks, are drawn from the candidate's seed; the
    others are the model's, or the seed's too where there is no model.

    Args:
        blank: whether the numbers do not matter, for a state follows.
        feature_shape: of a row, where it is known.
    Raises:
        CutNotFound, NotACut, HeadMismatch, BackboneMismatch, BackboneMissing, ArchitectureError
    """
    candidate = with_pool(candidate, backbones)
    frozen = candidate.frozen
    assert frozen is not None
    if frozen.choice == "whole":
        backbone = backbones.like(candidate) if blank else backbones.of(candidate)
        tail = Head(module=_whole(candidate, frozen, backbone))
        _check_trains(tail.module, frozen)
        return tail
    if frozen.head is not None:
        if feature_shape is None:
            like = backbones.like(candidate)
            feature_shape = like.shape(frozen.cut, frozen.pool)
        with _drawing(candidate.seed):
            module = build_head(
                frozen.head,
                feature_shape,
                candidate.outputs,
                candidate.factories,
                check=not blank,
            )
        tail = Head(module=module)
    else:
        tail = _head_layers(candidate, frozen, backbones, blank=blank)
    _check_trains(tail.module, frozen)
    if frozen.choice != "streamed":
        return tail
    layers = backbones.of(candidate).prefix(frozen.cut, frozen.pool)
    if frozen.storage != STORAGES[0]:
        layers = _Stored(layers, frozen.storage)
    return replace(tail, layers=layers)


class _Stored(nn.Module):
    """Layers whose features are as they would be if they had been stored."""

    def __init__(self, layers: nn.Module, storage: str) -> None:
        super().__init__()
        self.layers, self.storage = layers, storage
        self.eval()

    def forward(self, *args: Tensor, **kwargs: Tensor) -> Tensor:
        return after_storing(self.layers(*args, **kwargs), self.storage)


def with_pool(candidate: CandidateSpec, backbones: Backbones) -> CandidateSpec:
    """Return a candidate whose pool is not "auto"."""
    frozen = candidate.frozen
    if frozen is None or frozen.pool != POOLS[0]:
        return candidate
    shape = backbones.like(candidate).shape(frozen.cut, "none")
    pool = resolve_pool(frozen.pool, shape, has_head=frozen.head is not None)
    return replace(candidate, frozen=replace(frozen, pool=pool))


def whole_module(candidate: CandidateSpec, tail: nn.Module, backbones: Backbones) -> nn.Module:
    """Return the module that inputs pass from end to end; it shares no tensor with the backbone.

    Args:
        tail: what trained; it is used up.
    Raises:
        BackboneMissing, BackboneMismatch
    """
    candidate = with_pool(candidate, backbones)
    frozen = candidate.frozen
    if frozen is None:
        return tail
    if frozen.adapter is not None:
        from mmdb.graph.cut.adapter import merge

        tail = merge(tail)
    if frozen.choice == "whole":
        place = "" if frozen.head is None else "backbone."
        allowed = backbones.like(candidate).trainable
        _allow_gradients(tail, (place + path for path in allowed))
        return tail
    backbone = backbones.of(candidate)
    if frozen.head is not None:
        return Headed(backbone.whole(frozen.cut, frozen.pool), tail)
    backbone.prefix(frozen.cut)  # says what the model lacks
    network = backbone.copied()
    _fill(network, tensors_of(tail))
    return network


# -- the layers after the cut --------------------------------------------------------


def _head_layers(
    candidate: CandidateSpec, frozen: Frozen, backbones: Backbones, *, blank: bool
) -> Head:
    """Return a copy of the layers after the cut; with an adapter, only of what the model lacks.

    Statistics of normalisation go on learning, and are copied.
    """
    numbers_matter = frozen.adapter is not None or not blank
    backbone = backbones.of(candidate) if numbers_matter else backbones.like(candidate)
    template = backbone.rest(frozen.cut)
    base = _base(template, frozen, backbone)
    backbone.prefix(frozen.cut)  # says what the model lacks
    both = backbone.frozen_paths(frozen.cut)
    learned = {p for p, t in tensors_of(template).items() if id(t) not in base and p not in both}
    module = copy.deepcopy(template, dict(base))
    if not blank:
        # What is the model's, and with an adapter all that is the backbone's, is there already.
        is_there = frozen.backbone is not None or frozen.adapter is not None
        _draw(module, learned & backbone.fresh if is_there else learned, candidate)
    _allow_gradients(module, backbone.trainable & learned)
    if frozen.adapter is None:
        return Head(module=module)
    _adapt(module, candidate, frozen, backbone)
    found = module.state_dict(keep_vars=True).items()
    return Head(module=module, omitted=frozenset(p for p, t in found if id(t) in base))


def _draw(module: nn.Module, paths: set[str], candidate: CandidateSpec) -> None:
    """Draw tensors of a tail from the candidate's seed."""
    if paths:
        drawn = tensors_of(network_of(candidate, candidate.seed))
        _fill(module, {path: drawn[path] for path in paths if path in drawn})


def _adapted(template: nn.Module, adapter: Mapping[str, object], backbone: Backbone) -> list[str]:
    """Return the paths of the layers that get an adapter: those that have something to adapt."""
    from mmdb.graph.cut.adapter import adaptable

    globs = adapter.get("layers")
    patterns = [str(one) for one in globs] if isinstance(globs, list | tuple) else ["*"]
    return [
        path
        for path in adaptable(template)
        if any(fnmatchcase(path, pattern) for pattern in patterns)
        and f"{path}.weight" not in backbone.fresh
    ]


def _adapt(module: nn.Module, candidate: CandidateSpec, frozen: Frozen, backbone: Backbone) -> None:
    """Put a candidate's adapter into a module, where it has one."""
    if frozen.adapter is None:
        return
    from mmdb.graph.cut.adapter import adapt

    names = _adapted(backbone.rest(frozen.cut), frozen.adapter, backbone)
    with _drawing(candidate.seed):
        adapt(module, frozen.adapter | {"layers": names or frozen.adapter.get("layers")})


def _base(template: nn.Module, frozen: Frozen, backbone: Backbone) -> dict[int, Tensor]:
    """Return the parameters, by id, that an adapter leaves as the backbone has them."""
    if frozen.adapter is None:
        return {}
    named = template.named_parameters(remove_duplicate=False)
    return {id(tensor): tensor for path, tensor in named if path not in backbone.fresh}


# -- all of it -----------------------------------------------------------------------


def _whole(candidate: CandidateSpec, frozen: Frozen, backbone: Backbone) -> nn.Module:
    """Return the whole module, its layers before the cut without gradients."""
    if frozen.head is not None:
        shape = backbone.shape(frozen.cut, frozen.pool)
        with _drawing(candidate.seed):
            head = build_head(frozen.head, shape, candidate.outputs, candidate.factories)
        layers = backbone.whole(frozen.cut, frozen.pool).requires_grad_(False)
        return Headed(layers, head)
    backbone.prefix(frozen.cut)  # says what the model lacks
    network, given = network_of(candidate, candidate.seed), tensors_of(backbone.network)
    before = backbone.frozen_paths(frozen.cut)
    fits = before if frozen.backbone is None else given.keys() - backbone.fresh
    _fill(network, {path: given[path] for path in fits})
    for path, parameter in network.named_parameters(remove_duplicate=False):
        if path in before or (frozen.adapter is not None and path not in backbone.fresh):
            parameter.requires_grad_(False)
    _adapt(network, candidate, frozen, backbone)
    return network


def _check_trains(module: nn.Module, frozen: Frozen) -> None:
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise NotACut(
            f"Nothing trains after {frozen.cut!r}.",
            hint="Freeze less, give a head, or choose layers for the adapter.",
        )


def _allow_gradients(module: nn.Module, paths: Iterable[str]) -> None:
    allowed = frozenset(paths)
    for path, parameter in module.named_parameters(remove_duplicate=False):
        if path in allowed:
            parameter.requires_grad_(True)


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by path, those that a state dict leaves out among them."""
    buffers = dict(module.named_buffers(remove_duplicate=False))
    return dict(module.named_parameters(remove_duplicate=False)) | buffers


def _fill(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    own = tensors_of(module)
    with torch.no_grad():
        for path, tensor in tensors.items():
            if path in own:
                own[path].copy_(tensor)


@contextmanager
def _drawing(seed: int) -> Iterator[None]:
    """Let torch's generator start from a seed inside the block; afterwards it is as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
