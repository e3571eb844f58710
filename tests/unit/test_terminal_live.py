"""A training as terminals of all sizes show it, and as it is told where there is none."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console

from mmdb import cli
from mmdb.terminal.live_view import TrainingView, bar, cells_of
from mmdb.terminal.training import training_watch
from mmdb.train.values.seeds import VALIDATION
from mmdb.train.watch import Snapshot, Watch, WorkerView, WorkSegment
from tests.watched import watched


def training(candidates: int = 3, workers: int = 2) -> Watch:
    """Return a watch of a run that began at 0, with two epochs of candidate 10 behind it."""
    watch = Watch()
    watch.begin(watched("search", metric="accuracy", epochs=4, visits=2))
    for ordinal in range(candidates):
        config = {"lr": 0.1 / (ordinal + 1), "batch_size": 32, "architecture.hidden": [ordinal]}
        watch.candidate("search", ordinal, config, candidate_id=10 + ordinal)
    for k in range(workers):
        watch.worker(f"mmdb worker {k}", node="here", device="cpu")
    for epoch, value in enumerate((0.5, 0.25)):
        for part in (0, VALIDATION):
            begin = 20.0 * epoch + (0 if part == 0 else 10)
            watch.hop_started("search", "mmdb worker 0", 0, epoch, part, begin)
            watch.hop_done("mmdb worker 0", begin + 10, value if part else None)
    watch.hop_started("search", "mmdb worker 1", 1, 0, 0, 30.0)
    return watch


def drawn(snapshot: Snapshot, width: int, height: int, *, color: bool = False) -> list[str]:
    """Return the lines of the view, without white space at their ends."""
    file = StringIO()
    console = Console(
        file=file,
        width=width,
        height=height,
        force_terminal=True,
        color_system="truecolor" if color else None,
        legacy_windows=False,
    )
    console.print(TrainingView(snapshot))
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_the_view_of_a_run() -> None:
    watch = training()
    watch.failed("search", 2, "NotANumber: the loss is nan\nafter 3 steps", 39.0)
    lines = drawn(watch.snapshot(40.0), 80, 24)
    text = "\n".join(lines)
    assert lines[0].startswith("search  mop · 4 epochs") and lines[0].endswith("0:40")
    assert lines[1].endswith("4/16 hops · 0.1 hops/s · 70 s left")
    assert lines[2] == "3 candidates  ▸ 1 training  · 1 waiting  ✗ 1 failed"
    assert lines[3] == "best accuracy 0.500  candidate 10 after 1 epoch   lr=0.1 hidden=[0]"
    assert lines[5].split() == ["epochs", "accuracy", "best", "lr", "hidden"]
    assert lines[6] == "10 ·  ━━━━━───── 2/4       0.250    0.500  0.1      [0]"
    assert lines[7].startswith("11 ▸") and lines[8].startswith("12 ✗")
    assert "batch_size" not in text  # it is the same for all
    assert "✗ candidate 12: NotANumber: the loss is nan after 3 steps" in lines
    (scale,) = (line for line in lines if "-60 s" in line)
    assert scale.index("-60 s") == lines[10].index("worker 0") + len("worker 0") + 2


@pytest.mark.parametrize("width", [20, 40, 59, 60, 100, 300])
@pytest.mark.parametrize("height", [8, 14, 24, 60])
@pytest.mark.parametrize("color", [True, False])
def test_the_view_fits_any_terminal(width: int, height: int, color: bool) -> None:
    watch = training(candidates=30, workers=12)
    watch.failed("search", 29, "a long message " * 30, 39.0)
    lines = drawn(watch.snapshot(40.0), width, height, color=color)
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    assert len(plain) < height and max(map(len, plain)) <= width
    assert plain[0].startswith("search"[: width - 5])
    if height == 60:
        assert any("29" in line for line in plain) and any(line[:1] == "✗" for line in plain)


def test_a_small_terminal_says_how_many_it_leaves_out() -> None:
    text = "\n".join(drawn(training(candidates=30, workers=12).snapshot(40.0), 80, 24))
    assert "and 22 more\n" in text and "and 7 more workers" in text
    labels = re.findall(r"^(\d\d) [·▸]", text, re.M)
    assert labels == [str(10 + k) for k in range(8)]


def test_the_view_before_anything_has_begun() -> None:
    assert drawn(Watch().snapshot(0.0), 80, 24) == ["starting workers"]
    watch = Watch()
    watch.begin(watched("r"))
    watch.candidate("r", 0, {"lr": 1})
    lines = drawn(watch.snapshot(0.0), 80, 24)
    assert lines[1].endswith("0/1 hops") and "starting workers" in lines
    assert not any("best" in line for line in lines)


# -- the bars of the workers --------------------------------------------------


def segment(begin: float, end: float | None, candidate: int = 0, part: int = 0) -> WorkSegment:
    return WorkSegment(
        run="r", candidate=candidate, label=candidate, epoch=0, part=part, begin=begin, end=end
    )


def text_of(
    *segments: WorkSegment, now: float = 60.0, width: int = 12, began_at: float = 0.0
) -> str:
    worker = WorkerView(worker="w", node="", device="", up=True, segments=segments, busy=0.0)
    return bar(worker, now, began_at, width, color=False).plain


def test_a_bar_shows_hops_validations_and_idle_time() -> None:
    first, second = segment(0, 20, 7), segment(30, 45, 8)
    assert text_of(first, second) == "7━━━··8━━···"
    assert text_of(first, segment(20, 30, 7), segment(30, None, 7, VALIDATION)) == "7━━━┝━╌╌╌╌╌╌"
    assert text_of(first, now=100.0) == "············"
    assert text_of(segment(70, None), now=80.0, began_at=65.0) == "         ·0━"


def test_a_failed_hop_is_seen_however_short_it_was() -> None:
    failed = WorkSegment(
        run="r", candidate=1, label=1, epoch=0, part=0, begin=21, end=21.5, failed=True
    )
    assert text_of(segment(0, 21), failed, segment(21.5, 60)) == "0━━━✗0━━━━━━"


def test_a_cell_is_that_of_the_longest_hop_in_it_and_idle_if_most_of_it_is() -> None:
    cells = list(cells_of([segment(0, 2, 1), segment(2, 5, 2), segment(5, 7, 3)], 60.0, 0.0, 12))
    assert [cell.segment and cell.segment.candidate for cell in cells] == [2, *[None] * 11]


def test_colours_tell_candidates_and_hatching_validations() -> None:
    worker = WorkerView(
        worker="w",
        node="",
        device="",
        up=True,
        segments=(segment(0, 30, 0), segment(30, 50, 1), segment(50, 60, 1, VALIDATION)),
        busy=1.0,
    )
    text = bar(worker, 60.0, 0.0, 12, color=True)
    assert text.plain == "0     1   ▒▒"
    styles = [str(span.style) for span in text.spans]
    assert len(set(styles)) == 3 and styles[1].split(" on ")[1] == styles[2]


# -- showing ------------------------------------------------------------------


def test_without_a_terminal_there_are_lines_now_and_then() -> None:
    file = StringIO()
    with training_watch(console=Console(file=file, width=40)) as watch:
        watch.begin(watched("r", metric="rmse", maximize=False, epochs=100))
        watch.candidate("r", 0, {"name": "[bold]"})
        for k in range(100):
            watch.hop_started("r", "w", 0, k, VALIDATION, k / 5)
            watch.hop_done("w", (k + 1) / 5, 1.0 / (k + 1))
            watch.tick((k + 1) / 5)
    lines = file.getvalue().splitlines()
    assert 3 <= len(lines) <= 4
    assert lines[0] == "epoch 27/100 of candidate 0: rmse 0.037, best 0.037; 27/100 hops, 15 s left"


def test_in_a_terminal_the_view_is_drawn_in_place_and_goes_away() -> None:
    file = StringIO()
    console = Console(file=file, width=60, height=12, force_terminal=True, legacy_windows=False)
    with training_watch(console=console) as watch:
        watch.begin(watched("r", visits=9))
        watch.candidate("r", 0, {})
        for k in range(9):
            watch.hop_started("r", "w", 0, 0, k, k / 10)
            watch.hop_done("w", (k + 1) / 10)
            watch.tick((k + 1) / 10)
        assert watch.snapshot(1.0).runs[0].hops_done == 9
    printed = file.getvalue()
    assert printed.count("\x1b[?2026h") == printed.count("\x1b[?2026l") == 3  # in 0.9 s, at 4 Hz
    assert re.findall(r"(\d)/9 hops", printed) == ["1", "4", "7", "7"]  # the last to be wiped off
    assert "\x1b[1A" in printed  # the cursor goes up again


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with training_watch(quiet=True) as watch:
        watch.begin(watched("r"))
        watch.tick(1.0)
    assert capsys.readouterr().out == ""


def test_quiet_and_json_are_not_given_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "r", "--quiet", "--json", "--database", "duckdb://"]) == 2
    assert "--json shows the end alone" in capsys.readouterr().err
