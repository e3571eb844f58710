"""Candidates that freeze layers, in plans: where features come from, what that takes and says."""

from __future__ import annotations

from typing import Any

import pytest

from mmdb.data.decoding import Target
from mmdb.graph.spec.parse import parse
from mmdb.plan.candidate_work import Built, is_strange
from mmdb.plan.notes import feature_notes
from mmdb.plan.planned_run import (
    READ,
    CostKeys,
    FrozenLayers,
    Shared,
    frozen_layers_of,
    ready_s,
    source_of,
)
from mmdb.plan.step.step_work import Work
from mmdb.store.stored_features import FeatureUse, StoredFeature
from mmdb.train.candidate.config import parse_config
from mmdb.train.values.feature_options import parse_frozen_options

TARGETS = (Target(name="y", task="classification", size=10),)
HEAD = {"freeze_up_to": "3", "head": "linear"}
AUGMENTED = HEAD | {"augment": ["flip"]}
LEARNING = HEAD | {"batch_norm": "train"}


def shared(choice: str = "stored", **given: Any) -> Shared:
    """Return features 7 of a run, of 4 candidates."""
    of_feature: dict[str, Any] = {
        "storage": "float32",
        "pool": "mean",
        "max_error": None,
        "depth": 3,
    }
    of_feature |= {name: given.pop(name) for name in list(given) if name in of_feature}
    feature = StoredFeature(
        feature_id=7,
        feature_key=b"k" * 32,
        dataset_id=1,
        owner="",
        prefix_key=b"p" * 32,
        layer="layer3",
        shape=(256,),
        architecture_hash=b"a" * 32,
        tensors_hash=b"t" * 32,
        network_hash=b"n" * 32,
        backbone=None,
        model_id=None,
        seed=1,
        row_bytes=1024,
        mean_error=None,
        **of_feature,
    )
    numbers: dict[str, Any] = {"uses": 40, "byte_count": 0, "saved_s": 30.0, "planned_s": 10.0}
    use = FeatureUse(
        feature_id=7,
        choice=choice,
        reason="Because.",
        layer=feature.layer,
        network_hash=feature.network_hash,
        depth=feature.depth,
        backbone=None,
        model_id=None,
        **({"candidates": 4} | numbers | given),
    )
    return Shared(feature=feature, use=use)


def test_where_features_come_from() -> None:
    assert source_of({}, None) is None
    assert source_of(HEAD, None) is None
    assert source_of(HEAD, "stored") == source_of(HEAD, "memory") == READ
    assert source_of(HEAD, "recomputed") == "recomputed"
    # What others share, these cannot.
    assert source_of(AUGMENTED, "stored") == "streamed"
    assert source_of(LEARNING, "stored") == "whole"


@pytest.mark.parametrize(
    ("configs", "choice", "seconds"),
    [
        ([HEAD] * 4, "stored", [0] * 4),
        ([HEAD] * 4, "recomputed", [10 / 4] * 4),
        ([AUGMENTED] * 4, "streamed", [10 / 4] * 4),
        ([LEARNING] * 4, "whole", [0] * 4),
        ([HEAD, HEAD, AUGMENTED, AUGMENTED], "memory", [0, 0, (10 + 30) / 2, (10 + 30) / 2]),
    ],
)
def test_hops_take_the_seconds_of_what_they_compute(
    configs: list[dict[str, Any]], choice: str, seconds: list[float]
) -> None:
    found = frozen_layers_of(
        {n: {"lr": 0.1} | one for n, one in enumerate(configs)} | {9: {"lr": 0.1}},
        dict.fromkeys(range(4), 7),
        {7: shared(choice)},
        visits=100,
    )
    assert sorted(found) == [0, 1, 2, 3]
    assert [found[n].row_s * 100 for n in range(4)] == pytest.approx(seconds)
    assert ready_s({7: shared(choice)}) == (10.0 if choice in ("stored", "memory") else 0.0)


def test_what_is_not_settled_is_whole() -> None:
    (part,) = frozen_layers_of({1: HEAD}, {}, {}, visits=100).values()
    assert (part.source, part.tail_shape, part.row_s) == (None, None, 0.0)
    (note,) = feature_notes([], [5])
    assert "candidate 5 is not settled" in note


