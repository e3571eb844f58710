"""Figures of steps: errors of warm and of cold predictions, and of the memory at the peak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mmdb.bench.figures import Figure
from tests.bench.plan.report import NONE, Bars, error_figures
from tests.bench.plan.steps import Step

WARM: Bars = (3.0, 8.0, None)
COLD: Bars = (8.0, 20.0, None)
#: Percent of the memory that was measured; models.
MEMORY_BAR, UNDER_BAR, MODELS_BAR = 10.0, -5.0, 30


def step_figures(steps: Sequence[Step]) -> Iterator[Figure]:
    """Yield the errors of steps that were measured before, of those that were not, of memory."""
    models = len({step.model for step in steps})
    yield Figure(
        name="steps: models",
        value=models,
        unit="",
        bar=f">= {MODELS_BAR}",
        holds=models >= MODELS_BAR,
    )
    varied = [step.deviation for step in steps]
    yield from error_figures("steps, warm", [step.warm_error for step in steps], varied, WARM)
    yield from error_figures("steps, cold", [step.cold_error for step in steps], varied, COLD)
    bare = [step.bare_error for step in steps]
    yield from error_figures("steps, nothing has ever run", bare, [], NONE)
    found = [100 * step.memory_error for step in steps if step.memory_error is not None]
    if found:
        largest, least = max(abs(one) for one in found), min(found)
        yield Figure(
            name=f"steps: largest error of memory, of {len(found)} models",
            value=round(largest, 1),
            unit="%",
            bar=f"<= {MEMORY_BAR:g}",
            holds=largest <= MEMORY_BAR,
            runs=[round(one, 1) for one in found],
        )
        yield Figure(
            name="steps: memory that was predicted least beside what was measured",
            value=round(least, 1),
            unit="%",
            bar=f">= {UNDER_BAR:g}",
            holds=least >= UNDER_BAR,
        )
