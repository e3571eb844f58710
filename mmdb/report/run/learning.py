"""Learning curves: the metric of each candidate after each epoch."""

from __future__ import annotations

from mmdb.report.charts.curves import curves_of, learning
from mmdb.report.parts import Column, Section, Table
from mmdb.report.run.reading import RunFacts


def section(facts: RunFacts) -> Section | None:
    """Return the section, or None where no epoch has ended."""
    curves = curves_of(facts.epochs, facts.run["metric"])
    leaders = facts.leaders
    chart = learning(curves, leaders, len(facts.board))
    if chart is None:
        return None
    epochs = sorted({epoch for values in curves.by_candidate.values() for epoch in values})
    rows = [
        {"candidate": name} | {str(e): curves.by_candidate.get(c, {}).get(e) for e in epochs}
        for c, name in leaders.items()
    ]
    columns = tuple(Column(key=str(e), label=f"epoch {e}", right=True) for e in epochs)
    table = Table(
        key="epochs",
        title="The curves as numbers",
        columns=(Column(key="candidate", label="candidate"), *columns),
        rows=rows,
        folded=True,
    )
    return Section(key="learning", title="Learning curves", charts=(chart,), tables=(table,))
