"""What is said of rows that moved is what scipy says of them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.special import kolmogorov as scipy_kolmogorov
from scipy.stats import chi2_contingency, ks_2samp

from mmdb.judge.drift import Drift, corrected, kolmogorov, of_numbers, of_texts


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
    if shift in ("category", "unseen", "clean texts"):
        return of_texts(Counter(kinds[:rows].tolist()), Counter(kinds[rows:].tolist()))
    return of_numbers(before, now)


def test_shifts_are_found_and_clean_rows_are_not() -> None:
    random = np.random.default_rng(0)
    for shift in ("mean", "variance", "nulls", "category", "unseen"):
        assert sum(_drawn(random, shift).p_value < 0.01 for _ in range(20)) >= 19, shift
    clean = [
        _drawn(random, shift).p_value for shift in ("clean", "clean texts") for _ in range(100)
    ]
    assert sum(p < 0.01 for p in clean) <= 6


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
