"""Where the features of a run's frozen layers came from, and what that saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmdb.messages import bytes_text, seconds_text
from mmdb.report.parts import Column, Section, Table
from mmdb.report.run.reading import RunFacts


def section(facts: RunFacts) -> Section | None:
    """Return the section, or None where no layer of the run was frozen."""
    if not facts.features:
        return None
    rows = [
        {**row, "entity": f"feature:{row['feature_id']}", "cost_s": _cost(row)}
        for row in facts.features
    ]
    stored = sum(row["byte_count"] for row in rows if row["choice"] == "stored")
    cost = sum(row["cost_s"] for row in rows)
    texts = [f"Computing, storing and reading them took {seconds_text(cost)} outside of hops."]
    if stored:
        texts.append(f"{bytes_text(stored)} of features are stored, which mmdb gc can free.")
    columns = (
        Column(key="layer", label="frozen up to", entity="entity"),
        Column(key="backbone", label="of"),
        Column(key="choice", label="features"),
        Column(key="candidates", label="candidates", right=True),
        Column(key="hops", label="hops", right=True),
        Column(key="byte_count", label="size", show=bytes_text, right=True),
        Column(key="cost_s", label="took", show=seconds_text, right=True),
        Column(key="saved_s", label="to save", show=seconds_text, right=True),
        Column(key="reason", label="because"),
    )
    told = tuple(c for c in columns if any(row[c.key] is not None for row in rows))
    return Section(
        key="features",
        title="Frozen layers",
        texts=tuple(texts),
        tables=(Table(key="features", title="Features", columns=told, rows=rows),),
    )


def _cost(row: Mapping[str, Any]) -> float:
    return float(row["compute_s"] + row["store_s"] + row["read_s"])
