"""Modules that people train themselves, begun with a parent's tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

from torch import Tensor, nn

from mmdb.arguments import unfit
from mmdb.data.dataset import StoredDataset, find_dataset
from mmdb.data.decoding import Decoding
from mmdb.data.functions import find_factories
from mmdb.db.connection import Connection
from mmdb.errors import ArchitectureError
from mmdb.graph.ops.known_values import Inputs
from mmdb.graph.spec.layer_form import traced
from mmdb.store.models.model_rows import find_model
from mmdb.store.parents import ParentGoal, take_parent
from mmdb.train.compute.exact import neutral
from mmdb.train.replay.parent_models import example_of, model_and_weights
from mmdb.train.values.warm_spec import Carried, Unfit
from mmdb.train.warm.carrying import carry
from mmdb.train.warm.first_state import fill
from mmdb.train.warm.offers import MOST_TRIES, OF_THE_PARENT, ModelOffer, Offers, check_fillable
from mmdb.train.warm.transfer_rows import Transferred, transfer_reason
from mmdb.train.warm.warm_options import AUTO, WarmOptions

#: What a forward is called with: by position, or by name.
Given = Sequence[Any] | Mapping[str, Any] | Tensor


def warm_start(
    connection: Connection,
    module: nn.Module,
    parent: str,
    *,
    inputs: Given | None,
    dataset: str | None,
    metric: str | None,
    options: WarmOptions,
    seed: int,
) -> Transferred:
    """Copy a parent's tensors into a module, in place; see `mmdb.api.Database.warm_start`."""
    check_fillable(module)
    module_inputs = _inputs(inputs)
    found = None if dataset is None else find_dataset(connection, dataset)
    if module_inputs is None:
        module_inputs = _inputs_of(found)
    if parent != AUTO:
        parent = find_model(connection, parent).reference
    offers = Offers(
        connection,
        traced(module),
        ParentGoal(
            task=found.task if found else None,
            dataset_id=found.dataset_id if found else None,
            metric=metric,
        ),
        options,
        parent=parent,
        dataset=dataset,
    )
    for _ in range(MOST_TRIES):
        offer = offers.best()
        if not isinstance(offer, ModelOffer):
            break
        started = perf_counter()
        try:
            decoding = None if found is None else found.decoding
            carried = _carried(connection, module, module_inputs, offer, options, seed, decoding)
            refused = offers.too_little(offer, carried.coverage, carried.reasons)
            if refused is None:
                with connection.transaction():
                    take_parent(connection, offer.chosen)
        except Unfit as error:
            if error.is_final:
                raise ArchitectureError(
                    f"The module's forward cannot be followed: {error}",
                    hint="Pass inputs=(tensor, ...) that it takes; their values do not matter.",
                ) from error
            refused = str(error)
        except OF_THE_PARENT as error:
            refused = error.message
        if refused is not None:
            offers.pass_over(offer, refused)
            continue
        fill(module, carried.tensors)
        return Transferred(
            parent=offer.name,
            model_id=offer.chosen.model_id,
            similarity=offer.similarity or carried.similarity,
            coverage=carried.coverage,
            exact=carried.exact,
            reason=transfer_reason(
                offer.reason, carried.exact, carried.reasons, carried.notes, offers.reason
            ),
            tensors=carried.origins,
            seed=seed,
            shrink=options.shrink,
            match_s=offers.match_s,
            transfer_s=perf_counter() - started,
        )
    return Transferred(reason=offers.reason, match_s=offers.match_s)


def _carried(
    connection: Connection,
    module: nn.Module,
    inputs: Sequence[Inputs | None],
    offer: ModelOffer,
    options: WarmOptions,
    seed: int,
    decoding: Decoding | None,
) -> Carried:
    model_id = offer.chosen.model_id
    factories = find_factories(connection)
    form, weights = model_and_weights(connection, factories, model_id, decoding=decoding)
    with neutral(seed):
        return carry(module, inputs, form, weights, seed=seed, shrink=options.shrink)


def _inputs(given: Given | None) -> list[Inputs | None] | None:
    """Return what the caller says that the module's forward takes, None for nothing.

    Raises:
        InvalidOption
    """
    if given is None:
        return None
    if isinstance(given, Tensor):
        return [Inputs((given,))]
    if isinstance(given, Mapping) and all(isinstance(name, str) for name in given):
        return [Inputs(kwargs=given)]
    if isinstance(given, tuple | list):
        return [Inputs(tuple(given))]
    raise unfit(
        "inputs", given, "It is a tensor, a tuple of what the forward takes, or a mapping by name."
    )


def _inputs_of(dataset: StoredDataset | None) -> list[Inputs | None]:
    """Return what the module's forward may take: rows of the dataset, or what itself tells."""
    if dataset is None:
        return [None]
    return [example_of(dataset.decoding).inputs(), None]
