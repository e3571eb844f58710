"""What a dataset's labels ask a model for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Task = Literal["classification", "regression", "multilabel"]
TASKS: tuple[Task, ...] = ("classification", "regression", "multilabel")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One label of a dataset and what predicts it.

    A model's output for it is float32 (n, size). Its labels are class indices, int64 (n,), numbers,
    float32 (n,), or 0 and 1 for each of several labels, float32 (n, size).
    """

    name: str  # the label's column
    task: Task
    size: int  # classes of a classification, labels of a multilabel task, 1 of a regression
