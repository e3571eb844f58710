"""What a model's tensors take in the database, and what they share."""

from __future__ import annotations

import math

from mmdb.messages import bytes_text
from mmdb.report.charts.storage import tensors_chart
from mmdb.report.model.reading import ModelFacts
from mmdb.report.parts import Column, Section, Table
from mmdb.report.texts import value_text

#: Tensors of the table that are shown at once.
SHOWN = 25


def section(facts: ModelFacts) -> Section | None:
    """Return the section, or None where the model's tensors are gone."""
    if not facts.tensors:
        return None
    rows = [
        {
            **{key: row[key] for key in row if key not in ("tensor_id", "shape")},
            "shape": list(row["shape"] or ()),
            "elements": math.prod(row["shape"] or ()),
            "kept": _kept(row),
        }
        for row in facts.tensors
    ]
    columns = (
        Column(key="path", label="tensor"),
        Column(key="kind", label="kind"),
        Column(key="dtype", label="dtype"),
        Column(key="shape", label="shape", show=_shape),
        Column(key="byte_count", label="size", show=bytes_text, right=True),
        Column(key="stored_bytes", label="stored", show=bytes_text, right=True),
        Column(key="kept", label="as"),
        Column(key="mean", label="mean", show=value_text, right=True),
        Column(key="deviation", label="deviation", show=value_text, right=True),
    )
    told = tuple(c for c in columns if any(row[c.key] is not None for row in rows))
    rest = len(rows) - SHOWN
    tables = [Table(key="tensors", title="Tensors", columns=told, rows=rows[:SHOWN],
                    folded=True)]  # fmt: skip
    if rest > 0:
        tables.append(Table(key="tensors", title=f"{rest:,} more tensors", columns=told,
                            rows=rows[SHOWN:], folded=True))  # fmt: skip
    return Section(
        key="storage",
        title="Storage",
        texts=(_told(facts),),
        charts=(tensors_chart(rows),),
        tables=tuple(tables),
    )


def _told(facts: ModelFacts) -> str:
    text = f"{len(facts.tensors):,} tensors of {bytes_text(facts.model['byte_count'] or 0)}."
    row = facts.storage
    if row is None or row["stored_bytes"] is None:
        return text
    text += f" Saving it took {bytes_text(row['stored_bytes'])}."
    if row["shared_bytes"]:
        text += f" {bytes_text(row['shared_bytes'])} were there already: models share them."
    if row["encoded_away_bytes"] > 0:
        text += f" {bytes_text(row['encoded_away_bytes'])} were saved by encoding them."
    return text


def _kept(row: object) -> str:
    assert isinstance(row, dict)
    if row["tied_to"] is not None:
        return f"tied to {row['tied_to']}"
    if row["is_difference"]:
        return "difference to another tensor"
    return f"{row['chunks']:,} chunks" if row["chunks"] else "in its row"


def _shape(shape: list[int]) -> str:
    """Return a shape as people write it.

    >>> _shape([3, 224, 224]), _shape([])
    ('3 by 224 by 224', 'one number')
    """
    return " by ".join(map(str, shape)) or "one number"
