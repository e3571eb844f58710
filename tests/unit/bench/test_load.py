"""The load bench's arithmetic: when requests begin, what counts, and what is refused."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from itertools import pairwise
from statistics import mean

import pytest

from mmdb.api import connect
from mmdb.bench.load import Load, Memory, bench_load, session_bytes
from mmdb.bench.load_clients import Answers, arrivals, percentile, request
from mmdb.cli import main
from mmdb.errors import InvalidInput, ModelNotFound


def test_requests_begin_at_the_rate_and_are_drawn_anew_for_each_seed() -> None:
    times = list(arrivals(50.0, 200.0, seed=1))
    gaps = [b - a for a, b in pairwise(times)]
    assert len(times) / 200.0 == pytest.approx(50.0, rel=0.05)
    assert min(gaps) > 0 and times[-1] < 200.0
    # The gaps of a Poisson process vary by their mean.
    assert mean((gap - 0.02) ** 2 for gap in gaps) ** 0.5 == pytest.approx(0.02, rel=0.1)
    assert times == list(arrivals(50.0, 200.0, seed=1)) != list(arrivals(50.0, 200.0, seed=2))
    assert list(arrivals(0.0, 200.0, seed=1)) == []


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 50.0), (0.95, 95.0), (0.99, 99.0), (1.0, 100.0)]
)
def test_a_percentile_is_a_value_that_was_measured(share: float, expected: float) -> None:
    assert percentile([float(k) for k in range(100, 0, -1)], share) == expected
    assert percentile([3.0], share) == 3.0
    assert math.isnan(percentile([], share))


def test_waiting_for_the_request_before_counts_from_when_it_was_to_begin() -> None:
    answers, begin = Answers(), time.perf_counter()

    def starts() -> Iterator[float]:
        yield begin - 2.0
        yield begin - 1.0

    request(lambda: None, starts(), answers)
    assert answers.latencies_ms[0] >= 2_000 and answers.latencies_ms[1] >= 1_000
    assert answers.late_ms[0] >= 2_000 and answers.late_ms[1] >= 1_000


def test_a_request_that_fails_is_an_error_and_has_no_time() -> None:
    answers, turns = Answers(), iter([True, False])

    def ask() -> None:
        if next(turns):
            raise ModelNotFound("There is no model 'x'.")

    request(ask, iter([0.0, 0.0]), answers)
    assert answers.errors == ["ModelNotFound: There is no model 'x'."]
    assert len(answers.latencies_ms) == 1


def test_growth_is_that_of_the_last_look_over_the_first() -> None:
    memory = Memory([])
    memory.first, memory.last = {1: 100, 2: 300, 3: 50}, {1: 110, 2: 310, 3: 90}
    assert memory.growth([1, 2]) == pytest.approx(0.05)
    assert memory.megabytes([1, 2]) == pytest.approx(420e-6)
    assert memory.growth([4]) is None


def test_a_process_that_is_gone_has_no_bytes() -> None:
    assert session_bytes(2**22 + 1) is None


def test_kinds_of_clients_that_there_are_none_of_are_left_out() -> None:
    share = Load(clients=3, rate=9.0, readers=0)
    assert [(c.kind, c.clients, c.rate) for c in share.crowds] == [
        ("predict", 3, 9.0),
        ("save", 2, 0.5),
    ]
    assert len({c.seed for c in share.crowds}) == 2


def test_a_file_of_one_process_is_not_measured(duckdb_url: str) -> None:
    with connect(duckdb_url) as db:
        with pytest.raises(InvalidInput, match="a DuckDB file belongs to one"):
            list(bench_load([db], Load()))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["load", "--minutes", "0"], "--minutes: it is above 0"),
        (["load", "--rate", "inf"], "--rate: it is above 0"),
        (["load", "--clients", "0"], "--clients: it is 1 or more"),
        (["load", "--workers", "-1"], "--workers: it is 0 or more"),
    ],
)
def test_wrong_options_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["bench", *arguments])
    assert said in capsys.readouterr().err


def test_options_of_load_are_not_of_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "ingest", "--minutes", "1"]) == 2
    assert "--minutes is of the bench load" in capsys.readouterr().err
