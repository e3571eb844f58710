"""What a run trains where its caller names no architecture: by the form and size of the dataset."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmdb.data.dataset import StoredDataset
from mmdb.errors import InvalidOption
from mmdb.train.candidate.column_arguments import runs_of

#: Rows that all epochs of a candidate see together, about; and the fewest and most epochs.
_ROWS_SEEN, _FEWEST, _MOST = 1_000_000, 4, 30
_SMALLEST_BATCH, _LARGEST_BATCH = 32, 1024
#: Steps of an epoch that a small table has; more would overfit, fewer would not learn.
_STEPS = 12
#: The network that `tabular` is, and a linear model, which it has to beat.
_HIDDEN: tuple[list[int], ...] = ([256, 256, 256], [])
_MEMBERS = 8
#: Train rows below which a network needs dropout, and more of it is searched.
_SMALL = 10_000
#: Seconds of training after which the best epoch so far is the model.
BUDGET_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDefaults:
    """An architecture with what trains it well."""

    architecture: str
    space: Mapping[str, Any]
    epochs: int
    options: Mapping[str, Any]  # how epochs and candidates are compared


#: For a network per group: groups are many, and each has few rows.
DEFAULTS_PER_GROUP = RunDefaults(
    architecture="mlp(hidden=[16])",
    space={
        "lr": [3e-3],
        "batch_size": [32],
        "optimizer": ["adamw"],
        "weight_decay": [0.01],
    },
    epochs=20,
    options={"budget_s": BUDGET_S},
)


def defaults_of(dataset: StoredDataset) -> RunDefaults:
    """Return the architecture that fits a dataset's rows.

    Raises:
        InvalidOption: none that is built in does.
    """
    decoding = dataset.decoding
    given = decoding.inputs[0]
    if not decoding.is_one_input or len(decoding.labels) > 1 or given.tokenizer is not None:
        raise InvalidOption(
            "No architecture is given, and none is chosen for several inputs or labels, or tokens.",
            hint="Name one; docs/architectures.md has those that are built in.",
        )
    parts = [part.row_count for part in dataset.partitions if part.role == "train"]
    rows = sum(parts)
    batch = min(max(2 ** round(math.log2(rows / _STEPS)), _SMALLEST_BATCH), _LARGEST_BATCH)
    epochs = min(max(_ROWS_SEEN // rows, _FEWEST), _MOST)
    compares = any(part.role == "validation" for part in dataset.partitions)
    options: dict[str, Any] = {"budget_s": BUDGET_S}
    if compares:
        options["patience"] = max(epochs // 4, 5)
    if compares and decoding.task == "classification":
        options["metric"] = "loss"  # what is right by chance in a small slice counts for less
    training = {
        "batch_size": [min(batch, max(parts))],
        "schedule": [{"name": "cosine", "T_max": epochs}],
        "optimizer": [{"name": "adamw", "betas": [0.9, 0.95]}],
        "weight_decay": [0.01],
    }
    if len(given.shape) > 1:
        return RunDefaults(
            architecture="resnet" if min(given.shape[-2:]) >= 16 else "cnn",
            space={"lr": [1e-3], **training},
            epochs=epochs,
            options=options,
        )
    is_linear_too = compares and not any(run[0] == "picture" for run in runs_of(decoding))
    is_small = rows < _SMALL
    space: dict[str, Any] = {
        "lr": [3e-3],
        "architecture.hidden": list(_HIDDEN if is_linear_too else _HIDDEN[:1]),
        "architecture.dropout": [0.2 if is_small else 0.0],
    }
    if is_small and compares:  # waves tell more than a small table knows, or less
        deep = {"architecture.hidden": [_HIDDEN[0]]}
        space["architecture.periodic"] = {"values": [True, False], "when": deep}
        space["lr"] = [1e-3, 3e-3]
    if is_small:
        space["architecture.linear_gain"] = [10.0]
    return RunDefaults(
        architecture=f"tabular(ensemble={_MEMBERS})",
        space={**space, **training},
        epochs=epochs,
        options=options,
    )
