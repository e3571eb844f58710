"""What the views say of one version of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmdb.data.names import reference_of
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import ModelNotFound
from mmdb.messages import show

_Q = load("standards")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """Rows of `sql/queries/standards.sql`, of one version."""

    model: Row
    aliases: Sequence[str]
    metrics: Sequence[Row]
    tags: Sequence[Row]
    notes: Sequence[Row]
    dataset: Row | None  # None: it was trained on none that is known
    sources: Sequence[Row]
    run: Row | None
    candidate: Row | None
    children: Sequence[Row]


def read_card(connection: Connection, model: str) -> CardFacts:
    """Read what is known of a model through the views, dropped ones too.

    Args:
        model: `name`, `name@version` or `name@alias`; the newest version where none is named.
    Raises:
        ModelNotFound
    """
    name, version, aliases = _find(connection, model)
    key = {"model": name, "version": version}
    (row,) = connection.rows(_Q.find_card, **key)
    run, dataset = row["run"], row["dataset"]
    return CardFacts(
        model=row,
        aliases=aliases,
        metrics=connection.rows(_Q.find_card_metrics, **key),
        tags=connection.rows(_Q.find_card_tags, **key),
        notes=connection.rows(_Q.find_card_notes, **key),
        dataset=_first(
            connection.rows(_Q.find_card_datasets, dataset=dataset, until=row["created_at"])
        ),
        sources=connection.rows(_Q.find_card_sources, **key),
        run=_first(connection.rows(_Q.find_card_run, run=run)),
        candidate=_first(
            connection.rows(_Q.find_card_candidate, run=run, candidate_id=row["candidate_id"])
        ),
        children=connection.rows(_Q.find_card_children, parent=f"{name}@{version}"),
    )


def _find(connection: Connection, model: str) -> tuple[str, int, list[str]]:
    """Return name, version and aliases of what a reference names."""
    asked = reference_of(model)
    if asked is None:
        raise ModelNotFound(f"{show(model)} names no model.")
    rows = connection.rows(_Q.find_card_versions, model=asked.name)
    for row in rows:
        if asked.version in (None, row["version"]) and asked.alias in (None, row["alias"]):
            version = row["version"]
            names = [r["alias"] for r in rows if r["version"] == version and r["alias"]]
            return asked.name, version, names
    raise ModelNotFound(f"There is no model {show(model)}.")


def _first(rows: Sequence[Row]) -> Row | None:
    return rows[0] if rows else None
