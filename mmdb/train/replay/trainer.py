"""Trainers: the functions that recipes name, and what they are called with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import torch
from torch import nn

from mmdb.data.dataset import StoredDataset, StoredPartition
from mmdb.data.reader import read_partition
from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import FactoryFailed, MmdbError, TrainerFailed, UnknownTrainer, stops_the_caller
from mmdb.graph.spec.build import resolve
from mmdb.graph.spec.factory_call import Shape
from mmdb.store.models.recipe import Recipe
from mmdb.train.compute.exact import borrowed
from mmdb.train.compute.optimizer import batches
from mmdb.train.values.row_batch import row_count, take_inputs, take_labels, tensors_of

Rows = tuple[Any, Any]  # inputs and labels: tensors, or several of either
Trainer = Callable[..., object]


class TookTooLong(Exception):
    """A trial of a recipe ran past its time."""


class TrainingData:
    """The rows that a trainer is given."""

    def __init__(
        self,
        connection: Connection,
        dataset: StoredDataset | None,
        *,
        deadline: float | None = None,
    ) -> None:
        """Args: deadline: by `perf_counter`; whoever reads after it gets TookTooLong."""
        self._connection, self._dataset, self._deadline = connection, dataset, deadline
        parts = dataset.partitions if dataset else ()
        self._train = [p for p in parts if p.role == "train"]
        self._held_out = [p for p in parts if p.role == "validation"]

    @property
    def task(self) -> str | None:
        """What the first label asks for, see docs/datasets.md; None without a dataset."""
        return self._dataset.task if self._dataset else None

    @property
    def input_shape(self) -> Shape:
        """The shape of one row: of the only input, or of each by name."""
        return self._dataset.input_shape if self._dataset else ()

    @property
    def classes(self) -> tuple[object, ...] | None:
        """The first label's values in the order of a model's outputs; None for a regression."""
        return self._dataset.classes if self._dataset else None

    def __len__(self) -> int:
        """Return the number of train partitions."""
        return len(self._train)

    def __iter__(self) -> Iterator[Rows]:
        """Yield inputs and labels of each train partition, in order.

        Inputs are float32 or int64 (n, *shape), those of several a dict by name. Labels are int64
        (n,) class indices, float32 (n,), or 0 and 1, float32 (n, size); those of several a tuple.
        """
        for part in self._train:
            yield self._read(part)

    def batches(self, size: int) -> Iterator[Rows]:
        """Yield batches of each train partition in turn, its rows shuffled by torch's generator.

        A last batch of one row joins the batch before it.
        """
        for x, y in self:
            for index in batches(torch.randperm(row_count(x)), size):
                self._check_time()
                yield take_inputs(x, index), take_labels(y, index)

    def validation(self) -> Rows | None:
        """Return the held-out rows, or None where the dataset has none."""
        return self._read(self._held_out[0]) if self._held_out else None

    def _read(self, part: StoredPartition) -> Rows:
        self._check_time()
        return tensors_of(read_partition(self._connection, part.part_id, part.content_hash))

    def _check_time(self) -> None:
        if self._deadline is not None and perf_counter() > self._deadline:
            raise TookTooLong("Following the recipe takes longer than a trial may.")


def find_trainer(connection: Connection, name: str) -> Trainer:
    """Return a registered trainer.

    Raises:
        UnknownTrainer: none of that name is registered.
        TrainerFailed: it cannot be imported here.
    """
    found = connection.rows(load("recipes").find_trainer, name=name)
    if not found:
        raise UnknownTrainer(f"There is no trainer {name!r}.")
    return resolve_trainer(found[0]["target"])


def resolve_trainer(target: str) -> Trainer:
    """Return the callable that 'package.module:callable' names.

    Raises:
        TrainerFailed: the target is malformed, or cannot be imported or called.
    """
    try:
        return resolve(target)
    except FactoryFailed as error:
        message = error.message.replace("the target of a factory", "the target of a trainer")
        raise TrainerFailed(message, hint=error.hint) from error


def train_in_place(
    trainer: Trainer, module: nn.Module, data: TrainingData, recipe: Recipe
) -> float:
    """Train a module as a recipe says; return the seconds that it took.

    Raises:
        TrainerFailed: the trainer raised.
        MmdbError: reading the data failed.
        TookTooLong: it went on after the data's deadline.
    """
    states = {name: value for name, value in recipe.state.items() if name != "rng"}
    module.train()
    with borrowed(recipe.seed, recipe.state.get("rng"), recipe.threads):
        started = perf_counter()
        try:
            trainer(module, data, seed=recipe.seed, state=states, **recipe.arguments)
        except (MmdbError, TookTooLong):
            raise
        except BaseException as error:  # the trainer is the owner's code
            if stops_the_caller(error):
                raise
            raise TrainerFailed(
                f"Trainer {recipe.trainer!r} raised {type(error).__name__}: {error}"
            ) from error
        return perf_counter() - started
