"""Reports and plans as files: JSON, pictures, and what is refused."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest

from mmdb.errors import EngineError, FileNotWritten, InvalidOption
from mmdb.report.explanation import Explanation
from mmdb.report.file import format_of, write_report
from mmdb.report.picture import png_of
from mmdb.report.subject_reports import report_of_run
from tests.unit.report.rows import BEGIN, facts, outcome_of, plan_rows


def explanation(*, trained: bool = False) -> Explanation:
    rows = [row | {"note": None, "actual_s": None} for row in plan_rows(slots=2)]
    if trained:
        rows = [outcome_of(rows) if row["chosen"] else row for row in rows]
    nothing = dict.fromkeys(rows[0])
    return Explanation("search", [*rows, {**nothing, "note": "Be careful.", "knobs": "{}"}])


def test_json_has_the_rows_as_they_are(tmp_path: Path) -> None:
    board = [{**row, "objective": math.nan} for row in facts(candidates=30).board]
    file = tmp_path / "report.json"
    write_report(report_of_run(facts(candidates=30, board=board), BEGIN), file)
    found = json.loads(file.read_text())
    assert found["run"] == "search" and found["facts"]["candidates"] == 30
    candidates = found["sections"]["leaderboard"]["candidates"]
    assert [row["rank"] for row in candidates] == [*range(1, 31)]
    assert candidates[0]["objective"] is None and candidates[0]["config"]["lr"] > 0
    assert "color" not in candidates[0]
    assert set(found["sections"]["plan"]["ways"][0]) >= {"t_p50", "compute_s", "executed"}


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("name", ["plan.svg", "plan.PNG"])
def test_a_plan_can_be_drawn(tmp_path: Path, name: str, trained: bool) -> None:
    file = tmp_path / name
    file.write_text("old")
    explanation(trained=trained).plot(file)
    content = file.read_bytes()
    if name == "plan.svg":
        assert content.startswith(b"<svg") and b"Time against workers" in content
        assert b"data parallel tree (what-if)" in content
        assert (b"Planned and taken" in content) == trained
    else:
        assert content.startswith(b"\x89PNG") and len(content) > 20_000


def test_a_report_can_be_a_picture(tmp_path: Path) -> None:
    write_report(report_of_run(facts(), BEGIN), tmp_path / "report.png")
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_holds_what_xml_does_not() -> None:
    drawn = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><text>a\x01\x00</text></svg>'
    )
    assert png_of(drawn).startswith(b"\x89PNG")


def test_what_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidOption, match="pdf"):
        format_of("report.pdf")
    with pytest.raises(InvalidOption, match="xml"):
        format_of("report.html", "xml")
    assert format_of("report") == "html" and format_of("x.html", "json") == "json"
    with pytest.raises(InvalidOption, match=r"plan\.gif"):
        explanation().plot(tmp_path / "plan.gif")
    nothing = [row | {"feasible": False} for row in plan_rows()]
    with pytest.raises(InvalidOption, match="nothing to draw"):
        Explanation("search", [row | {"note": None} for row in nothing]).plot("plan.svg")
    with pytest.raises(FileNotWritten):
        write_report(report_of_run(facts(), BEGIN), tmp_path / "missing" / "report.json")
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(EngineError, match="vl-convert") as caught:
        explanation().plot(tmp_path / "plan.svg")
    assert "mmdb-learn[report]" in str(caught.value.hint)
    assert not (tmp_path / "plan.svg").exists()
