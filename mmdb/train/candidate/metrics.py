"""Metrics by name, computed in float64 from a module's raw outputs.

A function takes the outputs and the labels of one target: (n, classes) and int64 (n,), (n,) and
(n,), or (n, labels) and 0 or 1 in (n, labels); of next tokens the logarithms of the probabilities
of the labels and these, both (n, length), as outputs would be too many; and float64 weights of the
rows (n,), None for equal ones. It returns NaN where the metric is not defined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mmdb.data.decoding import IGNORED, Target, Task

Compute = Callable[..., float]
Weight = Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """A metric and which way is better."""

    maximize: bool
    by_task: Mapping[Task, Compute]
    arguments: frozenset[str] = frozenset()


def _mean(values: Tensor, weight: Weight) -> float:
    """Return the mean over rows, and over what each has, (n, ...)."""
    values = values.double()
    if weight is None or not len(values):
        return float(values.mean())
    return float((values.reshape(len(values), -1).mean(1) * weight).sum() / weight.sum())


def _mean_where(values: Tensor, known: Tensor) -> float:
    """Return the mean of the values that are known; NaN of none."""
    return float(values[known].mean()) if known.any() else math.nan


def _share(part: Tensor, whole: Tensor) -> Tensor:
    """Return part / whole, 0 where the whole is 0."""
    return torch.where(whole > 0, part / torch.where(whole > 0, whole, 1.0), 0.0)


# -- Classes: from which one is guessed --------------------------------------------


def confusion(output: Tensor, y: Tensor, weight: Weight = None) -> Tensor:
    """Return the rows of each class, by what is guessed of them, float64 (classes, guesses)."""
    size = output.shape[-1]
    cells = torch.bincount(
        y * size + output.argmax(-1), None if weight is None else weight, minlength=size * size
    )
    return cells.double().reshape(size, size)


def _counts(output: Tensor, y: Tensor, weight: Weight) -> tuple[Tensor, Tensor, Tensor]:
    """Return true positives, predicted and present rows of each class, float64 (classes,)."""
    table = confusion(output, y, weight)
    return table.diagonal(), table.sum(0), table.sum(1)


def accuracy(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the share of rows whose largest output is their class's."""
    return _mean(output.argmax(-1) == y, weight)


def top_k(output: Tensor, y: Tensor, weight: Weight = None, k: int = 5) -> float:
    """Return the share of rows with fewer than k outputs above their class's."""
    own = output.gather(-1, y.unsqueeze(-1))
    return _mean((output > own).sum(-1) < k, weight)


