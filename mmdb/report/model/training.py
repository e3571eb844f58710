"""How a model was trained: its candidate's curve and hops, and what its run took."""

from __future__ import annotations

from dataclasses import replace

from mmdb.messages import seconds_text
from mmdb.report.charts.curves import curves_of, learning
from mmdb.report.charts.hops import timeline
from mmdb.report.model.reading import ModelFacts
from mmdb.report.parts import Column, Section, Table
from mmdb.report.run.outcome import section_of
from mmdb.report.run.work import spent


def section(facts: ModelFacts) -> Section | None:
    """Return the section, or None where the model was not trained by a run."""
    candidate = facts.model["candidate_id"]
    if candidate is None or not facts.hops:
        return None
    names = {candidate: f"candidate {candidate}"}
    metric = next((row["metric"] for row in facts.epochs), None)
    curve = learning(curves_of(facts.epochs, metric), names, 1)
    charts = (curve and replace(curve, note=""), timeline(facts.hops, names))
    warm = [
        f"It began with parameters of {row['parent']}: similarity {row['similarity']:.2f}, "
        f"{row['coverage']:.0%} of its parameters.".replace("%", " %")
        for row in facts.transfers
        if row["similarity"] is not None and row["coverage"] is not None
    ]
    seconds = ("compute_s", "read_s", "hop_s", "validation_s")
    table = Table(
        key="workers", title="Its hops by worker", rows=spent(facts.hops), folded=True,
        columns=(
            Column(key="worker", label="worker"),
            Column(key="node", label="node"),
            Column(key="hops", label="hops", right=True),
            *(Column(key=k, label=k.removesuffix("_s"), show=seconds_text, right=True)
              for k in seconds),
        ),
    )  # fmt: skip
    return Section(
        key="training",
        title="Training",
        texts=tuple(warm),
        charts=tuple(chart for chart in charts if chart is not None),
        tables=(table,),
    )


def outcome_section(facts: ModelFacts) -> Section | None:
    """Return what the plan of its run had said, beside what the run took."""
    return section_of(facts.outcome)
