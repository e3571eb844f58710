"""Recovers the network of one group out of a model that has one for each."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from torch import nn

from mmdb.data.dataset import find_decoding
from mmdb.data.functions import find_factories
from mmdb.data.transform.transform import FittedTransform
from mmdb.errors import InvalidInput, InvalidOption
from mmdb.graph.grouped import EACH, Grouped
from mmdb.messages import show
from mmdb.store.models.model_rows import SavedModel
from mmdb.store.models.module import build_filled, fill
from mmdb.store.models.recover import Cache, ModelReader


@dataclass(frozen=True, slots=True)
class GroupNetworks:
    """What the groups of a model have in common; it never changes.

    Attributes:
        transform: gives the groups' numbers by their values; None: it is not known.
        network: of no group: its buffers that are not saved are those of all.
        trainable: by path of a network's tensor.
    """

    transform: FittedTransform | None
    network: nn.Module
    trainable: Mapping[str, bool]


class GroupReader:
    """Recovers networks of groups."""

    def __init__(self, reader: ModelReader, kept: Cache[int, GroupNetworks]) -> None:
        """Args: kept: by model_id, between calls."""
        self._reader, self._kept = reader, kept

    def recover(
        self, model: SavedModel, value: object, whole: Callable[[], nn.Module]
    ) -> nn.Module:
        """Return the network that answers for a value of the groups' column; no other one is read.

        It takes rows without that column. A value that no train row had has the common network.

        Args:
            whole: recovers all of a model whose tensors are not stored.
        Raises:
            InvalidOption: the model has no groups.
            InvalidInput: it is not known which number a value has.
            CorruptTensor
        """
        groups = self._kept.get(model.model_id)
        if groups is None:
            groups = self._groups(model, show(value))
            self._kept.put(model.model_id, groups, 1)  # the cache counts models
        code = _code(model, groups.transform, value)
        if model.manifest_id is None:
            return cast("Grouped", whole()).of(code).eval()
        wanted = {EACH + path: (code, code + 1) for path in groups.trainable}
        rows = self._reader.rows_of(model, wanted)
        tensors = {path: rows[EACH + path][0] for path in groups.trainable}
        network = _copied(groups.network)
        fill(network, tensors, groups.trainable, model.reference)
        return network

    def _groups(self, model: SavedModel, value: str) -> GroupNetworks:
        definition = model.definition
        if definition is None or "network" not in definition.architecture:
            raise InvalidOption(
                f"group is {value}, and model {model.reference} has no groups.",
                hint="A run that create_run was told `per` makes such models.",
            )
        source, transform = self._reader.source, None
        if model.dataset_id is not None:
            dataset_id = model.dataset_id
            columns = source.newest(lambda c: find_decoding(c, dataset_id)).columns
            per = definition.architecture["per"]
            transform = next((c.transform for c in columns if c.name == per), None)
        entries = () if model.manifest_id is None else self._reader.catalog(model).entries
        (width,) = cast("tuple[int]", definition.input_shape)
        inner: dict[str, Any] = {
            "architecture": definition.architecture["network"], "input_shape": (width - 1,)
        }  # fmt: skip
        return GroupNetworks(
            transform,
            build_filled(
                replace(definition, **inner), source.newest(find_factories), seed=0
            ).eval(),
            {
                entry.path.removeprefix(EACH): entry.trainable
                for entry in entries
                if entry.path.startswith(EACH) and entry.kind in ("parameter", "buffer")
            },
        )


def _copied(module: nn.Module) -> nn.Module:
    """Return a module with the same parameters; `copy.deepcopy` takes most of a millisecond."""
    own = copy.copy(module)
    own.__dict__.update(
        {name: kept.copy() for name, kept in vars(module).items() if isinstance(kept, dict | set)}
    )
    own._buffers = {
        name: kept if kept is None else kept.clone() for name, kept in own._buffers.items()
    }
    own._modules = {name: child and _copied(child) for name, child in module._modules.items()}
    return own


def _code(model: SavedModel, transform: FittedTransform | None, value: object) -> int:
    """Return a group's place among the rows of tensors."""
    if transform is None:
        raise InvalidInput(
            f"The groups of model {model.reference} are not known.",
            hint="It has no dataset; recover all of it, and take network.of(code).",
        )
    if value is None:
        return transform.code(None)
    if isinstance(value, list | tuple | dict | bytes):
        raise InvalidInput(f"A group is {show(value)}.", hint="It is a text, or a number.")
    is_truth = isinstance(value, bool | np.bool_)
    return transform.code(str(value).lower() if is_truth else str(value))