def test_hops_that_did_other_things_do_not_compare() -> None:
    row = {"architecture_hash": b"a", "config": '{"freeze_up_to": "3", "head": "linear"}'}
    keys = CostKeys()
    found = {
        choice: keys.of(row | {"feature_choice": choice})
        for choice in ("stored", "memory", "recomputed", "streamed")
    }
    assert found["stored"] == found["memory"]
    assert len(set(found.values())) == 3


def built(**given: Any) -> Built:
    about: dict[str, Any] = {"architecture": parse("resnet"), "factories": {}} | given
    return Built(input_shape=(3, 16, 16), input_dtype="float32", outputs=10, **about)


def work(config: dict[str, Any], *, source: str | None, shape: tuple[int, ...]) -> Work:
    raw = {"lr": 0.1, "batch_size": 32} | config
    transfer = parse_frozen_options(raw)
    assert transfer is not None
    part = FrozenLayers(transfer=transfer, source=source, shape=shape if source else None)
    found = built().work(parse_config(raw, TARGETS), part)
    assert isinstance(found, Work), found
    return found


MAPS = (16, 16, 16)


def test_the_work_of_a_head_is_that_over_its_features() -> None:
    head = work(HEAD, source=READ, shape=(16,))
    assert head.parameter_bytes == head.gradient_bytes == 4 * (16 * 10 + 10)
    open_, whole = (work(HEAD, source=one, shape=MAPS) for one in (None, "whole"))
    assert open_.gradient_bytes == whole.gradient_bytes > 0
    assert whole.parameter_bytes > whole.gradient_bytes
    assert whole.flops.at(32).sum() > 100 * head.flops.at(32).sum()


def test_the_work_of_the_layers_after_a_cut() -> None:
    cut = {"freeze_up_to": "3"}
    rest, whole = (work(cut, source=one, shape=MAPS) for one in (READ, "whole"))
    assert rest.gradient_bytes == whole.gradient_bytes == rest.parameter_bytes
    assert rest.parameter_bytes < whole.parameter_bytes
    assert rest.flops.at(32).sum() < whole.flops.at(32).sum()
    lora = cut | {"adapter": {"name": "lora", "rank": 2}}
    adapted = work(lora, source=READ, shape=MAPS)
    assert adapted.gradient_bytes < rest.gradient_bytes < adapted.parameter_bytes


def test_a_process_holds_the_network_that_its_hops_run() -> None:
    config = parse_config({"lr": 0.1, "batch_size": 32}, TARGETS)
    network = built().work(config)
    assert isinstance(network, Work)
    small, large = (built().held_bytes(config, rows) for rows in (1, 128))
    assert network.parameter_bytes < small < large < network.peak_bytes(128)


def test_heads_of_strangers_are_strange_too() -> None:
    own = {"backbone": parse("resnet"), "cut": "3", "head": parse("linear"), "pool": "mean"}
    theirs = {"heads": "my.package:heads"}
    assert not is_strange([own], theirs)
    assert is_strange([own | {"head": {"factory": "heads"}}], theirs)
    assert is_strange([parse("resnet"), {"factory": "heads"}], theirs)
    options = parse_frozen_options(HEAD | {"head": "heads"})
    assert options
    text = built(factories=theirs).text(
        parse_config({"lr": 0.1}, TARGETS), FrozenLayers(transfer=options, source=READ, shape=(4,))
    )
    assert "my.package:heads" in text


def test_notes_say_what_is_shared_stored_and_saved() -> None:
    (note,) = feature_notes([shared(byte_count=2_100_000)], [])
    assert note == (
        "Features of layer3 (mean, 256 numbers a row) are shared by 4 candidates: "
        "stored, 2.1 MB, saves 30 s. Because."
    )
    (note,) = feature_notes([shared("streamed", candidates=1, saved_s=0.0, pool="none")], [])
    assert note == (
        "Features of layer3 (256 numbers a row) are for 1 candidate: computed with each batch. "
        "Because."
    )
    (note,) = feature_notes([shared(storage="int8", max_error=0.004, byte_count=500)], [])
    assert "stored, 500 B, as int8 with errors up to 0.004 of the largest number" in note
    *notes, total = feature_notes([shared(depth=3), shared(depth=1, byte_count=1000)], [])
    assert "1 kB" in notes[0] and "1 kB" not in notes[1]  # the shallowest first
    assert total == "Features of 2 layers save 1 min 00 s of the workers' time, and store 1 kB."
