"""Frozen layers of a model that was trained on other columns, or on the same in another order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from mmdb.data.matching import MISSING
from mmdb.errors import ArchitectureError, BackboneMismatch
from mmdb.graph.ops.capture import capture
from mmdb.graph.ops.known_values import Inputs
from mmdb.graph.ops.op_graph import CannotTrace
from mmdb.graph.transfer import difference
from mmdb.store.module import assemble
from mmdb.train.warm.spec import ParentForm
from mmdb.train.warm.translate import ByName, translate

_HINT = "Freeze layers of a model that was trained on the same columns, in any order."


def by_name(
    model: ParentForm, tensors: Mapping[str, Tensor], given: Inputs
) -> Mapping[str, Tensor]:
    """Return a model's tensors in the order of the columns and classes of other rows.

    Args:
        given: what a network for those rows takes.
    Raises:
        BackboneMismatch: the model reads other columns or categories, or they cannot be told apart
            in it.
    """
    rows = model.rows
    if not rows.is_known:
        return tensors
    is_new = any(MISSING in moved.places for moved in rows.inputs.values())
    if rows.doubts or is_new:
        differs = "; ".join((*rows.doubts, *rows.notes))
        raise BackboneMismatch(
            f"The layers that are to be frozen were trained on other rows than the dataset's: "
            f"{differs}.",
            hint=_HINT,
        )
    if rows.is_same:
        return tensors
    try:
        module = assemble(
            model.definition, model.factories, tensors, trainable={}, reference=model.reference
        )
        own = model.examples[0].inputs()  # of the dataset that it was trained on
        flow = capture(module, own)
    except (ArchitectureError, CannotTrace) as error:
        raise BackboneMismatch(
            f"The columns of {model.reference} are in another order, and its forward cannot be "
            f"followed: {error}",
            hint=_HINT,
        ) from error
    reads = translate(replace(rows, outputs={}, class_doubts=()), flow, tensors)
    found = reads.doubts[0] if reads.doubts else None
    if rows.inputs and found is None:
        whole = ByName(module, replace(rows, outputs={}))
        found = difference(module, whole, reads.tensors, given, (flow, flow))
    if found is not None:
        raise BackboneMismatch(
            f"The columns of {model.reference} are in another order, and cannot be told apart in "
            f"its layers: {found}",
            hint=_HINT,
        )
    return translate(replace(rows, inputs={}), flow, reads.tensors).tensors
