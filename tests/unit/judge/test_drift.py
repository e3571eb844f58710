"""What is said of rows that moved is what scipy says of them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.special import kolmogorov as scipy_kolmogorov
from scipy.special import log_expit, log_softmax
from scipy.stats import chi2_contingency, ks_2samp, norm

from mmdb.judge.drift import (
    Drift,
    corrected,
    errors_of,
    kolmogorov,
    metric_chance,
    of_numbers,
    of_texts,
)
from mmdb.server.drifting import LEAST_PSI, LEVEL


@pytest.mark.parametrize("seed", range(50))
def test_numbers_are_compared_as_by_scipy(seed: int) -> None:
    random = np.random.default_rng(seed)
    before = np.round(random.normal(size=random.integers(20, 2000)), random.integers(0, 6))
    now = np.round(random.normal(random.choice([0, 0.2]), size=random.integers(20, 900)), 1)
    found = of_numbers(before, now)
    wanted = ks_2samp(before, now).statistic
    assert found.distance == pytest.approx(wanted, abs=1e-12)
    weight = np.sqrt(len(before) * len(now) / (len(before) + len(now)))
    assert found.p_value == pytest.approx(min(1, 2 * scipy_kolmogorov(weight * wanted)), abs=1e-9)
    assert (found.nulls_before, found.nulls_now) == (0, 0)


def test_kolmogorovs_distribution_is_scipys() -> None:
    for x in (-1.0, 0.0, 1e-3, 0.02, 0.1, 0.5, 0.999, 1.0, 1.001, 1.7, 3.0, 9.0):
        assert kolmogorov(x) == pytest.approx(scipy_kolmogorov(x), abs=1e-12)


@pytest.mark.parametrize("seed", range(50))
def test_texts_are_compared_as_by_scipy(seed: int) -> None:
    random = np.random.default_rng(seed)
    names = [*"abcdefgh", None]
    shares = random.dirichlet(np.ones(9) * 3)
    drawn = [Counter(names[k] for k in random.choice(9, 3000, p=p)) for p in (shares, shares[::-1])]
    found = of_texts(*drawn)
    table = np.array([[one[name] for name in names] for one in drawn])
    assert found.distance == pytest.approx(jensenshannon(*table, base=2), abs=1e-9)
    assert found.p_value == pytest.approx(chi2_contingency(table).pvalue, abs=1e-9)
    assert found.nulls_now == table[1, -1] / 3000


def _drawn(random: np.random.Generator, shift: str, rows: int = 2000) -> Drift:
    x = random.normal(size=2 * rows)
    before, now = x[:rows], x[rows:]
    kinds = random.choice(["a", "b", "c"], size=2 * rows, p=[0.5, 0.3, 0.2])
    match shift:
        case "mean":
            now = now + 0.3
        case "variance":
            now = now * 1.4
        case "nulls":
            now = np.where(random.random(rows) < 0.1, np.nan, now)
        case "category":
            kinds[rows:] = random.choice(["a", "b", "c"], size=rows, p=[0.4, 0.3, 0.3])
        case "unseen":
            kinds[rows:][random.random(rows) < 0.05] = "d"
        case "correlated number" | "correlated class" | "clean number" | "clean class":
            return _of_labels(random, shift, rows)
    if shift in ("category", "unseen", "clean texts"):
        return of_texts(Counter(kinds[:rows].tolist()), Counter(kinds[rows:].tolist()))
    return of_numbers(before, now)


def _of_labels(random: np.random.Generator, shift: str, rows: int) -> Drift:
    """Return how far errors have moved of a model that was right before, inputs and labels alike.

    Labels hang on two inputs alike, and less on the first, more on the second, after a shift.
    """
    x, noise = random.normal(size=(2 * rows, 2)), random.normal(size=2 * rows)
    y = x.sum(1) / np.sqrt(2) + noise / 2
    if "correlated" in shift:
        y[rows:] = x[rows:] @ [0.6, 0.8] * 0.5 + noise[rows:] * np.sqrt(1.25 - 0.25)
        assert ks_2samp(y[:rows], y[rows:]).pvalue > 1e-4
    score = torch.from_numpy(x.sum(1) / np.sqrt(2))
    if "number" in shift:
        errors = errors_of("regression", score[:, None].float(), torch.from_numpy(y).float())
    else:
        output = torch.stack([-score, score], 1)
        errors = errors_of("classification", output, torch.from_numpy((y > 0).astype(np.int64)))
    return of_numbers(errors[:rows], errors[rows:])


def _is_found(drift: Drift) -> bool:
    return drift.p_value < LEVEL and drift.psi >= LEAST_PSI


def test_shifts_are_found_and_clean_rows_are_not() -> None:
    random = np.random.default_rng(0)
    shifts = ("mean", "variance", "nulls", "category", "unseen")
    for shift in (*shifts, "correlated number", "correlated class"):
        assert sum(_is_found(_drawn(random, shift)) for _ in range(20)) >= 19, shift
    for shift in ("clean", "clean texts", "clean number", "clean class"):
        drawn = [_drawn(random, shift) for _ in range(100)]
        assert sum(one.p_value < LEVEL for one in drawn) <= 5, shift
        assert not any(map(_is_found, drawn)), shift


@pytest.mark.parametrize("seed", range(20))
def test_errors_are_those_of_scipy(seed: int) -> None:
    random = np.random.default_rng(seed)
    output, y = random.normal(size=(300, 4)) * 3, random.integers(4, size=300)
    found = errors_of("classification", torch.from_numpy(output), torch.from_numpy(y))
    assert found == pytest.approx(-log_softmax(output, axis=1)[np.arange(300), y], rel=2**-8)
    marks = random.integers(2, size=(300, 4))
    found = errors_of("multilabel", torch.from_numpy(output), torch.from_numpy(marks).float())
    wanted = -np.where(marks, log_expit(output), log_expit(-output)).mean(1)
    assert found == pytest.approx(wanted, rel=2**-8)


@pytest.mark.parametrize("seed", range(20))
def test_a_metric_is_compared_as_by_scipy(seed: int) -> None:
    """A mean of fifty rows, each of which is left out in turn, has the variance of its rows."""
    random = np.random.default_rng(seed)
    values, count = random.normal(size=50), int(random.integers(5, 45))
    apart = values[count:].mean() - values[:count].mean()
    both = torch.from_numpy(values)
    found = metric_chance((count, 50 - count), apart, lambda at: float(both[at].mean()))
    error = np.std(values, ddof=1) * np.sqrt(1 / count + 1 / (50 - count))
    assert found == pytest.approx(2 * norm.sf(abs(apart) / error), abs=1e-9)


def test_a_metric_that_moved_is_found_and_one_that_has_not_is_none() -> None:
    random = np.random.default_rng(0)

    def chance(second: float) -> float:
        right = np.concatenate([random.random(800) < 0.9, random.random(3000) < second])
        apart = float(right[800:].mean() - right[:800].mean())
        return metric_chance((800, 3000), apart, lambda at: float(right[at.numpy()].mean()))

    assert sum(chance(0.84) < LEVEL for _ in range(100)) >= 95
    assert sum(chance(0.9) < LEVEL for _ in range(100)) <= 5
    assert metric_chance((5, 5), 0.0, lambda at: 1.0) == 1
    assert metric_chance((5, 5), 0.1, lambda at: None) == 1
    assert metric_chance((0, 1), 0.1, lambda at: 1.0) == 1


def test_the_index_is_that_of_its_definition() -> None:
    found = of_texts({"a": 80, "b": 20}, {"a": 60, "b": 40})
    assert found.psi == pytest.approx(-0.2 * np.log(0.6 / 0.8) + 0.2 * np.log(0.4 / 0.2))
    before = np.arange(1000.0)
    found = of_numbers(before, np.concatenate([before[:900], before[:100]]))
    assert found.psi == pytest.approx(0.1 * np.log(2) + (0.0001 - 0.1) * np.log(0.001))


def test_rows_that_are_not_there_or_all_alike_say_nothing() -> None:
    nothing, nulls, ones = np.array([]), np.full(50, np.nan), np.ones(50)
    for before, now in ((ones, nothing), (ones, ones), (nulls, nulls), (nothing, nothing)):
        found = of_numbers(before, now)
        assert found.p_value == 1 and np.isfinite(found).all()
    assert of_numbers(ones, nulls).p_value < 1e-6
    assert of_texts({"a": 5}, {}).p_value == 1 and of_texts({}, {}).distance == 0
    assert of_texts({"a": 500}, {"b": 500}).unseen == 1


def test_many_tests_are_corrected() -> None:
    assert corrected([]) == [] and corrected([0.5]) == [0.5]
    assert corrected([0.04, 0.01, 0.9]) == pytest.approx([0.08, 0.03, 0.9])
