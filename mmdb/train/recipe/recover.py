"""Modules out of the store, whether it holds their weights or how they were made."""

from __future__ import annotations

from torch import nn

from mmdb.data.functions import find_factories
from mmdb.db.connection import Connection
from mmdb.store.models import SavedModel
from mmdb.store.module import assemble, fill_given
from mmdb.store.recover import ModelReader, Verify
from mmdb.train.recipe.hop_replay import at_once
from mmdb.train.recipe.replay import Compute, Weights, replay


def recover_module(
    connection: Connection,
    model: SavedModel,
    *,
    reader: ModelReader | None = None,
    verify: Verify = "full",
    into: nn.Module | None = None,
    device: str | None = None,
    compute: Compute = at_once,
) -> nn.Module:
    """Return a model's module with the weights that were saved, bit for bit.

    Args:
        reader: keeps the catalogs of models between calls.
        verify: of stored weights; what a recipe gives is always compared.
        into: a module to fill, whose mode stays; None builds one, in evaluation mode.
        device: where a built module's tensors go; the CPU if left out.
        compute: runs a replay of hops; inside PostgreSQL it must be interruptible.
    Raises:
        DefinitionMissing, ModuleMismatch, ArchitectureError
        CorruptTensor: stored bytes are damaged.
        RecipeError: a recipe cannot be followed, or gives other weights.
    """
    reader = reader or ModelReader(connection)
    trainable: dict[str, bool] = {}
    if model.manifest_id is None:
        weights: Weights = replay(connection, model, into=into, compute=compute)
    else:
        is_gpu = device is not None and device.startswith("cuda")
        weights = reader.tensors(model, verify=verify, pinned=is_gpu)
        trainable = {entry.path: entry.trainable for entry in reader.catalog(model).entries}
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
