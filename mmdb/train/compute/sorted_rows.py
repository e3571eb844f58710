"""A parent by the names of its child's columns, also where layers sort a row's numbers. No I/O."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor, nn

from mmdb.data.matching import MISSING
from mmdb.errors import ArchitectureError, BackboneMismatch
from mmdb.graph.ops.capture import capture
from mmdb.graph.ops.known_values import Inputs
from mmdb.graph.ops.op_graph import CannotTrace
from mmdb.graph.tabular import EMBEDDED, ColumnInput, TabularNetwork
from mmdb.graph.transfer import difference
from mmdb.store.models.module import assemble
from mmdb.train.compute.translate import ByName, Places, Translated, resized, taken, translate
from mmdb.train.values.warm_spec import ParentForm, RowMap


def read_as(
    parent: nn.Module, child: nn.Module, rows: RowMap, tensors: Mapping[str, Tensor]
) -> tuple[nn.Module, dict[str, Tensor], dict[str, float]] | None:
    """Return a parent that reads its child's rows, on the meta device, its tensors and shares.

    None where it has no `ColumnInput`, or one that cannot have the child's order.
    """
    moved = rows.inputs.get("")
    paths = [path for path, part in parent.named_modules() if isinstance(part, ColumnInput)]
    if moved is None or not paths:
        return None
    plain = ColumnInput([["plain", len(moved.places)]])
    own = next((part for part in child.modules() if isinstance(part, ColumnInput)), plain)
    module, made, shares = copy.deepcopy(parent).to("meta"), dict(tensors), dict[str, float]()
    for path in paths:
        front, _, name = path.rpartition(".")
        its, host = module.get_submodule(path), module.get_submodule(front)
        assert isinstance(its, ColumnInput)
        if (its.reads, own.reads) != (moved.width, len(moved.places)):
            return None
        twin, row = _twin(its, own, moved.places, path, made)
        numbers, new = row[: len(own.numbers)], own.number_count if its.number_count else 0
        embeds = np.where(numbers < 0, np.arange(len(numbers)) < new, numbers < its.number_count)
        twin.number_count = int(embeds.sum())
        is_known = isinstance(host, TabularNetwork | nn.Sequential)
        if not (is_known and embeds[: twin.number_count].all()):
            return None
        for key, axis, places, is_weight in _readers(host, name, its, twin, row):
            key = f"{front}.{key}".removeprefix(".")
            shares[key] = float((places != MISSING).mean()) if len(places) else 0.0
            if not is_weight:  # a new column has what another one has: from zeros it learns nothing
                places = np.maximum(places, 0)
            made[key] = taken(made[key], axis, places, with_mean=False)
        host._modules[name] = twin
    module = resized(module, made)
    for path in paths:
        module.get_submodule(path).numbers = own.numbers.cpu()  # which a trace reads
    return module, {path: t for path, t in made.items() if shares.get(path, 1.0)}, shares


def _twin(
    its: ColumnInput, own: ColumnInput, places: Sequence[int], path: str, tensors: dict[str, Tensor]
) -> tuple[ColumnInput, Places]:
    """Return the child's with what the parent has of it, and where the numbers of its rows were.

    Args:
        tensors: of the parent; those below `path` get the paths that they have in what is returned.
    """
    twin, row = copy.deepcopy(own).to("meta"), list[int]()
    old = {key: tensors.pop(key) for key in [*tensors] if key.startswith(f"{path}.")}
    known, start = dict[int, tuple[int, int, str]](), 0
    for place, width, part in its.parts:
        known[place] = start, width, part
        start += width
    for place, width, part in own.parts:
        start, its_width, source = known.get(places[place], (MISSING, 0, ""))
        one, other = own.get_submodule(part), its.get_submodule(source)
        is_one = type(one) is type(other) and getattr(one, "shape", 0) == getattr(other, "shape", 0)
        if start == MISSING or not is_one:
            row += [MISSING] * width
            continue
        row += range(start, start + its_width)
        if part:
            twin.set_submodule(part, copy.deepcopy(other))
            below = f"{path}.{source}."
            for key in [key for key in old if key.startswith(below)]:
                tensors[f"{path}.{part}.{key.removeprefix(below)}"] = old[key]
    return twin, np.array(row, np.int64)


def _readers(
    host: nn.Module, name: str, its: ColumnInput, twin: ColumnInput, row: Places
) -> Iterator[tuple[str, int, Places, bool]]:
    """Yield what reads sorted rows: a tensor, an axis, its places, whether it weights the rows.

    What embeds the numbers is told how many they are.
    """
    if not isinstance(host, TabularNetwork):
        following = [*host._modules]
        yield f"{following[following.index(name) + 1]}.weight", 1, row, True
        return
    yield "linear.weight", 1, row, True
    if (deep := host.deep) is None:
        return
    deep.numbers = count = twin.number_count
    numbers, rest = row[:count], row[count:]
    each = numbers[:, None] * EMBEDDED + np.arange(EMBEDDED)
    each = np.where(numbers[:, None] < 0, MISSING, each).reshape(-1)
    rest = np.where(rest < 0, MISSING, rest + its.number_count * (EMBEDDED - 1))
    wide = np.concatenate([each, rest])
    yield "deep.feature_scale", 0, wide, False
    yield "deep.layers.0.weight", 1, wide, True
    if deep.members > 1:
        yield "deep.layers.0.into", 1, wide, False
    if deep.embedding is not None:
        for key, _ in deep.embedding.named_parameters():
            yield f"deep.embedding.{key}", 0, numbers, False


_HINT = "Freeze layers of a model that was trained on the same columns, in any order."


def by_name(
    model: ParentForm,
    tensors: Mapping[str, Tensor],
    given: Inputs,
    child: Callable[[], nn.Module],
) -> Mapping[str, Tensor]:
    """Return a model's tensors in the order of the columns and classes of other rows.

    Args:
        given: what a network for those rows takes.
        child: returns such a network.
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
        read = read_as(module, child(), rows, tensors) if rows.inputs else None
        if read is None:
            own = model.examples[0].inputs()  # of the dataset that it was trained on
            twin, flow = module, capture(module, own)
            reads = translate(replace(rows, outputs={}, class_doubts=()), flow, tensors)
        else:
            twin, flow = read[0], capture(read[0], given)
            reads = Translated(tensors=read[1])
    except (ArchitectureError, CannotTrace) as error:
        raise BackboneMismatch(
            f"The columns of {model.reference} are in another order, and its forward cannot be "
            f"followed: {error}",
            hint=_HINT,
        ) from error
    found = reads.doubts[0] if reads.doubts else None
    if rows.inputs and found is None:
        whole = ByName(module, replace(rows, outputs={}))
        found = difference(twin, whole, reads.tensors, given, (flow, flow))
    if found is not None:
        raise BackboneMismatch(
            f"The columns of {model.reference} are in another order, and cannot be told apart in "
            f"its layers: {found}",
            hint=_HINT,
        )
    return translate(replace(rows, inputs={}), flow, reads.tensors).tensors
