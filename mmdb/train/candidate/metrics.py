"""Metrics by name, computed in float64 from a module's raw outputs.

A function takes the outputs and the labels of one target: (n, classes) and int64 (n,), (n,) and
(n,), or (n, labels) and 0 or 1 in (n, labels). It returns NaN where the metric is not defined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mmdb.data.decoding import Target, Task

Compute = Callable[..., float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric and which way is better."""

    maximize: bool
    by_task: Mapping[Task, Compute]
    arguments: frozenset[str] = frozenset()


def accuracy(output: Tensor, y: Tensor) -> float:
    """Return the share of rows whose largest output is their class's."""
    return float((output.argmax(-1) == y).double().mean())


def top_k(output: Tensor, y: Tensor, k: int = 5) -> float:
    """Return the share of rows with fewer than k outputs above their class's."""
    own = output.gather(-1, y.unsqueeze(-1))
    return float(((output > own).sum(-1) < k).double().mean())


def _counts(output: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return true positives, predicted and present rows of each class, float64 (classes,)."""
    size, guess = output.shape[-1], output.argmax(-1)
    hits = torch.bincount(y[guess == y], minlength=size)
    guessed, present = torch.bincount(guess, minlength=size), torch.bincount(y, minlength=size)
    return hits.double(), guessed.double(), present.double()


def _mean_where(values: Tensor, known: Tensor) -> float:
    """Return the mean of the values that are known; NaN of none."""
    return float(values[known].mean()) if known.any() else math.nan


def _share(part: Tensor, whole: Tensor) -> Tensor:
    """Return part / whole, 0 where the whole is 0."""
    return torch.where(whole > 0, part / whole.clamp(min=1), 0.0)


def balanced_accuracy(output: Tensor, y: Tensor) -> float:
    """Return the mean recall of the classes that have rows."""
    hits, _, present = _counts(output, y)
    return _mean_where(_share(hits, present), present > 0)


def precision(output: Tensor, y: Tensor) -> float:
    """Return the mean over the classes seen or guessed; 0 for one that is never guessed."""
    hits, guessed, present = _counts(output, y)
    return _mean_where(_share(hits, guessed), guessed + present > 0)


def recall(output: Tensor, y: Tensor) -> float:
    """Return the mean over the classes seen or guessed; 0 for one that has no rows."""
    hits, guessed, present = _counts(output, y)
    return _mean_where(_share(hits, present), guessed + present > 0)


def f1(output: Tensor, y: Tensor) -> float:
    """Return the mean over the classes seen or guessed of 2 hits / (guessed + present)."""
    hits, guessed, present = _counts(output, y)
    return _mean_where(_share(2 * hits, guessed + present), guessed + present > 0)


def log_loss(output: Tensor, y: Tensor) -> float:
    """Return the mean negative logarithm of the probability given to the rows' classes."""
    return float(torch.nn.functional.cross_entropy(output.double(), y))


def area(scores: Tensor, positive: Tensor) -> float:
    """Return the area under the ROC curve: P(a positive scores higher) + half of P(equal).

    Args:
        scores: (n,). positive: bool (n,).
    Returns:
        NaN where all rows are positive, or none.
    Source: Hanley and McNeil 1982: it is the Mann-Whitney statistic, by mean ranks of ties.
    """
    found = int(positive.sum())
    others = len(positive) - found
    if not found or not others:
        return math.nan
    _, group, sizes = torch.unique(scores, return_inverse=True, return_counts=True)
    last = sizes.double().cumsum(0)  # rank of the last of each group of ties, from 1
    ranks = (last - (sizes.double() - 1) / 2)[group]
    return (float(ranks[positive].sum()) - found * (found + 1) / 2) / (found * others)


def auc(output: Tensor, y: Tensor) -> float:
    """Return the area for two classes; for more the mean of each class against the rest.

    Classes that no row has are left out.
    """
    if output.shape[-1] == 2:
        return area((output[:, 1] - output[:, 0]).double(), y == 1)
    chances = output.double().softmax(-1)
    return _mean_area(chances, torch.nn.functional.one_hot(y, output.shape[-1]).bool())


def _mean_area(scores: Tensor, positive: Tensor) -> float:
    areas = [area(scores[:, k], positive[:, k]) for k in range(scores.shape[-1])]
    known = [value for value in areas if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def mse(output: Tensor, y: Tensor) -> float:
    """Return the mean squared error."""
    return float((output.double() - y.double()).square().mean())


def rmse(output: Tensor, y: Tensor) -> float:
    """Return the root of the mean squared error."""
    return float((output.double() - y.double()).square().mean().sqrt())


def mae(output: Tensor, y: Tensor) -> float:
    """Return the mean absolute error."""
    return float((output.double() - y.double()).abs().mean())


def mape(output: Tensor, y: Tensor) -> float:
    """Return the mean absolute error as a share of the label; NaN where a label is 0."""
    if not y.all():
        return math.nan
    return float(((output.double() - y.double()) / y.double()).abs().mean())


def r2(output: Tensor, y: Tensor) -> float:
    """Return 1 - squared error / squared deviation from the mean; NaN for equal labels."""
    true = y.double()
    spread = (true - true.mean()).square().sum()
    return float(1 - (output.double() - true).square().sum() / spread) if spread > 0 else math.nan


def _decided(output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return which labels are guessed (probability above one half) and which are true, bool."""
    return output > 0, y > 0.5


def exact_match(output: Tensor, y: Tensor) -> float:
    """Return the share of rows of which every label is right."""
    guess, true = _decided(output, y)
    return float((guess == true).all(-1).double().mean())


def hamming(output: Tensor, y: Tensor) -> float:
    """Return the share of labels that are wrong."""
    guess, true = _decided(output, y)
    return float((guess != true).double().mean())


def _label_counts(output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return 2 hits, and guessed plus present rows, of each label, float64 (labels,)."""
    guess, true = _decided(output, y)
    both = guess.double().sum(0) + true.double().sum(0)
    return 2 * (guess & true).double().sum(0), both


def f1_macro(output: Tensor, y: Tensor) -> float:
    """Return the mean F1 of the labels; 0 for one that is neither present nor guessed."""
    return float(_share(*_label_counts(output, y)).mean())


def f1_micro(output: Tensor, y: Tensor) -> float:
    """Return F1 over all labels of all rows together."""
    hits, both = _label_counts(output, y)
    return float(_share(hits.sum(), both.sum()))


def label_log_loss(output: Tensor, y: Tensor) -> float:
    """Return the mean negative logarithm of the probability given to what each label is."""
    loss = torch.nn.functional.binary_cross_entropy_with_logits
    return float(loss(output.double(), y.double()))


def label_auc(output: Tensor, y: Tensor) -> float:
    """Return the mean area of the labels; those that all rows have, or none, are left out."""
    return _mean_area(output.double(), y > 0.5)


def _only(task: Task, compute: Compute, *, maximize: bool) -> Metric:
    return Metric(maximize=maximize, by_task={task: compute})


METRICS: dict[str, Metric] = {
    "accuracy": _only("classification", accuracy, maximize=True),
    "balanced_accuracy": _only("classification", balanced_accuracy, maximize=True),
    "f1": _only("classification", f1, maximize=True),
    "precision": _only("classification", precision, maximize=True),
    "recall": _only("classification", recall, maximize=True),
    "top_k": Metric(maximize=True, by_task={"classification": top_k}, arguments=frozenset({"k"})),
    "auc": Metric(maximize=True, by_task={"classification": auc, "multilabel": label_auc}),
    "log_loss": Metric(
        maximize=False, by_task={"classification": log_loss, "multilabel": label_log_loss}
    ),
    "rmse": _only("regression", rmse, maximize=False),
    "mse": _only("regression", mse, maximize=False),
    "mae": _only("regression", mae, maximize=False),
    "mape": _only("regression", mape, maximize=False),
    "r2": _only("regression", r2, maximize=True),
    "exact_match": _only("multilabel", exact_match, maximize=True),
    "hamming": _only("multilabel", hamming, maximize=False),
    "f1_macro": _only("multilabel", f1_macro, maximize=True),
    "f1_micro": _only("multilabel", f1_micro, maximize=True),
}

#: Recorded whatever the options say; the first is a run's objective where they name none.
DEFAULTS: dict[Task, tuple[str, ...]] = {
    "classification": ("accuracy",),
    "regression": ("rmse", "mae"),
    "multilabel": ("f1_macro", "hamming"),
}


def metrics_of(target: Target) -> dict[str, Metric]:
    """Return the metrics of a target's task by name."""
    return {name: metric for name, metric in METRICS.items() if target.task in metric.by_task}