def balanced_accuracy(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the mean recall of the classes that have rows."""
    hits, _, present = _counts(output, y, weight)
    return _mean_where(_share(hits, present), present > 0)


def precision(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the mean over the classes seen or guessed; 0 for one that is never guessed."""
    hits, guessed, present = _counts(output, y, weight)
    return _mean_where(_share(hits, guessed), guessed + present > 0)


def recall(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the mean over the classes seen or guessed; 0 for one that has no rows."""
    hits, guessed, present = _counts(output, y, weight)
    return _mean_where(_share(hits, present), guessed + present > 0)


def f1(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the mean over the classes seen or guessed of 2 hits / (guessed + present)."""
    hits, guessed, present = _counts(output, y, weight)
    return _mean_where(_share(2 * hits, guessed + present), guessed + present > 0)


def f1_weighted(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the mean F1 of the classes, each weighted by its rows."""
    hits, guessed, present = _counts(output, y, weight)
    return float((_share(2 * hits, guessed + present) * present).sum() / present.sum())


def jaccard(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the mean over the classes seen or guessed of hits / rows that are either."""
    hits, guessed, present = _counts(output, y, weight)
    return _mean_where(_share(hits, guessed + present - hits), guessed + present > 0)


def mcc(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return Matthews' correlation of class and guess; 0 where one of them is always the same.

    Source: Gorodkin 2004, the coefficient of several classes.
    """
    hits, guessed, present = _counts(output, y, weight)
    rows = present.sum()
    both = hits.sum() * rows - (guessed * present).sum()
    spread = (rows**2 - guessed.square().sum()) * (rows**2 - present.square().sum())
    return float(both / spread.sqrt()) if spread > 0 else 0.0


def kappa(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return Cohen's kappa: the share that is right beyond what is by chance; NaN for one class."""
    hits, guessed, present = _counts(output, y, weight)
    rows = present.sum()
    chance = (guessed * present).sum() / rows**2
    return float((hits.sum() / rows - chance) / (1 - chance)) if chance < 1 else math.nan


# -- Classes and labels: from how probable each is ---------------------------------


def log_loss(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the mean negative logarithm of the probability given to the rows' classes."""
    losses = torch.nn.functional.cross_entropy(output.double(), y, reduction="none")
    return _mean(losses, weight)


def brier(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the mean squared error of the probabilities: of two classes the second's alone."""
    chances = output.double().softmax(-1)
    wrong = (chances - torch.nn.functional.one_hot(y, output.shape[-1])).square()
    return _mean(wrong[:, 1] if output.shape[-1] == 2 else wrong.sum(-1), weight)


def ranked(scores: Tensor, positive: Tensor, weight: Weight = None) -> tuple[Tensor, ...]:
    """Return the different scores, greatest first, with the positive and other rows of each.

    Args:
        scores: (n,). positive: bool (n,).
    Returns:
        Scores and two times float64 (different scores,), which are sums of weights.
    """
    different, group = torch.unique(scores, return_inverse=True)
    weight = torch.ones(len(scores), dtype=torch.float64) if weight is None else weight
    found = (torch.bincount(group, weight * part, len(different)) for part in (positive, ~positive))
    return different.flip(0), *(part.flip(0) for part in found)


def area(scores: Tensor, positive: Tensor, weight: Weight = None) -> float:
    """Return the area under the ROC curve: P(a positive scores higher) + half of P(equal).

    Args:
        scores: (n,). positive: bool (n,).
    Returns:
        NaN where all rows are positive, or none.
    Source: Hanley and McNeil 1982: it is the Mann-Whitney statistic.
    """
    _, hits, others = ranked(scores, positive, weight)
    whole = hits.sum() * others.sum()
    below = others.sum() - others.cumsum(0) + others / 2
    return float((hits * below).sum() / whole) if whole > 0 else math.nan


def average(scores: Tensor, positive: Tensor, weight: Weight = None) -> float:
    """Return the mean precision over the positive rows, each at its score; NaN for none of them."""
    _, hits, others = ranked(scores, positive, weight)
    above = hits.cumsum(0)
    found = hits.sum()
    precise = _share(above, above + others.cumsum(0))
    return float((hits * precise).sum() / found) if found > 0 else math.nan


def _by_class(of_one: Compute, output: Tensor, y: Tensor, weight: Weight) -> float:
    """Return a measure of two classes; of more the mean of each class against the rest."""
    if output.shape[-1] == 2:
        return of_one((output[:, 1] - output[:, 0]).double(), y == 1, weight)
    chances = output.double().softmax(-1)
    present = torch.nn.functional.one_hot(y, output.shape[-1]).bool()
    return _mean_of_columns(of_one, chances, present, weight)


def _mean_of_columns(of_one: Compute, scores: Tensor, positive: Tensor, weight: Weight) -> float:
    """Return the mean over the columns that have a value."""
    values = [of_one(scores[:, k], positive[:, k], weight) for k in range(scores.shape[-1])]
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def auc(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the area under the ROC curve; of several classes, the mean of those with rows."""
    return _by_class(area, output, y, weight)


def average_precision(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the area under the steps of the precision-recall curve, as `auc` for classes."""
    return _by_class(average, output, y, weight)


def label_auc(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the mean area of the labels; those that all rows have, or none, are left out."""
    return _mean_of_columns(area, output.double(), y > 0.5, weight)


def label_average_precision(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the mean of the labels; those that no row has are left out."""
    return _mean_of_columns(average, output.double(), y > 0.5, weight)


def label_log_loss(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the mean negative logarithm of the probability given to what each label is."""
    loss = torch.nn.functional.binary_cross_entropy_with_logits
    return _mean(loss(output.double(), y.double(), reduction="none"), weight)


# -- Labels of several 0 and 1 -----------------------------------------------------


def _decided(output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return which labels are guessed (probability above one half) and which are true, bool."""
    return output > 0, y > 0.5


def exact_match(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the share of rows of which every label is right."""
    guess, true = _decided(output, y)
    return _mean((guess == true).all(-1), weight)


def hamming(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the share of labels that are wrong."""
    guess, true = _decided(output, y)
    return _mean(guess != true, weight)


def _label_counts(output: Tensor, y: Tensor, weight: Weight) -> tuple[Tensor, Tensor]:
    """Return 2 hits, and guessed plus present rows, of each label, float64 (labels,)."""
    guess, true = _decided(output, y)
    rows = torch.ones(len(y), 1) if weight is None else weight[:, None]
    both = (rows.double() * (guess.double() + true.double())).sum(0)
    return 2 * (rows.double() * (guess & true)).sum(0), both


def f1_macro(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the mean F1 of the labels; 0 for one that is neither present nor guessed."""
    return float(_share(*_label_counts(output, y, weight)).mean())


def f1_micro(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return F1 over all labels of all rows together."""
    hits, both = _label_counts(output, y, weight)
    return float(_share(hits.sum(), both.sum()))


# -- Next tokens -------------------------------------------------------------------


def perplexity(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return exp of the mean negative logarithm of the probabilities given to the tokens.

    Args:
        output: the logarithm of each label's probability, (n, length).
    """
    return float(torch.exp(-output[y != IGNORED].double().mean()))


def token_log_loss(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the mean negative logarithm of the probabilities given to the tokens: the loss."""
    return math.log(perplexity(output, y))


# -- Numbers -----------------------------------------------------------------------


def _difference(output: Tensor, y: Tensor) -> Tensor:
    return output.double() - y.double()


def mse(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the mean squared error."""
    return _mean(_difference(output, y).square(), weight)


def rmse(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the root of the mean squared error."""
    return math.sqrt(mse(output, y, weight))


def mae(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the mean absolute error."""
    return _mean(_difference(output, y).abs(), weight)


def max_error(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the greatest absolute error, of rows with a weight above 0."""
    wrong = _difference(output, y).abs()
    wrong = wrong if weight is None else wrong[weight > 0]
    return float(wrong.max()) if len(wrong) else math.nan


def pinball(output: Tensor, y: Tensor, weight: Weight = None, quantile: float = 0.5) -> float:
    """Return the mean loss of a quantile: what lies below the label costs `quantile` times it."""
    missing = -_difference(output, y)
    return _mean(torch.maximum(quantile * missing, (quantile - 1) * missing), weight)


def mape(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the mean absolute error as a share of the label; NaN where a label is 0."""
    return _mean((_difference(output, y) / y.double()).abs(), weight) if y.all() else math.nan


def msle(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return the mean squared difference of log(1 + x); NaN where one of them is -1 or less."""
    if not (torch.minimum(output, y) > -1).all():
        return math.nan
    return mse(output.double().log1p(), y.double().log1p(), weight)


def r2(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return 1 - squared error / squared deviation from the mean; NaN for equal labels."""
    spread = mse(y.double(), torch.full_like(y.double(), _mean(y, weight)), weight)
    return 1 - mse(output, y, weight) / spread if spread > 0 else math.nan


def explained_variance(output: Tensor, y: Tensor, weight: Weight = None) -> float:
    """Return r2 of outputs whose mean error is made good."""
    difference = _difference(output, y)
    return r2(output.double() - _mean(difference, weight), y, weight)


def _only(task: Task, compute: Compute, *arguments: str, maximize: bool) -> MetricSpec:
    return MetricSpec(maximize=maximize, by_task={task: compute}, arguments=frozenset(arguments))


_OF_GUESSES = (
    *(accuracy, balanced_accuracy, f1, f1_weighted, precision, recall),
    *(jaccard, mcc, kappa),
)
#: Metrics of classes that look at nothing but which one is guessed.
OF_GUESSES = frozenset(of.__name__ for of in _OF_GUESSES)
#: Metrics of more than two classes that are means over those of which there are rows, or guesses.
OF_CLASSES = frozenset(
    of.__name__
    for of in (balanced_accuracy, f1, precision, recall, jaccard, auc, average_precision)
)

METRICS: dict[str, MetricSpec] = {
    **{of.__name__: _only("classification", of, maximize=True) for of in _OF_GUESSES},
    "top_k": _only("classification", top_k, "k", maximize=True),
    "brier": _only("classification", brier, maximize=False),
    "auc": MetricSpec(maximize=True, by_task={"classification": auc, "multilabel": label_auc}),
    "average_precision": MetricSpec(
        maximize=True,
        by_task={"classification": average_precision, "multilabel": label_average_precision},
    ),
    "log_loss": MetricSpec(
        maximize=False,
        by_task={
            "classification": log_loss,
            "multilabel": label_log_loss,
            "next_token": token_log_loss,
        },
    ),
    **{
        of.__name__: _only("regression", of, maximize=False)
        for of in (rmse, mse, mae, mape, msle, max_error)
    },
    "pinball": _only("regression", pinball, "quantile", maximize=False),
    "r2": _only("regression", r2, maximize=True),
    "explained_variance": _only("regression", explained_variance, maximize=True),
    "exact_match": _only("multilabel", exact_match, maximize=True),
    "hamming": _only("multilabel", hamming, maximize=False),
    "f1_macro": _only("multilabel", f1_macro, maximize=True),
    "f1_micro": _only("multilabel", f1_micro, maximize=True),
    "perplexity": _only("next_token", perplexity, maximize=False),
}

#: Recorded whatever the options say; the first is a run's objective where they name none.
DEFAULTS: dict[Task, tuple[str, ...]] = {
    "classification": ("accuracy",),
    "regression": ("rmse", "mae"),
    "multilabel": ("f1_macro", "hamming"),
    "next_token": ("perplexity",),
}


def metrics_of(target: Target) -> dict[str, MetricSpec]:
    """Return the metrics of a target's task by name."""
    return {name: metric for name, metric in METRICS.items() if target.task in metric.by_task}
