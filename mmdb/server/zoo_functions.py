"""SQL's functions for the zoo: tensors, shared beginnings, parents, who is in it, and lineage."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from mmdb.arguments import check_whole
from mmdb.errors import UnsupportedTensor
from mmdb.server.backend import Backend, exposed, passed_on


@exposed
def tensor_values(
    backend: Backend, model: str, path: str, lo: int | None, hi: int | None
) -> list[float]:
    """Return rows lo..hi of a tensor as float32; a tensor without dimensions is one row."""
    from mmdb.store.models.model_rows import find_model
    from mmdb.store.models.recover import ModelReader  # imports torch

    connection = backend.connection
    found = find_model(connection, model)
    reader = ModelReader(connection)
    (entry,) = reader.catalog(found).select([path])
    if not entry.shape:
        values = reader.tensors(found, [path])[path]
    else:
        values = reader.rows(found, path, lo or 0, hi)
    with suppress(NotImplementedError):  # a dtype that torch only stores
        if not values.is_complex():
            numbers: list[float] = values.float().reshape(-1).tolist()
            return numbers
    raise UnsupportedTensor(
        f"{path!r} holds {entry.dtype}, which real[] cannot.",
        hint="Read it in Python: db.tensor(model, path).",
    )


@exposed
def common_prefix(
    backend: Backend,
    architecture: str,
    dataset: str | None,
    input_shape: list[int] | None,
    outputs: int | None,
    k: int | None,
) -> list[dict[str, Any]]:
    """Return the models that share the longest beginnings with an architecture."""
    most = check_whole(k, "k", 1, 10_000)
    from mmdb.store.models.architectures import common_prefix as find_common_prefix  # imports torch
    from mmdb.train.replay.model_facts import beginnings_of

    own = beginnings_of(
        backend.connection, architecture, input_shape=input_shape, outputs=outputs, dataset=dataset
    )
    return [
        {"model": p.model, "shared_nodes": p.nodes, "shared_bytes": p.parameter_bytes}
        for p in find_common_prefix(backend.connection, own, most)
    ]


@exposed
def match(
    backend: Backend,
    architecture: str,
    k: int,
    dataset: str | None,
    metric: str | None,
    input_shape: Sequence[int] | None,
    outputs: int | None,
    sample: int,
) -> list[dict[str, Any]]:
    """Return candidates, or one row without a model that says why there are none."""
    from mmdb.server.matching import ParentQuery, find_parents  # loads torch and numba

    asked = ParentQuery(
        architecture=architecture,
        dataset=dataset,
        metric=metric,
        input_shape=input_shape,
        outputs=outputs,
        k=check_whole(k, "k", 1, 10_000),
        sample=check_whole(sample, "sample", 0, 10_000),
    )
    choice = find_parents(backend.connection, asked, backend.recover)
    names = ("model", "similarity", "accuracy", "dataset", "reason")
    rows = [
        {name: getattr(one, name) for name in names} | {"transferable_fraction": one.coverage}
        for one in choice.candidates
    ]
    nothing = dict.fromkeys((*names, "transferable_fraction"))
    return rows or [nothing | {"reason": choice.reason}]


@exposed
def zoo_admit(backend: Backend, model: str, reason: str) -> str:
    """Offer a model as a parent; return `name@version`."""
    from mmdb.store.parents import judging  # loads torch

    return judging.say(backend.connection, model, "admitted", reason)


@exposed
def zoo_refuse(backend: Backend, model: str, reason: str) -> str:
    """Offer a model as a parent no longer; return `name@version`."""
    from mmdb.store.parents import judging  # loads torch

    return judging.say(backend.connection, model, "refused", reason)


manage_zoo = passed_on("mmdb.store.parents.managing.manage_zoo", "budget_bytes", "dry_run")
similar_models = passed_on("mmdb.store.parents.suggesting.similar_models")
propose_parents = passed_on("mmdb.store.parents.suggesting.propose_parents")
accept_parent = passed_on("mmdb.store.parents.suggesting.accept_parent")
lineage = passed_on("mmdb.lineage.finding.lineage", "hops", "max_depth")
