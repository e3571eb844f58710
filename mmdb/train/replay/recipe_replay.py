"""Loads models from the store; those without weights are made again by their recipes."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from mmdb.arguments import unfit
from mmdb.data.dataset import StoredDataset, dataset_of
from mmdb.data.functions import find_factories
from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import (
    DatasetNotFound,
    DefinitionMissing,
    EnvironmentDiffers,
    NotReplayable,
    RecipeMismatch,
)
from mmdb.store.models.environment import agreement, difference, find_environment, fingerprint
from mmdb.store.models.model_rows import SavedModel, find_entries, find_members, model_of
from mmdb.store.models.module import assemble, build_filled, fill_given
from mmdb.store.models.recipe import HASH_BYTES, Recipe, StoredRecipe, read_recipe
from mmdb.store.models.recover import ModelReader, Verify, load_tensors, shared_with
from mmdb.store.tensors.hashing import hash_entries
from mmdb.store.tensors.state_entries import contents_of
from mmdb.train.compute.exact import neutral
from mmdb.train.replay.hop_replay import EpochState, Stopped, at_once, replay_epochs, replay_hops
from mmdb.train.replay.trainer import TrainingData, find_trainer, train_in_place

Weights = dict[str, torch.Tensor]
Compute = Callable[[Callable[[Stopped], nn.Module]], nn.Module]

#: Tensors and differences that a message names at most.
_NAMED = 5
#: Generators and settings of the process are borrowed: one replay at a time.
_one_at_a_time = threading.RLock()


def load_weights(
    connection: Connection,
    model: SavedModel,
    *,
    verify: Verify = "full",
    into: nn.Module | None = None,
    compute: Compute = at_once,
) -> Weights:
    """Return a model's tensors by path, in the order of its state dict, transient buffers last.

    Args:
        verify: of stored weights; a replay is always compared with what was saved.
        into: the module to replay in, where the database cannot build it; it is changed.
        compute: runs the replay of hops; inside PostgreSQL it must be interruptible.
    Raises:
        CorruptTensor: stored bytes are damaged.
        NotReplayable, UnknownTrainer, TrainerFailed, DefinitionMissing: the recipe cannot be
            followed any more.
        ReplayMismatch, RecipeMismatch: following it gives another model.
    """
    if model.manifest_id is not None:
        return load_tensors(connection, model, verify=verify)
    return replay(connection, model, into=into, compute=compute)


def replay(
    connection: Connection,
    model: SavedModel,
    *,
    into: nn.Module | None = None,
    compute: Compute = at_once,
    deadline: float | None = None,
) -> Weights:
    """Return the tensors of a model that is kept as a recipe; see `load_weights`.

    Its ancestors are recovered first: from the nearest one that has weights, or is a run's, on.

    Args:
        deadline: by `perf_counter`; a trainer that reads after it is ended by TookTooLong.
    """
    follower = _RecipeReplay(connection, into, compute, deadline)
    with _one_at_a_time:
        weights: Weights = {}
        for link in _chain(connection, model):
            weights = follower.follow(link, weights)
        return weights


def train_by_recipe(
    connection: Connection,
    recipe: Recipe,
    module: nn.Module,
    dataset: StoredDataset | None,
    *,
    deadline: float | None = None,
) -> float:
    """Train a module in place as a trainer's recipe says; return the seconds that it took.

    Raises:
        UnknownTrainer, TrainerFailed, NotReplayable
    """
    assert recipe.trainer is not None
    if dataset is not None and dataset.dropped:
        raise NotReplayable(
            f"Dataset {dataset.name!r}, which trainer {recipe.trainer!r} reads, has been dropped.",
            hint="Dropping it by force gave such models up; restore the database's backup.",
        )
    trainer = find_trainer(connection, recipe.trainer)
    data = TrainingData(connection, dataset, deadline=deadline)
    with _one_at_a_time:
        return train_in_place(trainer, module, data, recipe)


def recover_epochs(
    connection: Connection,
    model: SavedModel,
    count: int,
    compute: Callable[[Callable[[Stopped], list[EpochState]]], list[EpochState]] = at_once,
) -> list[EpochState]:
    """Return what a model was at the ends of some epochs; see `replay_epochs`.

    Raises:
        NotReplayable, ReplayMismatch, BlockCorrupt
    """
    if model.candidate_id is None or model.epoch is None:
        raise NotReplayable(
            f"Model {model.reference} was trained by no run, so only its last state is known.",
            hint="Leave checkpoints out.",
        )
    if find_members(connection, model.model_id):
        raise NotReplayable(
            f"Model {model.reference} is the mean of several candidates, which have no epochs in "
            "common.",
            hint="Leave checkpoints out, or save one of them by itself.",
        )
    with _one_at_a_time:
        return replay_epochs(
            connection, model.reference, model.candidate_id, model.epoch, count, compute
        )


@dataclass(frozen=True, slots=True)
class _Link:
    """A model on the way from the first ancestor that needs no other one."""

    model: SavedModel
    parent: SavedModel | None
    stored: StoredRecipe | None  # None: it has weights


def _chain(connection: Connection, model: SavedModel) -> list[_Link]:
    """Return what has to be recovered, in this order.

    Raises:
        NotReplayable: an ancestor is gone, or they go round in a circle.
    """
    found: list[_Link] = []
    seen: set[int] = set()
    current: SavedModel | None = model
    while current is not None:
        if current.model_id in seen:
            raise NotReplayable(
                f"Model {model.reference} cannot be made again: its ancestors go round in a "
                f"circle at {current.reference}.",
                hint="Rows of mmdb.model were changed; restore the database's backup.",
            )
        seen.add(current.model_id)
        stored = None if current.manifest_id is not None else _recipe_of(connection, current, model)
        parent = None
        if stored is not None and stored.recipe.trainer is not None:
            parent = _parent_of(connection, current, model)
        found.append(_Link(current, parent, stored))
        current = parent
    return found[::-1]


def _recipe_of(connection: Connection, needed: SavedModel, model: SavedModel) -> StoredRecipe:
    try:
        return read_recipe(connection, needed.model_id)
    except NotReplayable as error:
        raise NotReplayable(
            f"Model {model.reference} cannot be made again: {needed.reference} has neither "
            "weights nor a recipe.",
            hint="Rows of mmdb.recipe were deleted; restore the database's backup.",
        ) from error


def _parent_of(connection: Connection, child: SavedModel, model: SavedModel) -> SavedModel | None:
    if child.parent_id is None:
        return None
    if not connection.rows(load("models").find_model, model_id=child.parent_id):
        raise NotReplayable(
            f"Model {model.reference} cannot be made again: the parent of {child.reference}, "
            f"model {child.parent_id}, is not there.",
            hint="Rows of mmdb.model were deleted; restore the database's backup.",
        )
    return model_of(connection, child.parent_id)


@dataclass(frozen=True, slots=True)
class _RecipeReplay:
    """Makes one model after the other."""

    connection: Connection
    into: nn.Module | None
    compute: Compute
    deadline: float | None

    def follow(self, link: _Link, parent: Weights) -> Weights:
        """Return a model's tensors, given its parent's."""
        model, stored = link.model, link.stored
        if stored is None:
            return load_tensors(self.connection, model)
        if stored.recipe.trainer is None:
            module = self._hops(model)
        else:
            _warn(self.connection, model)
            module = self._module(link, parent, stored.recipe.seed)
            dataset = self._dataset(model)
            train_by_recipe(self.connection, stored.recipe, module, dataset, deadline=self.deadline)
        return self._checked(model, stored, module)

    def _hops(self, model: SavedModel) -> nn.Module:
        if model.candidate_id is None or model.epoch is None:
            raise NotReplayable(f"Model {model.reference} names no candidate and no trainer.")
        return replay_hops(
            self.connection, model.reference, model.candidate_id, model.epoch, self.compute
        )

    def _dataset(self, model: SavedModel) -> StoredDataset | None:
        if model.dataset_id is None:
            return None
        try:
            return dataset_of(self.connection, model.dataset_id)
        except DatasetNotFound as error:
            raise NotReplayable(
                f"Model {model.reference} cannot be made again: {error.message}"
            ) from error

    def _module(self, link: _Link, parent: Weights, seed: int) -> nn.Module:
        """Return the module that the trainer is given: the parent as `recover` would return it."""
        origin = link.parent
        with neutral(seed):
            if origin is None:
                return self.into if self.into is not None else self._initial(link.model, seed)
            if self.into is not None:
                return fill_given(self.into, parent, reference=origin.reference)
            trainable = {
                e.path: e.trainable for e in find_entries(self.connection, origin.model_id)
            }
            return assemble(
                origin.definition,
                find_factories(self.connection),
                parent,
                trainable=trainable,
                reference=origin.reference,
            )

    def _initial(self, model: SavedModel, seed: int) -> nn.Module:
        if model.definition is None:
            raise DefinitionMissing(
                f"How to build the module of model {model.reference} is not known."
            )
        return build_filled(model.definition, find_factories(self.connection), seed=seed)

    def _checked(self, model: SavedModel, stored: StoredRecipe, module: nn.Module) -> Weights:
        """Return a module's tensors if they are the model's."""
        contents = contents_of(module)
        hashes = hash_entries(contents, self.connection.threads)
        entries, expected = contents.entries, stored.tensor_hashes
        if len(expected) < len(entries):  # it was saved from a state dict, which has none of these
            entries = [e for e in entries if e.kind != "transient"]
        differing = [
            entry.path or "(shared memory)"
            for entry, then in zip(entries, expected, strict=False)
            if hashes[entry.ordinal][:HASH_BYTES] != then
        ]
        if differing or len(entries) != len(expected):
            raise _mismatch(self.connection, model, stored, differing)
        kept = [entry for entry in entries if entry.kind != "storage"]
        return {e.path: contents.tensor(e).detach() for e in kept}


def _mismatch(
    connection: Connection, model: SavedModel, stored: StoredRecipe, differing: list[str]
) -> RecipeMismatch:
    how = f"Trainer {stored.recipe.trainer!r}" if stored.recipe.trainer else "Replaying its hops"
    tensors = ", ".join(differing[:_NAMED]) or "their number"
    lines = [
        f"{how} gave other weights than model {model.reference} has: {len(differing)} of its "
        f"{len(stored.tensor_hashes)} tensors differ, first {tensors}."
    ]
    there = _differences(connection, model)
    if there:
        lines.append(f"The environment differs too: {there}.")
    return RecipeMismatch(" ".join(lines))


def _differences(connection: Connection, model: SavedModel) -> str:
    """Return what of this environment is not as it was when a model was saved."""
    if model.environment_id is None:
        return ""
    found = difference(find_environment(connection, model.environment_id), fingerprint())
    more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return "; ".join(map(str, found[:_NAMED])) + more


def _warn(connection: Connection, model: SavedModel) -> None:
    """Warn where a trainer's recipe was written in another environment."""
    if model.environment_id is None:
        return
    found = difference(find_environment(connection, model.environment_id), fingerprint())
    level = agreement(found)
    if level != "exact":
        warnings.warn(
            f"Model {model.reference} was saved in another environment ({level}): "
            f"{_differences(connection, model)}. Its recipe is followed all the same, and what "
            "it gives is compared.",
            EnvironmentDiffers,
            stacklevel=2,
        )


