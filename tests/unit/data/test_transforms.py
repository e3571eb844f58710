"""Transforms against scikit-learn's, and against what they promise of rows not seen."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from sklearn.preprocessing import QuantileTransformer, RobustScaler, StandardScaler

from mmdb.data.transform.fitting import check_asked, fit_numbers, fit_texts
from mmdb.data.transform.transform import FittedTransform, Source, date_parts
from mmdb.db.connection import Texts
from mmdb.errors import DataError, InvalidOption

SEEDS = range(20)


def drawn(seed: int) -> np.ndarray:
    """Return numbers of a scale of their own, with ties, some of them NULL."""
    random = np.random.default_rng(seed)
    values = random.normal(random.normal() * 100, 10.0 ** random.integers(-3, 6), 400)
    if seed % 2:
        values = np.round(values / values.std() * 3)
    values[random.random(400) < (seed % 3) * 0.1] = np.nan
    return values


def fitted(
    values: np.ndarray, kind: str, source: Source = "number", **parameters: Any
) -> FittedTransform:
    asked = check_asked("a", source, {"kind": kind, **parameters})
    return fit_numbers("a", source, values, asked)


@pytest.mark.parametrize("seed", SEEDS)
def test_statistics_and_values_are_those_of_scikit_learn(seed: int) -> None:
    values = drawn(seed)
    known = values[~np.isnan(values)]
    fill = np.median(known)
    filled = np.where(np.isnan(values), fill, values)
    column = filled[:, None]

    standard, ours = StandardScaler().fit(column), fitted(values, "standardize")
    assert ours.statistics["fill"] == fill
    assert ours.statistics["mean"] == pytest.approx(standard.mean_[0], rel=1e-9, abs=1e-12)
    assert ours.statistics["deviation"] == pytest.approx(standard.scale_[0], rel=1e-9)
    close(ours, values, standard.transform(column))

    robust, ours = RobustScaler().fit(known[:, None]), fitted(values, "robust")
    assert ours.statistics["median"] == pytest.approx(robust.center_[0], rel=1e-9, abs=1e-12)
    if ours.statistics["scale"] == pytest.approx(robust.scale_[0], rel=1e-9):
        scaled = robust.transform(column)
        close(ours, values, 3 * np.arcsinh(scaled / 3))

    quantile = QuantileTransformer(n_quantiles=33, subsample=None).fit(known[:, None])
    ours = fitted(values, "quantile")
    assert ours.statistics["quantiles"] == pytest.approx(quantile.quantiles_[:, 0], rel=1e-9)
    close(ours, values, quantile.transform(column))

    logs = np.sign(column) * np.log1p(np.abs(column))
    close(fitted(values, "log1p"), values, StandardScaler().fit_transform(logs))


def close(given: FittedTransform, values: np.ndarray, expected: np.ndarray) -> None:
    found = FittedTransform.from_json(json.loads(json.dumps(given.to_json()))).apply(values)
    np.testing.assert_allclose(found[:, :1], expected, rtol=1e-6, atol=1e-6)
    missing = np.isnan(values)
    assert found.shape[1] == 1 + bool(missing.any())
    if missing.any():
        np.testing.assert_array_equal(found[:, 1], missing)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["standardize", "log1p"])
@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e200, 8e307])
def test_numbers_whose_squares_are_no_floats_still_differ(kind: str, size: float) -> None:
    values = size * np.array([-2.0, -1.0, 1.0, 2.0])
    logs = np.copysign(np.log1p(np.abs(values)), values) if kind == "log1p" else values
    scaled = logs / logs[-1]
    close(fitted(values, kind), values, ((scaled - scaled.mean()) / scaled.std())[:, None])


def test_null_is_filled_as_asked() -> None:
    values = np.array([1.0, 2.0, 6.0, np.nan])
    for impute, expected in (("mean", 3.0), ("median", 2.0), (-1, -1.0)):
        assert fitted(values, "standardize", impute=impute).statistics["fill"] == expected


def test_a_column_of_one_value_is_dropped_and_an_unknown_one_too() -> None:
    assert fitted(np.full(5, 3.0), "auto").kind == "drop"
    assert fitted(np.full(5, np.nan), "auto").kind == "drop"
    assert fitted(np.full(5, np.nan), "auto").apply(np.ones(2)).shape == (2, 0)
    with pytest.raises(DataError, match="NULL in every train row"):
        fitted(np.full(5, np.nan), "standardize")


def test_moments_go_round() -> None:
    hours = np.arange(0, 24 * 800, 5) * 3600.0
    given = fitted(hours, "cyclic", "moment")
    assert given.names == (
        *("trend", "sine of year", "cosine of year", "sine of week", "cosine of week"),
        *("sine of day", "cosine of day"),
    )
    (noon, next_noon) = given.apply(np.array([12 * 3600.0, 36 * 3600.0]))
    np.testing.assert_allclose(noon[-2:], [0, -1], atol=1e-6)
    np.testing.assert_allclose(noon[-2:], next_noon[-2:], atol=1e-6)
    days = fitted(np.arange(400) * 86400.0, "cyclic", "moment")
    assert "sine of day" not in days.names
    assert "sine of year" not in days.names  # of which there is one, and a bit
    assert "sine of year" in fitted(np.arange(732) * 86400.0, "cyclic", "moment").names


@pytest.mark.parametrize("seed", range(5))
def test_parts_of_a_moment_are_those_of_the_calendar(seed: int) -> None:
    from datetime import UTC, datetime

    seconds = np.random.default_rng(seed).uniform(-6e10, 2.5e11, 200).round()
    parts = date_parts(seconds)
    for place, second in enumerate(seconds):
        moment = datetime.fromtimestamp(float(second), UTC)
        found = tuple(int(parts[name][place]) for name in parts)
        own = (moment.year, moment.month, moment.day, moment.isoweekday())
        assert found == (*own, moment.hour, moment.minute)


def test_texts_have_codes_by_what_the_train_rows_had() -> None:
    texts = [f"t{number:02}" for number in range(12)]
    given = fit_texts("a", texts, np.array([5, 1, 0, *[2] * 9]), 3, {"kind": "auto"})
    assert given.kind == "index" and given.categories == tuple(texts[:1] + texts[3:])
    assert given.statistics == {"missing": 3, "rare": 1, "kept": 10}
    codes = given.apply([None, "t01", "new", "t00", "t03"])
    assert codes[:, 0].tolist() == [0, 1, 1, 2, 3] and given.codes == 12
    same = given.apply(Texts([None, "new", "t00"], np.array([2, 0, 1, 1])))
    assert same[:, 0].tolist() == [2, 0, 1, 1]


def test_few_texts_have_a_number_each() -> None:
    given = fit_texts("a", ["x", "y"], np.array([4, 4]), 0, {"kind": "auto"})
    assert given.names == ("x", "y")
    assert given.apply(["y", "x", None, "z"]).tolist() == [[0, 1], [1, 0], [0, 0], [0, 0]]
    given = fit_texts("a", ["x"], np.array([4]), 4, {"kind": "auto"})
    assert given.apply([None, "x"]).tolist() == [[0, 1], [1, 0]]


def test_hashed_texts_are_told_apart_by_the_bucket() -> None:
    given = fit_texts("a", ["x"], np.array([1]), 0, check_asked("a", "text", "hash"))
    assert given.codes == 1026
    codes = given.apply([None, *map(str, range(500))])[:, 0]
    assert codes[0] == 0 and codes[1:].min() >= 2 and codes.max() < 1026
    assert len(set(codes.tolist())) > 350


def test_a_text_of_its_own_in_every_row_tells_nothing() -> None:
    texts = [str(number) for number in range(20)]
    with pytest.raises(DataError, match="as many different texts as train rows"):
        fit_texts("a", texts, np.ones(20, np.int64), 0, {"kind": "auto"})


@pytest.mark.parametrize(
    ("source", "asked", "named"),
    [
        ("number", "cyclic", "'cyclic'"),
        ("number", {"kind": "robust", "knots": 4}, "knots"),
        ("number", {"kind": "quantile", "knots": 1}, "knots"),
        ("number", {"kind": "robust", "impute": "mode"}, "impute"),
        ("text", {"kind": "index", "dimension": 0}, "dimension"),
        ("text", 7, "no transform"),
        ("clock", "date", "'date'"),
    ],
)
def test_what_does_not_fit_a_column_is_refused(source: Source, asked: object, named: str) -> None:
    with pytest.raises(InvalidOption, match=named):
        check_asked("a", source, asked)


@pytest.mark.parametrize("count", [0, 2])
def test_pictures_are_scaled_by_channel_though_a_block_has_none(count: int) -> None:
    scale = {"mean": [0.5, 0.25, 0.0], "std": [0.5, 0.5, 2.0]}
    picture = FittedTransform(
        kind="picture", source="picture", parameters=scale, statistics={"shape": [3, 1, 2]}
    )
    found = picture.apply(np.full((count, 6), 255, np.uint8))
    assert found.tolist() == [[1.0, 1.0, 1.5, 1.5, 0.5, 0.5]] * count
    assert found.shape == (count, 6)
