"""Tables for terminals of any width."""

from __future__ import annotations

import json
import math
from dataclasses import make_dataclass
from io import StringIO

import pytest
from rich.console import Console

from mmdb import terminal
from mmdb.cli import models, service
from mmdb.db.check import Check
from mmdb.terminal.output import SafeConsole

ROWS = [
    {"rank": 1, "hidden": [64, 32], "loss": 0.25, "seconds": 1.5, "error": None},
    {"rank": 2, "hidden": [8], "loss": 0.3, "seconds": 12.25, "error": "boom"},
]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Console:
    """Return a console of 60 columns that the module prints to."""
    console = Console(file=StringIO(), width=60)
    monkeypatch.setattr(terminal, "console", console)
    return console


def text(console: Console) -> list[str]:
    """Return the lines that were printed, without white space at their ends."""
    file = console.file
    assert isinstance(file, StringIO)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_a_column_of_numbers_has_as_many_decimals_in_each_row(screen: Console) -> None:
    terminal.show_rows("Two", ROWS)
    assert text(screen) == [
        "Two",
        "rank  hidden    loss  seconds  error",
        "────────────────────────────────────",
        "   1  [64, 32]  0.25     1.50",
        "   2  [8]       0.30    12.25  boom",
        "",
    ]


def test_a_narrow_terminal_does_without_spare_columns(screen: Console) -> None:
    screen.width = 30
    terminal.show_rows("", ROWS, spare=("absent", "seconds", "loss"))
    assert text(screen)[0] == "rank  hidden    loss  error"


def test_what_is_too_wide_is_shown_row_by_row(screen: Console) -> None:
    screen.width = 20
    terminal.show_rows("", ROWS[:1])
    assert text(screen) == [
        "row 1 ──────────────",
        "rank     1",
        "hidden   [64, 32]",
        "loss     0.25",
        "seconds  1.5",
        "error",
        "",
    ]


FIGURES = [
    {"figure": "duckdb, resnet18: save, classifier changed", "value": 1.5, "bar": "<= 0.4"},
    {"figure": "a hop", "value": 12.25, "bar": ""},
]


def test_a_table_stays_one_where_a_column_may_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = Console(file=StringIO(), width=40, force_terminal=True, color_system=None)
    monkeypatch.setattr(terminal, "console", narrow)
    terminal.show_rows("", FIGURES, folded="figure")
    lines = text(narrow)
    assert lines[0].split() == ["figure", "value", "bar"]
    assert max(map(len, lines)) <= 40
    assert not any(line.startswith("row ") for line in lines)
    assert [line.split()[-3:] for line in lines if "<=" in line] == [["1.50", "<=", "0.4"]]


def test_a_table_that_is_piped_has_a_line_for_each_row(screen: Console) -> None:
    screen.width = 20
    terminal.show_rows("", FIGURES, folded="figure")
    assert text(screen) == [
        "figure                                      value  bar",
        "─────────────────────────────────────────────────────────",
        "duckdb, resnet18: save, classifier changed   1.50  <= 0.4",
        "a hop                                       12.25",
        "",
    ]


def test_no_rows_are_said_to_be_none(screen: Console) -> None:
    terminal.show_rows("", [])
    terminal.show_rows("Predictions", [])
    assert text(screen) == ["(no rows)", "Predictions (no rows)"]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([0.1, 0.25], ["0.10", "0.25"]),
        ([1e-5, 0.1], ["1e-05", "0.1"]),
        ([1.0, None], ["1", ""]),
        ([float("nan"), 0.5], ["nan", "0.5"]),
        ([{"name": "sgd", "momentum": 0.9}, "adam"], ["sgd momentum=0.9", "adam"]),
        ([True, 2], ["True", "2"]),
    ],
)
def test_values_as_text(values: list[object], shown: list[str]) -> None:
    assert terminal._texts(values) == shown


def test_markup_in_data_is_shown_as_it_is(screen: Console) -> None:
    terminal.show_rows("[bold]", [{"[red]": "[/]"}])
    assert text(screen)[0] == "[bold]"
    assert "[red]" in text(screen)[1] and "[/]" in text(screen)[3]


def board(**changed: object) -> dict[str, object]:
    """Return a row of a leaderboard."""
    row: dict[str, object] = dict.fromkeys(
        ("validation_loss", "training_loss", "objective", "error", "metric")
    )
    row |= {"rank": 1, "candidate_id": 7, "config": {"architecture.hidden": [8]}}
    row |= {"best_epoch": 0, "total_s": 1.5, "status": "trained"}
    return row | changed


def test_a_leaderboard_shows_the_metric_of_its_run(screen: Console) -> None:
    terminal.show_leaderboard([board(metric="f1", objective=0.5, validation_loss=0.25)])
    assert text(screen)[1].split() == [
        "rank",
        "candidate",
        "hidden",
        "f1",
        "loss",
        "epoch",
        "seconds",
    ]
    assert text(screen)[3].split() == ["1", "7", "[8]", "0.5", "0.25", "0", "1.5"]


@pytest.mark.parametrize(
    ("row", "titles"),
    [
        (board(metric="loss", objective=0.5, validation_loss=0.5), "loss epoch seconds"),
        (board(training_loss=0.5, best_epoch=None), "loss seconds"),
        (board(training_loss=0.5, status="stopped"), "loss epoch seconds status"),
        (board(metric="auc", best_epoch=None, status="failed", error="x"), "seconds status error"),
    ],
)
def test_a_leaderboard_shows_what_there_is(
    screen: Console, row: dict[str, object], titles: str
) -> None:
    terminal.show_leaderboard([row])
    assert text(screen)[1].split() == ["rank", "candidate", "hidden", *titles.split()]


def test_a_leaderboard_shows_configurations_of_different_keys(screen: Console) -> None:
    terminal.show_leaderboard([board(), board(config={"lr": 0.5})])
    assert text(screen)[1].split() == ["rank", "candidate", "hidden", "lr", "epoch", "seconds"]
    assert text(screen)[4].split() == ["1", "7", "0.5", "0", "1.5"]


def test_checks_are_lines_with_what_to_do_below(screen: Console) -> None:
    terminal.show_checks(
        [
            Check(name="schema", ok=True, detail="up to date"),
            Check(name="rights", ok=False, detail="none [at all]", mend="Run `mmdb install`."),
        ]
    )
    assert text(screen) == [
        "ok    schema  up to date",
        "FAIL  rights  none [at all]",
        "      Run `mmdb install`.",
    ]


def test_a_terminal_obeys_nothing_that_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    console = SafeConsole(file=StringIO(), width=60)
    monkeypatch.setattr(terminal, "console", console)
    terminal.show_rows("", [{"note": "a\x1b[2Jb\x9b31mc\u202ed\re"}])
    assert "".join(text(console)[2:]) == "a␛[2Jb�31mc�d␍e"


def test_a_workers_log_has_a_line_for_each_thing_said(capsys: pytest.CaptureFixture[str]) -> None:
    service._say("x\nmine: finished\x1b[2J: finished")
    assert capsys.readouterr().err == "x mine: finished␛[2J: finished\n"


def test_what_a_command_prints_for_machines_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = make_dataclass("Found", ["value", "hash"])(math.nan, b"ab")
    assert models._done(found, True, "") == 0
    told = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert told == {"value": "NaN", "hash": r"\x6162"}
