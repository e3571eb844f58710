"""Experiment `judge`: whether what mmdb says of models is right, how sure it is, and how fast."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from time import perf_counter
from typing import Any, cast

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from mmdb.api import Database
from mmdb.bench.figures import Figure, at_least, at_most
from mmdb.bench.workload import BenchShare, make_points
from mmdb.data.decoding import Task
from mmdb.judge.importance import importances
from mmdb.judge.influence import influences
from mmdb.judge.resampling import CONFIDENCE, differences, intervals, mcnemar
from mmdb.train.candidate.metrics import METRICS, Compute
from tests.unit.train import test_metrics_random as cases

PARTS = ("metrics", "intervals", "importance", "flips", "speed")
_ROWS = 200  # of a drawn dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeShare(BenchShare):
    """How much is measured; see `PARTS`."""

    only: Sequence[str] = ()


def bench_judge(databases: list[Database], share: JudgeShare) -> Iterator[Figure]:
    """Measure what needs no database, then speeds on each."""
    parts = share.only or PARTS
    pure = {"metrics": _metrics, "intervals": _intervals, "importance": _importance}
    for name, part in {**pure, "flips": _flips}.items():
        if name in parts:
            yield from part(share)
    for db in databases if "speed" in parts else ():
        yield from _speed(db, share)


def _metrics(share: JudgeShare) -> Iterator[Figure]:
    count, wrong = share.of(200, 3), 0
    for test in (cases.test_classes, cases.test_numbers, cases.test_labels):
        for seed in range(count):
            try:
                test(seed)
            except AssertionError:
                wrong += 1
    yield at_most(f"{3 * count} cases that differ from scikit-learn", [wrong], "", 0)


# -- How sure ----------------------------------------------------------------------


def _classes(random: np.random.Generator, rows: int) -> tuple[Tensor, Tensor]:
    """Return the outputs of a model of two classes, and labels."""
    score = random.normal(size=rows)
    y = random.random(rows) < 1 / (1 + np.exp(-1.5 * score))
    return torch.from_numpy(np.stack([np.zeros(rows), score], 1)), torch.from_numpy(y).long()


def _numbers(random: np.random.Generator, rows: int) -> tuple[Tensor, Tensor]:
    y = random.normal(size=rows)
    return torch.from_numpy(y + random.normal(size=rows) * 0.5), torch.from_numpy(y)


#: How rows are drawn, for each metric whose intervals are counted.
_DRAWN: dict[str, Callable[[np.random.Generator, int], tuple[Tensor, Tensor]]] = {
    "accuracy": _classes,
    "auc": _classes,
    "log_loss": _classes,
    "rmse": _numbers,
    "r2": _numbers,
}


def _intervals(share: JudgeShare) -> Iterator[Figure]:
    count = share.of(1200, 5)  # of fewer, chance alone leaves the bars
    for name, drawn in _DRAWN.items():
        task: Task = "regression" if drawn is _numbers else "classification"
        of = METRICS[name].by_task[task]
        truth = of(*drawn(np.random.default_rng(10**6), share.of(1_000_000, 10_000)))
        held = sum(_holds(of, drawn(np.random.default_rng(k), _ROWS), truth) for k in range(count))
        yield _between(f"intervals of {name} that hold the truth", 100 * held / count, 93, 97)
    called = {"accuracy": 0, "rmse": 0}
    for seed in range(count):
        random = np.random.default_rng(seed)
        right = random.random((2, _ROWS)) < 0.8
        p_value = mcnemar(int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum()))
        called["accuracy"] += p_value < 1 - CONFIDENCE
        wrong = torch.from_numpy(random.normal(size=(2, _ROWS)))
        called["rmse"] += _differ(wrong) < 1 - CONFIDENCE
    for name, times in called.items():
        yield at_most(f"equal models called different by {name}", [100 * times / count], "%", 6)


def _holds(of: Compute, rows: tuple[Tensor, Tensor], truth: float) -> bool:
    output, y = rows
    found = intervals(_ROWS, {"m": of(output, y)}, lambda at: {"m": of(output[at], y[at])})
    return found["m"].low <= truth <= found["m"].high


def _differ(wrong: Tensor) -> float:
    def apart(at: Tensor) -> dict[str, float]:
        first, second = wrong[:, at].square().mean(1).sqrt().tolist()
        return {"rmse": first - second}

    return differences(_ROWS, apart(torch.arange(_ROWS)), apart)["rmse"].p_value


def _between(name: str, value: float, low: float, high: float) -> Figure:
    return Figure(name, value, "%", bar=f"{low:g} to {high:g}", holds=low <= value <= high)


# -- Why ---------------------------------------------------------------------------


def _importance(share: JudgeShare) -> Iterator[Figure]:
    draws = share.of(100, 2)
    found = sum(map(_is_found, range(draws)))
    yield at_least("draws whose 5 of 20 columns come first", [100 * found / draws], "%", 95)


def _is_found(seed: int) -> bool:
    random = np.random.default_rng(seed)
    x = random.normal(size=(400, 20))
    matter = random.choice(20, 5, replace=False)
    weights = np.zeros(20)
    weights[matter] = random.choice([-1, 1], 5) * random.uniform(0.5, 1.5, 5)
    y = torch.from_numpy(x @ weights + random.normal(size=len(x)))
    names = [str(k) for k in range(20)]

    def outputs(values: Mapping[str, Any]) -> tuple[Tensor, ...]:
        return (torch.from_numpy(np.stack([values[name] for name in names], 1) @ weights),)

    def rmse(output: tuple[Tensor, ...], at: Tensor) -> float:
        return float((output[0][at] - y[at]).square().mean().sqrt())

    values = {name: x[:, k] for k, name in enumerate(names)}
    groups = [(name,) for name in names]
    given = importances(values, groups, outputs, rmse, maximize=False, repeats=5, seed=seed)
    ranked = sorted(given, key=lambda one: -one.value)
    return {int(one.columns[0]) for one in ranked[:5]} == set(matter.tolist())


#: Epochs of training: too few to learn wrong labels by heart, and enough.
_EPOCHS = (10, 60)


def _flips(share: JudgeShare) -> Iterator[Figure]:
    """Flip a tenth of the labels, and look for them by what `training_rows` says, in some ways."""
    loaded = {"digits": load_digits(), "breast cancer": load_breast_cancer()}
    for (name, data), epochs in product(loaded.items(), _EPOCHS):
        found = [_flipped(data, seed, epochs) for seed in range(share.of(5, 1))]
        means = {way: float(np.mean([one[way] for one in found])) for way in found[0]}
        for way, value in means.items():
            yield Figure(f"{name}, {epochs} epochs: flipped labels found by {way}", value, "")
        more = means["influence, all asked"] - means["influence, worst asked"]
        yield at_least(f"{name}: found by asking of all, less of the worst", [more], "", 0)
        more = means["loss, 5 epochs"] - means["loss"]
        yield at_least(f"{name}: found by the loss of 5 epochs, less of one", [more], "", -0.02)


def _flipped(data: Any, seed: int, length: int) -> dict[str, float]:
    """Return the share of flipped labels among as many rows as there are, by way."""
    random = np.random.default_rng(seed)
    torch.manual_seed(seed)
    x = torch.from_numpy(StandardScaler().fit_transform(data.data)).float()
    y = data.target.copy()
    classes, order = int(y.max()) + 1, random.permutation(len(x))
    asked, trained = order[: len(x) // 4], order[len(x) // 4 :]
    is_flipped = random.random(len(trained)) < 0.1
    y[trained[is_flipped]] += random.integers(1, classes, is_flipped.sum())
    labels = torch.from_numpy(y % classes)
    module = nn.Sequential(nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, classes))
    optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)
    epochs = []
    for _ in range(length):
        for at in torch.from_numpy(random.permutation(trained)).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x[at]), labels[at]).backward()
            optimizer.step()
        epochs.append(copy.deepcopy(module))
    losses = nn.functional.cross_entropy(module(x[asked]), labels[asked], reduction="none")
    worst = asked[losses.topk(math.ceil(len(asked) / 20)).indices.numpy()]

    def told(rows: np.ndarray, states: Sequence[nn.Module]) -> tuple[Tensor, Tensor]:
        given = ({"": x[rows]}, labels[rows]), ({"": x[trained]}, labels[trained])
        each = [influences(m, _on_the_only(m), "classification", *given) for m in states]
        products, own = zip(*each, strict=True)
        return -sum(products[1:], products[0]), sum(own[1:], own[0])

    def share(scores: Tensor) -> float:
        most = scores.argsort(descending=True)[: int(is_flipped.sum())]
        return float(is_flipped[most].mean())

    one, five = epochs[-1:], epochs[length // 5 - 1 :: length // 5]
    return {
        "influence, worst asked": share(told(worst, one)[0]),
        "influence, all asked": share(told(asked, one)[0]),
        "influence, all asked, 5 epochs": share(told(asked, five)[0]),
        "loss": share(told(asked, one)[1]),
        "loss, 5 epochs": share(told(asked, five)[1]),
    }


def _on_the_only(module: nn.Module) -> Callable[[Mapping[str, Tensor]], Tensor]:
    return lambda arrays: cast("Tensor", module(arrays[""]))


# -- How fast ----------------------------------------------------------------------


def _speed(db: Database, share: JudgeShare) -> Iterator[Figure]:
    rows, few = share.of(1_000_000, 2_000), share.of(100_000, 500)
    make_points(db, "judged", rows, 32, 10)
    db.sql("CREATE TABLE judged_few AS SELECT * FROM judged LIMIT 2000")
    db.create_dataset("judged", "SELECT * FROM judged_few", label="y")
    for name in ("mlp(hidden=[64, 32])", "tabular"):
        db.create_run(name.partition("(")[0], dataset="judged", architecture=name, epochs=1)
        db.run(name.partition("(")[0]).train(workers=1)
    query = "SELECT row_number() OVER () AS id, * FROM judged"
    into, matrix = [], []
    for _ in range(3):
        db.sql("DROP TABLE IF EXISTS judged_into")
        into.append(_seconds(lambda: db.predict_into("mlp", query, "judged_into", key="id")))
        matrix.append(_seconds(lambda: db.confusion_matrix("mlp", query)))
    ratio = min(matrix) / min(into)
    yield at_most(f"confusion matrix of {rows:,} rows / predict_into", [ratio], "x", 1.1)
    yield Figure(f"predict_into of {rows:,} rows", rows / min(into), "rows/s")
    some = f"{query} LIMIT {few}"
    seconds = _seconds(lambda: db.explain_predict("tabular", some, key="id"))
    yield at_most(f"explain_predict of {few:,} rows of 32 columns", [seconds], "s", 60)
    for table in ("judged", "judged_few", "judged_into"):
        db.sql(f"DROP TABLE {table}")


def _seconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start
