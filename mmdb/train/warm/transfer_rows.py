"""Transfers as rows: which tensor of a child came from where."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import InvalidOption
from mmdb.messages import show
from mmdb.train.values.warm_spec import OPERATORS_VERSION, TensorOrigin

_Q = load("warm")


@dataclass(frozen=True, kw_only=True)
class Transferred:
    """What a child has of a parent.

    Attributes:
        parent: name@version, or the candidate; None where no parent fitted.
        similarity: of the architectures, 0 to 1.
        coverage: share of the child's parameters that come from the parent.
        exact: whether the child computes what the parent does, but for rounding.
        reason: why this parent, or why none.
        tensors: where each tensor of the child comes from, in the order of its state dict.
        seed: of the shares that copies of a unit have.
        shrink: see `Database.warm_start`.
        match_s, transfer_s: seconds of the search, and of reading the parent and of the rest.
    """

    parent: str | None = None
    model_id: int | None = None
    similarity: float = 0.0
    coverage: float = 0.0
    exact: bool = False
    reason: str
    tensors: tuple[TensorOrigin, ...] = field(default=(), repr=False)
    seed: int = 0
    shrink: float | None = None
    match_s: float = 0.0
    transfer_s: float = 0.0

    @cached_property
    def options(self) -> str:
        """What the bits depend on beside parent and child, as JSON."""
        found = {"version": OPERATORS_VERSION, "seed": self.seed, "shrink": self.shrink}
        return json.dumps(found | {"exact": self.exact})


def transfer_reason(
    reason: str, exact: bool, reasons: Sequence[str], notes: Sequence[str], passed_over: str
) -> str:
    """Return why a parent was taken, what the child computes, how their rows differ, and why others
    were not taken.
    """
    kind = "computes what the parent does"
    if not exact:
        kind = "computes something else than the parent"
    if not exact and reasons:
        more = f" and {len(reasons) - 1} more" if len(reasons) > 1 else ""
        kind = f"{kind}: {reasons[0]}{more}"
    return "; ".join(filter(None, (reason, kind, *notes, passed_over)))


def check_transferred(connection: Connection, given: object) -> None:
    """Check that something is what `warm_start` returned, on this database.

    Raises:
        InvalidOption
    """
    if not isinstance(given, Transferred):
        raise InvalidOption(f"warm is {show(given)}.", hint="Pass what warm_start returned.")
    if given.parent is None:
        return
    rows = connection.rows(load("models").find_model, model_id=given.model_id)
    if [f"{row['name']}@{row['version']}" for row in rows] != [given.parent]:
        raise InvalidOption(
            f"warm has the parent {show(given.parent)}, which is not a model of this database.",
            hint="Pass what warm_start returned on the database that the model is saved in.",
        )


def add_transfer(
    connection: Connection,
    transferred: Transferred,
    *,
    candidate_id: int | None = None,
    parent_candidate_id: int | None = None,
    parent_state: bytes | None = None,
    model_id: int | None = None,
) -> int:
    """Write a transfer and where each tensor came from, in the caller's transaction.

    Args:
        candidate_id: the child, if it is a candidate.
        parent_candidate_id: the parent, likewise.
        parent_state: hash of the parent's state; of a model's, where its optimizer goes on.
        model_id: the child, if it is a model that was saved from a module.
    """
    (row,) = connection.rows(
        _Q.add_transfer,
        parent_id=transferred.model_id,
        parent_candidate_id=parent_candidate_id,
        parent_state=parent_state,
        candidate_id=candidate_id,
        model_id=model_id,
        similarity=transferred.similarity,
        coverage=transferred.coverage,
        options=transferred.options,
        reason=transferred.reason,
        match_s=transferred.match_s,
        transfer_s=transferred.transfer_s,
    )
    transfer_id = int(row["transfer_id"])
    connection.append(
        _Q.add_transfer_tensor,
        [
            (transfer_id, k, one.path, one.parent, one.operator, one.fraction, one.reason)
            for k, one in enumerate(transferred.tensors)
        ],
    )
    return transfer_id
