"""The options of experiments, and the share that they make."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mmdb.api import Database
from mmdb.bench.figures import Figure
from mmdb.bench.workload import BenchShare
from tests.bench.__main__ import EXPERIMENTS, main
from tests.bench.feature.bench import FeatureShare
from tests.bench.plan.bench import PlanShare
from tests.bench.tables.bench import TablesShare
from tests.bench.train.convergence import UNIT
from tests.bench.warm.bench import WarmShare


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("asha --share 0.1", BenchShare(share=0.1)),
        ("feature --only fused", FeatureShare(only=["fused"])),
        ("plan --seconds 2 --share 0.1", PlanShare(seconds=2.0, share=0.1)),
        ("tables --only flights --peers p", TablesShare(only=["flights"], peers="p")),
        ("warm --folder a --seeds 2", WarmShare(folder=Path("a"), seeds=2)),
        ("warm --only safety --pairs 1", WarmShare(only=["safety"], pairs=1)),
    ],
)
def test_options_left_out_keep_their_defaults(
    arguments: str, expected: BenchShare, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    def bench(databases: list[Database], share: BenchShare) -> list[Figure]:
        found.append(share)
        return []

    name, *options = arguments.split()
    monkeypatch.setitem(EXPERIMENTS, name, replace(EXPERIMENTS[name], bench=bench))
    assert main([name, *options]) == 0
    assert found == [expected]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("plan --only nasbench", "invalid choice: 'nasbench'"),
        ("warm --only mop", "invalid choice: 'mop'"),
        ("feature --only mop", "invalid choice: 'mop'"),
        ("plan --pairs 1", "--pairs"),
        ("bi --only safety", "--only"),
        ("warm --plot a.svg", "--plot"),
        ("plan --repeats 0", "--repeats: it is 1 or more"),
        ("warm --pairs 0", "--pairs: it is 1 or more"),
        ("plan --seconds 0", "--seconds: it is above 0"),
        ("match --share 2", "--share: it is above 0"),
    ],
)
def test_wrong_options_are_refused(
    arguments: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments.split())
    assert said in capsys.readouterr().err


def test_the_curves_of_convergence_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bench(databases: list[Database], share: BenchShare) -> list[Figure]:
        return [Figure(name="digits: mop", value=0.1, unit=UNIT, runs=[0.2, 0.1])]

    changed = replace(EXPERIMENTS["convergence"], bench=bench)
    monkeypatch.setitem(EXPERIMENTS, "convergence", changed)
    file = tmp_path / "curves.svg"
    assert main(["convergence", "--plot", str(file)]) == 0
    assert "<polyline" in file.read_text()
