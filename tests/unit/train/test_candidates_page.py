"""docs/candidates.md names everything that a candidate may be."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from mmdb.train.candidate import named_choices
from mmdb.train.candidate.config import KEYS
from mmdb.train.candidate.losses import LOSSES, TAKEN
from mmdb.train.candidate.metrics import DEFAULTS, METRICS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "candidates.md").read_text()
REQUIRED = inspect.Parameter.empty


def section(heading: str) -> str:
    found = re.search(rf"^#+ {heading}\n(.*?)(?=^#+ |\Z)", PAGE, re.M | re.S)
    assert found, heading
    return found[1]


def rows(heading: str) -> list[list[str]]:
    """Return the cells of a section's tables, without their heads."""
    lines = re.findall(r"^\| (.*) \|$", section(heading), re.M)
    return [cells for line in lines if (cells := line.split(" | ")) and "`" in line]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([\w.]+)`", cell)


def arguments(kind: type, without: Iterable[str]) -> list[tuple[str, bool]]:
    """Return the arguments of a class, and whether each must be given."""
    found = inspect.signature(kind).parameters.values()
    return [(p.name, p.default is REQUIRED) for p in found if p.name not in without]


def test_every_hyper_parameter() -> None:
    named = [quoted(cells[0])[0] for cells in rows("Hyper-parameters")]
    assert named[-1] == "architecture.NAME"
    assert sorted(named[:-1]) == sorted(KEYS)


@pytest.mark.parametrize(
    ("heading", "known", "without"),
    [
        ("Optimizers", named_choices.OPTIMIZERS, named_choices._TAKEN),
        ("Schedules", named_choices.SCHEDULES, named_choices._OWN),
    ],
)
def test_every_optimizer_and_schedule_with_its_arguments(
    heading: str, known: Mapping[str, type], without: set[str]
) -> None:
    found = {
        quoted(name)[0]: [(n, f"**`{n}`**" in cell) for n in quoted(cell)]
        for name, cell in rows(heading)
    }
    assert found == {name: arguments(kind, without) for name, kind in known.items()}


def test_every_loss_with_its_arguments() -> None:
    found = {(task, quoted(name)[0]): quoted(cell) for task, name, cell in rows("Losses")}
    assert list(found) == [(task, name) for task, known in LOSSES.items() for name in known]
    for (task, name), named in found.items():
        kind = {t: known for t, known in LOSSES.items()}[task][name]  # type: ignore[index]
        assert named == [argument for argument, _ in arguments(kind, TAKEN)], name


def test_every_metric_with_its_tasks_and_direction() -> None:
    found = {quoted(name)[0]: (tasks, better) for name, tasks, better, _ in rows("Metrics")[:-2]}
    assert found == {
        name: (", ".join(metric.by_task), "more" if metric.maximize else "less")
        for name, metric in METRICS.items()
    }
    assert all(f"`{name}`" in section("Metrics") for names in DEFAULTS.values() for name in names)
