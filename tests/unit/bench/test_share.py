"""A bench measures its full size or a share of it, and README names every bench and experiment."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mmdb.api import Database
from mmdb.bench import command
from mmdb.bench.figures import Figure, at_most
from mmdb.bench.load import Load
from mmdb.bench.workload import FULL, BenchShare
from mmdb.cli import main
from mmdb.cli.bench import BENCHES, LOAD_OPTIONS
from tests.bench.__main__ import EXPERIMENTS
from tests.cluster import ROOT

SMALL = BenchShare(share=0.01)


def test_the_full_size_is_what_it_was() -> None:
    assert FULL.is_full and not SMALL.is_full
    assert [FULL.of(7), FULL.of(7, 9), FULL.time(0.3, 5.0), FULL.first("abc")] == [7, 7, 0.3, "abc"]


def test_a_share_leaves_something_to_measure() -> None:
    assert [SMALL.of(1_000), SMALL.of(1_000, 50), SMALL.of(3), SMALL.of(3, 50)] == [10, 50, 1, 3]
    assert [SMALL.time(60.0), SMALL.time(60.0, 1.0), SMALL.time(0.5, 1.0)] == [0.6, 1.0, 0.5]
    assert SMALL.first("abc") == "a" and SMALL.first("abc", 2) == "ab"


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("hop", {"share": 0.1}, BenchShare(share=0.1)),
        ("load", {"clients": 3, "readers": 0}, Load(clients=3, readers=0)),
    ],
)
def test_options_left_out_keep_their_defaults(
    name: str, given: dict[str, object], expected: BenchShare, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    def bench(databases: list[Database], share: BenchShare) -> list[Figure]:
        found.append(share)
        return []

    monkeypatch.setitem(command.BENCHES, name, bench)
    options = dict.fromkeys(("share", *(LOAD_OPTIONS if name == "load" else ()))) | given
    assert command.run_bench(name, None, None, options=options) == 0
    assert found == [expected]


@pytest.mark.parametrize(("share", "status"), [("1", 1), ("0.5", 0)])
def test_bars_are_for_the_full_size(
    share: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bench(databases: list[Database], share: BenchShare) -> Iterator[Figure]:
        yield at_most("seconds of a save", [2.0], "s", 1.0)

    monkeypatch.setitem(command.BENCHES, "store", bench)
    file = tmp_path / "report.json"
    assert main(["bench", "store", "--share", share, "--json", str(file)]) == status
    report = json.loads(file.read_text())
    (figure,) = report["figures"]
    assert report["share"] == float(share)
    assert (figure["value"], figure["bar"]) == (2.0, "<= 1" if status else "")


@pytest.mark.parametrize("share", ["0", "-0.1", "1.01", "nan"])
def test_a_share_is_above_0_and_at_most_1(share: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["bench", "hop", "--share", share])
    assert "--share: it is above 0" in capsys.readouterr().err


def test_the_page_of_figures_names_every_bench() -> None:
    page = (ROOT / "docs" / "figures.md").read_text()
    section = page.partition("\n## Measuring a machine of your own\n")[2]
    names = re.findall(r"`([a-z]+)`", section)
    assert set(BENCHES) == set(command.BENCHES)
    assert sorted(names) == sorted([*BENCHES, *EXPERIMENTS])
