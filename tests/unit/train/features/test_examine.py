"""What is found of frozen layers: names, times, and whether their features can be shared."""

from __future__ import annotations

import json
import re
from dataclasses import asdict

import pytest
import torch
from torch import nn

from mmdb.errors import CutNotFound
from mmdb.graph.spec.build import initial_module
from mmdb.train.compute.live import packed
from mmdb.train.hops.device_worker import DeviceWorker
from mmdb.train.values.feature_spec import FrozenPrefix
from mmdb.train.values.jobs import ExamineSpec, job_of
from mmdb.train.values.spec import CandidateSpec
from tests.unit.train.features.networks import FACTORIES, SHAPE, candidate, freezing

CUTS = (("last", "none"), ("stem", "none"), ("middle", "auto"))


def examined(
    raw: str,
    spec: CandidateSpec,
    *cuts: tuple[str, str],
    session: DeviceWorker | None = None,
) -> tuple[FrozenPrefix, ...]:
    session = session or DeviceWorker("cpu")
    asked = ExamineSpec(candidate=spec, partition=raw, cuts=cuts or CUTS, rows=32)
    return session.examine(asked).prefixes


def names(prefix: FrozenPrefix) -> tuple[str, str]:
    return prefix.architecture_hash, prefix.tensors_hash


def test_prefixes_are_told_in_the_order_asked_for(raw: str) -> None:
    last, stem, middle = examined(raw, candidate(freezing()))
    assert [p.cut for p in (last, stem, middle)] == ["last", "stem", "middle"]
    assert stem.order < middle.order < last.order
    assert (stem.shape, middle.shape, last.shape) == ((6, 8, 8), (6,), (8, 4, 4))
    assert (stem.pool, middle.pool, last.pool) == ("none", "mean", "none")
    assert not any(p.not_reusable or p.learns for p in (last, stem, middle))
    assert len({names(p) for p in (last, stem, middle)}) == 3


def test_time_goes_from_cut_to_cut(raw: str) -> None:
    last, stem, middle = examined(raw, candidate(freezing()))
    assert stem.source is None and stem.row_s == stem.stage_s > 0
    assert middle.source == "stem"
    assert last.source == "middle"
    assert middle.row_s == pytest.approx(stem.row_s + middle.stage_s)
    assert last.row_s == pytest.approx(middle.row_s + last.stage_s)


def test_what_comes_after_the_cut_has_no_part_in_the_names(raw: str) -> None:
    plain = candidate(freezing())
    other = candidate(freezing(), seed=6, arguments={"dropout": 0.5})
    for a, b in zip(examined(raw, plain), examined(raw, other), strict=True):
        assert names(a) == names(b)


def test_other_layers_and_other_numbers_have_other_names(raw: str) -> None:
    (plain,) = examined(raw, candidate(freezing()), ("middle", "none"))
    (pooled,) = examined(raw, candidate(freezing()), ("middle", "mean"))
    (seeded,) = examined(raw, candidate(freezing(seed=10)), ("middle", "none"))
    layers = candidate(freezing(), arguments={"stride": 2})
    (layered,) = examined(raw, layers, ("middle", "none"))
    assert plain.tensors_hash == pooled.tensors_hash
    assert plain.architecture_hash == seeded.architecture_hash
    assert plain.tensors_hash != seeded.tensors_hash
    assert len({p.architecture_hash for p in (plain, pooled, layered)}) == 3


def test_a_model_and_a_seed_with_the_same_tensors_have_the_same_names(raw: str) -> None:
    session = DeviceWorker("cpu")
    model = initial_module("small", {}, SHAPE, 7, FACTORIES, seed=9)
    state = model.state_dict()
    session.take_backbone("12", packed(state))
    (of_model,) = examined(
        raw, candidate(freezing(backbone="12")), ("stem", "none"), session=session
    )
    other = initial_module("small", {}, SHAPE, 7, FACTORIES, seed=9)
    assert all(torch.equal(state[path], tensor) for path, tensor in other.state_dict().items())
    (of_seed,) = examined(raw, candidate(freezing()), ("stem", "none"), session=session)
    assert names(of_model) == names(of_seed)


@pytest.mark.parametrize(
    ("factory", "reason", "learns"),
    [
        ("dropping", r"random numbers.*'middle' \(AlwaysDrops\)", False),
        ("mixing", r"other rows of its batch.*'middle' \(OfTheBatch\)", False),
        ("learning", r"'middle\.count' changes", True),
    ],
)
def test_features_that_cannot_be_shared(raw: str, factory: str, reason: str, learns: bool) -> None:
    session, spec = DeviceWorker("cpu"), candidate(freezing(), factory=factory)
    stem, middle = examined(raw, spec, ("stem", "none"), ("middle", "none"), session=session)
    assert stem.not_reusable is None
    assert middle.not_reusable is not None
    assert re.search(reason, middle.not_reusable)
    assert middle.learns is learns
    again = examined(raw, spec, ("stem", "none"), ("middle", "none"), session=session)
    assert [names(p) for p in again] == [names(stem), names(middle)]  # nothing was changed


def test_a_cut_that_does_not_exist(raw: str) -> None:
    with pytest.raises(CutNotFound, match="nowhere"):
        examined(raw, candidate(freezing()), ("nowhere", "none"))


def test_specs_travel_as_json(raw: str) -> None:
    spec = ExamineSpec(candidate=candidate(freezing()), partition=raw, cuts=CUTS)
    assert job_of("ExamineSpec", json.loads(json.dumps(asdict(spec)))) == spec


def test_what_only_the_code_knows_is_in_the_name(raw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (plain,) = examined(raw, candidate(freezing()), ("stem", "none"))
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: 2 * torch.relu(x))
    (changed,) = examined(raw, candidate(freezing()), ("stem", "none"))
    assert plain.tensors_hash != changed.tensors_hash
