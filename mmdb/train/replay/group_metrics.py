"""What a network per group measures of each group, as it is saved."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from mmdb.data.dataset import dataset_of
from mmdb.data.functions import find_functions
from mmdb.data.reader import read_partition
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.graph.grouped import COMMON, Grouped
from mmdb.train.candidate.measures import LOSS, Meter, measures_of
from mmdb.train.candidate.setup import setup_of_candidate
from mmdb.train.compute.exact import exact
from mmdb.train.compute.hop import outputs_on
from mmdb.train.stack.grouped_pass import group_losses
from mmdb.train.values.row_batch import Partition, fitted, tensors_in, tensors_of
from mmdb.train.values.spec import CandidateSpec

_Q = load("evaluations")


def record_groups(connection: Connection, model_id: int, candidate: Row, module: Grouped) -> None:
    """Record the loss of each group's rows, and the run's metric of those that are held out.

    They are evaluations of the slices, by the column of groups: see `mmdb.group_overview`. Of a
    dataset that was dropped there are none.

    Args:
        candidate: a row of `find_candidate`.
    """
    dataset_id, per = candidate["dataset_id"], json.loads(candidate["architecture"])["per"]
    spec = CandidateSpec.from_row(candidate, {}, find_functions(connection))
    dataset = dataset_of(connection, dataset_id)
    if dataset.dropped:
        return
    (transform,) = [c.transform for c in dataset.decoding.features if c.name == per]
    assert transform is not None
    names = (None, None, *(transform.categories or ()))
    parts = connection.rows(load("hops").find_partitions, dataset_id=dataset_id)
    for role in ("train", "validation"):
        begun = perf_counter()
        read = (
            tensors_of(read_partition(connection, part["part_id"], part["content_hash"]))
            for part in parts
            if part["role"] == role
        )
        found = _measured(module, spec, read, candidate["metric"] if role != "train" else None)
        if not found:
            continue
        (added,) = connection.rows(
            _Q.add_evaluation,
            model_id=model_id,
            dataset_id=dataset_id,
            slice=role,
            query=None,
            row_count=sum(row["row_count"] for row in found if row["metric"] == LOSS),
            seconds=perf_counter() - begun,
            figures=None,
        )
        of = {"evaluation_id": added["evaluation_id"], "by_name": per, "low": None, "high": None}
        connection.run_many(
            _Q.add_metric, [{**of, **row, "by_value": names[row.pop("code")]} for row in found]
        )


def _measured(
    module: Grouped, spec: CandidateSpec, read: Iterable[Partition], metric: str | None
) -> list[dict[str, Any]]:
    """Return a row for each group's loss, by its code, then for its metric where there is one."""
    setup = setup_of_candidate(spec, 0)
    measures = [
        one
        for one in measures_of(spec.targets, spec.options, spec.functions)
        if one.key == metric != LOSS
    ]
    meter = Meter(measures, spec.targets, spec.functions)
    parts: list[tuple[Tensor, ...]] = []  # outputs, codes, labels and weights
    with exact(0):
        for x, y in read:
            assert isinstance(x, Tensor)  # rows of several inputs have no column of groups
            outputs = outputs_on(module, x, spec.targets)[0]
            parts.append((outputs, module.codes(x), *tensors_in(y)))
    if not parts:
        return []
    outputs, codes, *labels = map(torch.cat, zip(*parts, strict=True))
    counts = codes.bincount(minlength=module.groups).tolist()
    losses = group_losses(setup, codes, outputs, tuple(labels), module.groups).tolist()
    whose = codes.argsort(stable=True).split(counts)
    found: list[dict[str, Any]] = []
    for code, own in enumerate(whose):
        if code == COMMON or math.isnan(losses[code]):  # of rows that count nothing, or none
            continue
        row = {"code": code, "row_count": len(own)}
        found.append({**row, "ordinal": code, "metric": LOSS, "value": losses[code]})
        if measures:
            true = [one[own] for one in labels]
            values = meter([fitted(outputs[own], true[0])], true)
            ordinal = module.groups + code
            found += [
                {**row, "ordinal": ordinal, "metric": name, "value": value}
                for name, value in values.items()
            ]
    return found
