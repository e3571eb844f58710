"""From an open database to a card."""

from __future__ import annotations

from mmdb.db.connection import Connection
from mmdb.standards.card.facts import read_card
from mmdb.standards.card.markdown import card


def model_card(connection: Connection, model: str) -> str:
    """Return the card of a model, in Markdown.

    Args:
        model: `name`, `name@version` or `name@alias`; the newest version where none is named.
    Raises:
        ModelNotFound
    """
    return card(read_card(connection, model))
