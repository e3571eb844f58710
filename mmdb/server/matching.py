"""Parents for an architecture as it is asked for: by name or as a module, for a dataset or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mmdb.arguments import check_whole, unfit
from mmdb.data.arrays import Inputs
from mmdb.data.dataset import StoredDataset, find_dataset, find_decoding
from mmdb.data.matching import placed_inputs
from mmdb.data.reader import read_partition
from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import DatasetDropped, DatasetNotFound, InvalidOption, stops_the_caller
from mmdb.store.models.model_rows import SavedModel, model_of
from mmdb.store.parents import ParentChoice, ParentGoal, choose_parent
from mmdb.store.parents.choice import Sample
from mmdb.train.replay.model_facts import structure_asked
from mmdb.train.warm.offers import OF_THE_PARENT, check_module

_MOST = 2**31 - 1
Recover = Callable[[SavedModel], nn.Module]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentQuery:
    """The arguments of `match`.

    Attributes:
        architecture: a module, a model as `name@version`, a factory or a layer graph.
        dataset: what it is to be trained on; of the last two it also says the input and outputs,
            and where neither it nor they are given, the newest dataset says them.
        sample: rows of the dataset by which LogME ranks the five best anew; 0 for none.
    """

    architecture: nn.Module | str | Mapping[str, Any]
    dataset: str | None = None
    metric: str | None = None
    input_shape: Sequence[int] | None = None
    outputs: int | None = None
    k: int = 10
    sample: int = 0


def find_parents(connection: Connection, asked: ParentQuery, recover: Recover) -> ParentChoice:
    """Return the models that an architecture could be begun with.

    Raises:
        ArchitectureError: it cannot be built, is not known enough, or has too many nodes.
        DatasetNotFound, ModelNotFound, InvalidOption
    """
    if isinstance(asked.architecture, nn.Module):
        check_module(asked.architecture)
    dataset = None if asked.dataset is None else find_dataset(connection, asked.dataset)
    newest = [] if asked.dataset else connection.rows(load("zoo").newest_dataset)
    structure = structure_asked(
        connection,
        asked.architecture,
        input_shape=_sizes(asked.input_shape),
        outputs=None if asked.outputs is None else check_whole(asked.outputs, "outputs", 1, _MOST),
        dataset=asked.dataset or next((str(row["name"]) for row in newest), None),
    )
    goal = ParentGoal(metric=check_metric(asked.metric))
    if dataset is not None:
        goal = replace(goal, task=dataset.task, dataset_id=dataset.dataset_id)
    sample = sample_of(connection, dataset, asked.sample, recover) if asked.sample else None
    return choose_parent(connection, structure, goal, k=asked.k, sample=sample)


def check_metric(name: object) -> str | None:
    """Return the name of a metric.

    Raises:
        InvalidOption
    """
    if name is not None and not (isinstance(name, str) and name):
        raise unfit("metric", name, 'Such as "accuracy".')
    return name


def _sizes(given: object) -> list[int] | None:
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise unfit("input_shape", given, "Such as [1, 28, 28].")
    return [check_whole(size, "input_shape", 1, _MOST) for size in given]


def sample_of(
    connection: Connection, dataset: StoredDataset | None, rows: int, recover: Recover
) -> Sample:
    """Return rows of a dataset, which lie shuffled, and what models make of them.

    Raises:
        InvalidOption: there is no dataset to take rows of.
        DatasetDropped
    """
    if dataset is None:
        raise InvalidOption("A sample is of a dataset.", hint="Pass dataset, or no sample.")
    if dataset.dropped:
        raise DatasetDropped(f"Dataset {dataset.name!r} has been dropped.")
    part = next(one for one in dataset.partitions if one.role == "train")
    decoded = read_partition(connection, part.part_id, part.content_hash)
    given = decoded.inputs
    x: Inputs = {n: a[:rows] for n, a in given.items()} if isinstance(given, dict) else given[:rows]

    def features(model_id: int) -> NDArray[np.float64] | None:
        model = model_of(connection, model_id)
        try:
            module = recover(model)
        except OF_THE_PARENT:
            return None
        own = x
        if model.dataset_id not in (None, dataset.dataset_id):
            with suppress(DatasetNotFound):  # only its number came with the model
                own = placed_inputs(
                    find_decoding(connection, model.dataset_id), dataset.decoding, x
                )
        return features_of(module, _tensors(own))

    labels = np.asarray(decoded.label_arrays[0][:rows])
    target = dataset.targets[0]
    if target.task == "classification":
        labels = np.eye(target.size)[labels]
    return Sample(targets=labels.astype(np.float64), features=features)


def _tensors(inputs: Inputs) -> Tensor | dict[str, Tensor]:
    if isinstance(inputs, dict):
        return {name: torch.tensor(array) for name, array in inputs.items()}
    return torch.tensor(inputs)


def features_of(module: nn.Module, x: Tensor | dict[str, Tensor]) -> NDArray[np.float64] | None:
    """Return what the last layer of a module with a matrix reads, (n, d), or None if it fails.

    Positions and pixels are averaged.
    """
    read: list[tuple[nn.Module, Tensor]] = []

    def keep(layer: nn.Module, args: tuple[Any, ...]) -> None:
        if args and isinstance(args[0], Tensor):
            read[:] = [(layer, args[0])]

    hooks = [one.register_forward_pre_hook(keep) for one in module.modules() if _is_matrix(one)]
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            module.eval()(x)
    except Exception as error:  # the forward is the user's code, and may take other rows
        if stops_the_caller(error):
            raise
        return None
    finally:
        torch.set_num_threads(before)
        for hook in hooks:
            hook.remove()
    if not read or read[0][1].dim() < 2:
        return None
    layer, given = read[0]
    channels = 1 if layer.get_parameter("weight").dim() > 2 else -1
    moved = given.movedim(channels, -1)  # (n, ..., d)
    flat = moved.reshape(len(moved), -1, moved.shape[-1]).mean(1)
    found: NDArray[np.float64] = flat.double().numpy()
    return found


def _is_matrix(module: nn.Module) -> bool:
    weight = module._parameters.get("weight")
    return weight is not None and weight.dim() >= 2 and not module._modules
