"""Plans as people read them."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from mmdb.report.explanation import Explanation, range_text
from mmdb.terminal.plan import show_plan
from tests.unit.report.rows import plan_rows


def texts(assumed: bool, width: int) -> list[str]:
    """Return a plan as `print` and as a terminal show it."""
    plan = Explanation(
        "search",
        [row | {"assumed": assumed, "note": None, "actual_s": None} for row in plan_rows()],
    )
    console = Console(file=StringIO(), width=width)
    show_plan(plan, console=console)
    assert isinstance(console.file, StringIO)
    return [str(plan), console.file.getvalue()]


@pytest.mark.parametrize("width", [60, 200])
def test_assumed_costs_give_a_range_and_no_number(width: int) -> None:
    best = next(row for row in plan_rows() if row["rank"] == 1)
    for text in texts(assumed=True, width=width):
        assert range_text(best) in text and "costs are assumed" in text
        assert "10 to 90 %" in text and " time " not in text and "at least" not in text
    for text in texts(assumed=False, width=width):
        assert " time " in text and "assumed" not in text
