"""What becomes of models in the zoo: one row for each decision, and for each time one is taken."""

from __future__ import annotations

from typing import Literal

from mmdb.db.connection import Connection
from mmdb.db.owners import require_owner
from mmdb.db.queries import load
from mmdb.errors import InvalidOption, ModelNotFound
from mmdb.messages import show
from mmdb.store.models import find_model
from mmdb.store.parents.choice import Candidate

_Q = load("zoo")
Event = Literal["admitted", "refused", "evicted", "hit"]


def take(connection: Connection, chosen: Candidate) -> None:
    """See `mmdb.store.parents.take_parent`."""
    hold(connection, chosen.model_id, chosen.model)
    add_event(connection, chosen.model_id, "hit", chosen.reason, by_rule=True)


def hold(connection: Connection, model_id: int, reference: str) -> None:
    """Keep a model from being dropped until the end of the transaction; others may do so too.

    On DuckDB, nothing that others do is seen before the transaction ends.

    Raises:
        ModelNotFound: it is dropped already.
    """
    query = _Q.share_live if connection.engine == "postgres" else _Q.find_live
    if not connection.rows(query, model_id=model_id):
        raise ModelNotFound(
            f"Model {reference!r} has been dropped since it was found.", hint="Search again."
        )


def add_event(
    connection: Connection, model_id: int, event: Event, reason: str, *, by_rule: bool
) -> None:
    """Write down a decision."""
    connection.run(_Q.add_event, model_id=model_id, event=event, reason=reason, by_rule=by_rule)


def say(connection: Connection, model: str, event: Event, reason: str) -> str:
    """Admit a model to the zoo, or refuse it, whatever the rules say; return `name@version`.

    Raises:
        ModelNotFound
        InvalidOption: the reason is no text.
        RightsMissing: the model is another role's.
    """
    if not isinstance(reason, str) or not _is_storable(reason):
        raise InvalidOption(f"reason is {show(reason)}.", hint="Pass a text, or leave it out.")
    with connection.transaction():
        found = find_model(connection, model)
        require_owner(connection, "model", found.reference, found.model_id)
        hold(connection, found.model_id, found.reference)
        add_event(connection, found.model_id, event, reason, by_rule=False)
    return found.reference


def _is_storable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return "\0" not in text