def recover_module(
    connection: Connection,
    model: SavedModel,
    *,
    reader: ModelReader | None = None,
    verify: Verify = "full",
    into: nn.Module | None = None,
    base: nn.Module | None = None,
    device: str | None = None,
    compute: Compute = at_once,
) -> nn.Module:
    """Return a model's module with the weights that were saved, bit for bit.

    Args:
        reader: keeps the catalogs of models between calls.
        verify: of stored weights; what a recipe gives is always compared.
        into: a module to fill, whose mode stays; None builds one, in evaluation mode.
        base: a module whose tensors are taken, not read, where the model's are frozen and equal.
        device: where a built module's tensors go; the CPU if left out.
        compute: runs a replay of hops; inside PostgreSQL it must be interruptible.
    Raises:
        DefinitionMissing, ModuleMismatch, ArchitectureError
        CorruptTensor: stored bytes are damaged.
        RecipeError: a recipe cannot be followed, or gives other weights.
    """
    for name, module in (("into", into), ("base", base)):
        if module is not None and not isinstance(module, nn.Module):
            raise unfit(name, module, "It is a module, or none.")
    reader = reader or ModelReader(connection)
    trainable: dict[str, bool] = {}
    if model.manifest_id is None:
        weights: Weights = replay(connection, model, into=into, compute=compute)
    else:
        # Accelerators copy from such memory by themselves.
        pinned = device not in (None, "cpu") and torch.accelerator.is_available()
        entries = reader.catalog(model).entries
        given = {} if base is None else shared_with(entries, base)
        others = [e.path for e in entries if e.kind != "storage" and e.path not in given]
        weights = given | reader.tensors(model, others, verify=verify, pinned=pinned)
        trainable = {entry.path: entry.trainable for entry in entries}
    if into is not None:
        return fill_given(into, weights, reference=model.reference)
    return assemble(
        model.definition,
        reader.source.newest(find_factories),
        weights,
        trainable=trainable,
        reference=model.reference,
        device=device,
    )
