"""What a network per group measures of each group, as it is saved."""

from __future__ import annotations

import json
import math
from time import perf_counter
from typing import Any

import torch

from mmdb.data.dataset import find_decoding
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
from mmdb.train.values.row_batch import fitted, tensors_in, tensors_of
from mmdb.train.values.spec import CandidateSpec

_Q = load("evaluations")


def record_groups(connection: Connection, model_id: int, candidate: Row, module: Grouped) -> None:
    """Record the loss of each group's rows, and the run's metric of those that are held out.

    They are evaluations of the slices, by the column of groups: see `mmdb.group_overview`.

    Args:
        candidate: a row of `find_candidate`.
    """
    dataset_id, per = candidate["dataset_id"], json.loads(candidate["architecture"])["per"]
    spec = CandidateSpec.from_row(candidate, {}, find_functions(connection))
    columns = find_decoding(connection, dataset_id).features
    (transform,) = [column.transform for column in columns if column.name == per]
    assert transform is not None
    names = (None, None, *(transform.categories or ()))
    parts = connection.rows(load("hops").find_partitions, dataset_id=dataset_id)
    for role in ("train", "validation"):
        begun, keys = (
            perf_counter(),
            [(p["part_id"], p["content_hash"]) for p in parts if p["role"] == role],
        )
        if not keys:
            continue
        read = [tensors_of(read_partition(connection, *key)) for key in keys]
        found = _measured(module, spec, read, candidate["metric"] if role != "train" else None)
        (added,) = connection.rows(
            _Q.add_evaluation,
            model_id=model_id,
            dataset_id=dataset_id,
            slice=role,
            query=None,
            row_count=sum(len(tensors_in(y)[0]) for _, y in read),
            seconds=perf_counter() - begun,
            figures=None,
        )
        of = {"evaluation_id": added["evaluation_id"], "by_name": per, "low": None, "high": None}
        connection.run_many(
            _Q.add_metric, [{**of, **row, "by_value": names[row.pop("code")]} for row in found]
        )


def _measured(
    module: Grouped, spec: CandidateSpec, read: list[Any], metric: str | None
) -> list[dict[str, Any]]:
    """Return a row for each group's loss, by its code, then for its metric where there is one."""
    setup = setup_of_candidate(spec, 0)
    measures = [
        one
        for one in measures_of(spec.targets, spec.options, spec.functions)
        if one.key == metric != LOSS
    ]
    meter = Meter(measures, spec.targets, spec.functions)
    with exact(0):
        outputs = torch.cat([outputs_on(module, x, spec.targets)[0] for x, _ in read])
    labels = tuple(map(torch.cat, zip(*(tensors_in(y) for _, y in read), strict=True)))
    codes = torch.cat([module.codes(x) for x, _ in read])
    counts = codes.bincount(minlength=module.groups).tolist()
    losses = group_losses(setup, codes, outputs, labels, module.groups).tolist()
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
