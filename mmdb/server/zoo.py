"""`match`, `zoo_admit`, `zoo_refuse` and `manage_zoo`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from mmdb.arguments import check_whole
from mmdb.server.backend import Backend, exposed


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
    from mmdb.server.matching import Asked, find_parents  # loads torch and numba

    asked = Asked(
        architecture=architecture,
        dataset=dataset,
        metric=metric,
        input_shape=input_shape,
        outputs=outputs,
        k=check_whole(k, "k", 1, 10_000),
        sample=check_whole(sample, "sample", 0, 10_000),
    )
    choice = find_parents(backend.connection, asked, backend.recover)
    rows = [
        {
            "model": one.model,
            "similarity": one.similarity,
            "transferable_fraction": one.coverage,
            "accuracy": one.accuracy,
            "dataset": one.dataset,
            "reason": one.reason,
        }
        for one in choice.candidates
    ]
    nothing = dict.fromkeys(("model", "similarity", "transferable_fraction", "accuracy", "dataset"))
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


@exposed
def manage_zoo(backend: Backend, budget_bytes: int | None, dry_run: bool) -> list[dict[str, Any]]:
    """Return what the rules decide of the zoo."""
    from mmdb.store.parents import managing  # loads torch

    found = managing.manage_zoo(backend.connection, budget_bytes=budget_bytes, dry_run=dry_run)
    return [asdict(one) for one in found]
