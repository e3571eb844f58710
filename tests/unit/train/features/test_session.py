"""Hops of candidates with frozen layers, and the features that they train on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from mmdb.data import node_cache
from mmdb.errors import (
    BackboneMissing,
    Cancelled,
    NotANumber,
    PartitionEvicted,
    StateCorrupt,
    TrainingFailed,
)
from mmdb.graph.spec.build import initial_module
from mmdb.train.compute.feature_executor import FeatureExecutor
from mmdb.train.compute.live import packed, weights
from mmdb.train.drive.child import ChildProcess
from mmdb.train.hops.device_worker import DeviceWorker
from mmdb.train.values.feature_spec import FEATURE_ROWS, STORAGES, Examined, Materialized, Wanted
from mmdb.train.values.jobs import ExamineSpec, MapPartition, MaterializeSpec, TakeBackbone
from mmdb.train.values.spec import CandidateSpec
from tests.unit.train.features.networks import (
    FACTORIES,
    FUNCTIONS,
    LORA,
    MLP,
    ROWS,
    SHAPE,
    candidate,
    freezing,
    hop,
    put_rows,
)

MODEL = "12"
KINDS: dict[str, dict[str, Any]] = {
    "head": {"head": MLP},
    "rest": {"head": None, "pool": "none"},
    "adapter": {"head": None, "pool": "none", "adapter": LORA},
}


@pytest.fixture
def session(raw: str) -> Iterator[DeviceWorker]:
    yield DeviceWorker("cpu")


def materialized(
    session: DeviceWorker | ChildProcess,
    spec: CandidateSpec,
    source: str,
    *wanted: Wanted,
    cut: str | None = None,
) -> Materialized:
    asked = MaterializeSpec(candidate=spec, source=source, source_cut=cut, wanted=wanted)
    return session.compute(asked)[0]


def key(name: str) -> str:
    return name.encode().hex().ljust(64, "0")


def stored(session: DeviceWorker | ChildProcess, spec: CandidateSpec, raw: str) -> str:
    """Return the key of the features that a candidate trains on."""
    frozen = spec.frozen
    assert frozen is not None
    name = key(f"{frozen.cut}{frozen.pool}{frozen.storage}")
    wanted = Wanted(cut=frozen.cut, pool=frozen.pool, storage=frozen.storage, key=name)
    materialized(session, spec, raw, wanted)
    return name


def features(name: str) -> np.ndarray:
    return node_cache.map(bytes.fromhex(name)).plain[0]


def trained(session: DeviceWorker, spec: CandidateSpec, partition: str) -> tuple[str, bytes]:
    """Return a state after two hops, of which the second is in a session of its own."""
    first, state = session.perform(hop(spec, partition), None)
    assert state is not None
    second = hop(spec, partition, epoch=1, state_in=first.state_out, travels=True)
    session.forget()
    result, state = session.perform(second, state)
    assert state is not None
    return result.state_out, state


@pytest.mark.parametrize("kind", ["head", "rest", "adapter"])
@pytest.mark.parametrize("storage", STORAGES)
def test_choices_give_the_same_bits(
    session: DeviceWorker, raw: str, kind: str, storage: str
) -> None:
    found = {}
    for choice in ("stored", "memory", "recomputed"):
        spec = candidate(freezing(choice=choice, storage=storage, **KINDS[kind]))
        partition = raw if choice == "recomputed" else stored(session, spec, raw)
        found[choice] = trained(session, spec, partition)[0]
        session.forget()
    assert len(set(found.values())) == 1
    spec = candidate(freezing(choice="streamed", storage=storage, **KINDS[kind]))
    one = weights(trained(session, spec, raw)[1])
    session.forget()
    spec = candidate(freezing(choice="recomputed", storage=storage, **KINDS[kind]))
    other = weights(trained(session, spec, raw)[1])
    assert all(torch.allclose(one[path].float(), other[path].float(), atol=1e-6) for path in one)


def test_a_head_trains_as_in_a_network_that_is_frozen_by_hand(
    session: DeviceWorker, raw: str
) -> None:
    spec = candidate(freezing(choice="stored"))
    state = weights(trained(session, spec, stored(session, spec, raw))[1])
    network: Any = initial_module("small", {}, SHAPE, 3, FACTORIES, seed=9).eval()
    head = initial_module("linear", {}, (6,), 3, FACTORIES, seed=spec.seed)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.01)
    x, y = (torch.from_numpy(np.array(part)) for part in node_cache.map(bytes.fromhex(raw)).plain)
    for seed in (100, 101):
        order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(seed))
        for index in order.split(32):
            with torch.no_grad():
                features = network.stem(x[index]).mean((2, 3))
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(head(features), y[index]).backward()
            optimizer.step()
    for path, tensor in head.state_dict().items():
        assert torch.allclose(state[path], tensor, atol=1e-6, rtol=0)


def test_a_hop_goes_on_from_what_is_held_as_from_what_travels(
    session: DeviceWorker, raw: str
) -> None:
    spec = candidate(freezing(choice="recomputed", head=MLP))
    there, _ = trained(session, spec, raw)
    session.forget()
    first, _ = session.perform(hop(spec, raw), None)
    assert session.held(spec.candidate_id) == first.state_out
    second, _ = session.perform(hop(spec, raw, epoch=1, state_in=first.state_out), None)
    assert second.state_out == there


def test_lossy_storage_is_trained_on(session: DeviceWorker, raw: str) -> None:
    states = set()
    for storage in STORAGES:
        spec = candidate(freezing(choice="recomputed", storage=storage))
        states.add(session.perform(hop(spec, raw), None)[0].state_out)
        session.forget()
    assert len(states) == len(STORAGES)


def test_a_validation_measures_the_same(session: DeviceWorker, raw: str) -> None:
    found = []
    for choice in ("stored", "recomputed", "streamed"):
        spec = candidate(freezing(choice=choice))
        partition = raw if choice != "stored" else stored(session, spec, raw)
        result, state = session.perform(hop(spec, partition, validates=True), None)
        assert (state, result.state_out, result.rows) == (None, result.state_in, ROWS)
        found.append(result.loss)
        session.forget()
    assert found[0] == found[1] == pytest.approx(found[2], abs=1e-6)


def test_features_are_those_of_the_layers_in_chunks(session: DeviceWorker, raw: str) -> None:
    spec = candidate(freezing())
    name = stored(session, spec, raw)
    network = initial_module("small", {}, SHAPE, 3, FACTORIES, seed=9).eval()
    x, y = node_cache.map(bytes.fromhex(raw)).plain
    with torch.no_grad():
        chunks = torch.from_numpy(np.array(x)).split(FEATURE_ROWS)
        expected = torch.cat([network.stem(chunk).mean((2, 3)) for chunk in chunks])  # type: ignore[operator]
    assert np.array_equal(features(name), expected.numpy())
    assert np.array_equal(node_cache.map(bytes.fromhex(name)).plain[1], y)


def test_several_come_out_of_one_pass_and_deeper_ones_out_of_shallower(
    session: DeviceWorker, raw: str
) -> None:
    spec = candidate(freezing())
    asked = [("last", "none"), ("stem", "none"), ("middle", "mean"), ("drop", "none")]
    once = [Wanted(cut=c, pool=p, storage="float32", key=key(f"once{c}")) for c, p in asked]
    done = materialized(session, spec, raw, *once)
    assert done.byte_counts == {one.key: features(one.key).nbytes for one in once}
    assert set(done.max_error.values()) == {0.0}
    alone = [Wanted(cut=c, pool=p, storage="float32", key=key(f"alone{c}")) for c, p in asked]
    for wanted in alone:
        materialized(session, spec, raw, wanted)
    alias = Wanted(cut="stem.2", pool="none", storage="float32", key=key("alias"))
    materialized(session, spec, key("oncestem"), alias, cut="stem")
    assert np.array_equal(features(alias.key), features(key("oncestem")))
    staged = [
        Wanted(cut=c, pool="none", storage="float32", key=key(f"st{c}")) for c in ("norm", "drop")
    ]
    materialized(session, spec, once[0].key, *staged, cut="last")
    for one, other in zip(once, alone, strict=True):
        assert np.array_equal(features(one.key), features(other.key)), one.cut
    assert np.array_equal(features(key("stdrop")), features(key("oncedrop")))


def test_errors_of_a_storage_are_told(session: DeviceWorker, raw: str) -> None:
    spec = candidate(freezing())
    wanted = [Wanted(cut="stem", pool="none", storage=s, key=key(f"error{s}")) for s in STORAGES]
    done = materialized(session, spec, raw, *wanted)
    exact, half, bytewise = (features(one.key) for one in wanted)
    for one, decoded in zip(wanted, (exact, half, bytewise), strict=True):
        apart = np.abs(exact - decoded)
        assert done.max_error[one.key] == pytest.approx(apart.max() / np.abs(exact).max())
        assert done.mean_error[one.key] == pytest.approx(apart.mean() / np.abs(exact).max())
    assert 0 == done.max_error[wanted[0].key] < done.max_error[wanted[1].key]
    assert done.max_error[wanted[1].key] < done.max_error[wanted[2].key] < 0.01


def test_several_labels_go_along(session: DeviceWorker) -> None:
    two = "2" * 64
    put_rows(two, labels=2)
    name = key("labels")
    wanted = Wanted(cut="stem", pool="mean", storage="float32", key=name)
    materialized(session, candidate(freezing()), two, wanted)
    before, after = (node_cache.map(bytes.fromhex(one)).labels for one in (two, name))
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_augmented_rows_pass_the_frozen_layers(session: DeviceWorker, raw: str) -> None:
    plain = candidate(freezing(choice="streamed"))
    loud = replace(plain, config=plain.config | {"augment": ["noise"]}, functions=FUNCTIONS)
    results = []
    for spec in (plain, loud, loud):
        results.append(session.perform(hop(spec, raw), None)[0].state_out)
        session.forget()
    assert results[0] != results[1] == results[2]


def test_features_are_kept_for_the_next_hop(session: DeviceWorker, raw: str) -> None:
    work = FeatureExecutor()
    x = torch.randn(10, *SHAPE)
    spec = candidate(freezing(choice="recomputed"))
    first = work.recomputed(spec, raw, x, lambda: False)
    assert work.recomputed(spec, raw, x, lambda: False) is first
    assert work.recomputed(spec, "3" * 64, x, lambda: False) is not first
    deeper = candidate(freezing(choice="recomputed", cut="middle"))
    assert not torch.equal(work.recomputed(deeper, raw, x, lambda: False), first)


def test_what_is_stopped_or_fails_leaves_nothing(session: DeviceWorker, raw: str) -> None:
    name = key("nothing")
    wanted = Wanted(cut="stem", pool="mean", storage="int8", key=name)
    spec = MaterializeSpec(
        candidate=candidate(freezing()), source=raw, source_cut=None, wanted=(wanted,)
    )
    with pytest.raises(Cancelled):
        session.materialize(spec, lambda: True)
    model = initial_module("small", {}, SHAPE, 3, FACTORIES, seed=1).state_dict()
    model["stem.0.weight"].fill_(float("nan"))
    session.take_backbone("nan", packed(model))
    broken = candidate(freezing(backbone="nan"))
    with pytest.raises(NotANumber):
        materialized(session, broken, raw, wanted)
    assert not node_cache.holds(bytes.fromhex(name))
    with pytest.raises(PartitionEvicted):
        materialized(session, candidate(freezing()), "4" * 64, wanted)


def test_the_model_is_taken_once(session: DeviceWorker, raw: str) -> None:
    spec = candidate(freezing(backbone=MODEL, choice="recomputed"))
    assert not session.has_backbone(MODEL)
    with pytest.raises(BackboneMissing):
        session.perform(hop(spec, raw), None)
    with pytest.raises(StateCorrupt):
        session.take_backbone(MODEL, b"no tensors")
    model = initial_module("small", {}, SHAPE, 7, FACTORIES, seed=77)
    session.take_backbone(MODEL, packed(model.state_dict()))
    assert session.has_backbone(MODEL)
    result, _ = session.perform(hop(spec, raw), None)
    of_a_seed = candidate(freezing(choice="recomputed"))
    session.forget()
    assert session.perform(hop(of_a_seed, raw), None)[0].state_out != result.state_out


def test_time_is_measured_on_what_is_trained(session: DeviceWorker, raw: str) -> None:
    for choice in ("recomputed", "streamed", "whole"):
        times = session.time_steps(candidate(freezing(choice=choice)), raw, 0.01)
        assert times.rows == 32


def test_a_worker_process_does_the_same(session: DeviceWorker, raw: str) -> None:
    model = packed(initial_module("small", {}, SHAPE, 7, FACTORIES, seed=77).state_dict())
    spec = candidate(freezing(backbone=MODEL, choice="stored", **KINDS["adapter"]))
    cuts = (("stem", "none"), ("middle", "mean"))
    asked = ExamineSpec(candidate=spec, partition=raw, cuts=cuts)
    child = ChildProcess()
    try:
        child.warm_up()
        assert not child.has_backbone(MODEL)
        child.compute(TakeBackbone(MODEL), (model,))
        session.take_backbone(MODEL, model)
        assert child.has_backbone(MODEL) and not child.has_backbone("13")
        child.compute(MapPartition(raw))
        assert named(child.compute(asked)[0]) == named(session.examine(asked))
        name = stored(child, spec, raw)
        child.compute(MapPartition(name))
        found, state = child.compute(hop(spec, name))
        expected, own = session.perform(hop(spec, name), None)
        assert (found.state_out, state) == (expected.state_out, own)
        with pytest.raises(TrainingFailed):
            wrong = MaterializeSpec(
                candidate=spec,
                source=name,
                source_cut="last",
                wanted=(Wanted(cut="norm", pool="none", storage="float32", key=key("wrong")),),
            )
            child.compute(wrong)
    finally:
        child.close()


def named(found: Examined) -> list[tuple[object, ...]]:
    return [(p.cut, p.pool, p.architecture_hash, p.tensors_hash, p.shape) for p in found.prefixes]
