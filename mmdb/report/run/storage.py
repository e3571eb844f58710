"""What the models of a run take in the database."""

from __future__ import annotations

from mmdb.messages import bytes_text
from mmdb.report.charts.storage import models_chart
from mmdb.report.parts import Column, Section, Table
from mmdb.report.run.reading import RunFacts
from mmdb.report.texts import time_text


def section(facts: RunFacts) -> Section | None:
    """Return the section, or None where no model came out of the run."""
    if not facts.models:
        return None
    rows = [{**row, "entity": f"model:{row['model']}@{row['version']}"} for row in facts.models]
    size = sum(row["byte_count"] or 0 for row in rows)
    stored = sum(row["stored_bytes"] or 0 for row in rows)
    shared = sum(row["shared_bytes"] or 0 for row in rows)
    saved = f" {bytes_text(shared)} they share with other models." if shared else ""
    count = f"{len(rows):,} models" if len(rows) > 1 else "One model"
    columns = (
        Column(key="model", label="model", entity="entity"),
        Column(key="version", label="version", right=True),
        Column(key="candidate_id", label="candidate", right=True),
        Column(key="epoch", label="epoch", show=_epoch, right=True),
        Column(key="approach", label="kept as"),
        Column(key="byte_count", label="size", show=bytes_text, right=True),
        Column(key="stored_bytes", label="stored for it", show=bytes_text, right=True),
        Column(key="shared_bytes", label="shared", show=bytes_text, right=True),
        Column(key="created", label="saved", show=time_text),
    )
    return Section(
        key="storage",
        title="Storage",
        texts=(f"{count} of {bytes_text(size)}; saving took {bytes_text(stored)}.{saved}",),
        charts=(models_chart(rows),),
        tables=(Table(key="models", title="Models", columns=columns, rows=rows),),
    )


def _epoch(value: int | None) -> str:
    return "" if value is None else str(value + 1)
