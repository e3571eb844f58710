"""The peers return what they were given, in memory of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mmdb.bench import store_subject
from mmdb.bench.figures import beside, take_turns

STATE = {"weight": torch.arange(12.0).reshape(3, 4), "count": torch.tensor(7)}


@pytest.mark.parametrize(
    ("save", "load"),
    [
        (store_subject.torch_save, store_subject.torch_load),
        (store_subject.safetensors_save, store_subject.safetensors_load),
    ],
)
def test_a_file_gives_back_its_tensors(
    tmp_path: Path, save: store_subject.Save, load: store_subject.Load
) -> None:
    path = tmp_path / "state"
    size = save(STATE, path)
    assert size == path.stat().st_size > 12 * 4
    found = load(path)
    assert all(torch.equal(found[name], tensor) for name, tensor in STATE.items())
    path.write_bytes(b"")  # a mapped file would change under its tensors
    assert torch.equal(found["weight"], STATE["weight"])


def test_calls_take_turns_and_warm_rounds_do_not_count() -> None:
    order: list[str] = []
    seconds = take_turns(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 2, warm=1
    )
    assert order == ["a", "b"] * 3
    assert {name: len(runs) for name, runs in seconds.items()} == {"a": 2, "b": 2}


def test_the_least_of_ours_is_measured_by_the_least_of_theirs() -> None:
    figure = beside("save / peer", [1.0, 6.0], [2.0, 3.0], 0.4, "peer")
    assert (figure.value, figure.runs, figure.holds) == (0.5, [0.5, 2.0], False)
    assert beside("save / peer", [1.0, 6.0], [2.0, 3.0], 0.5, "peer").holds
