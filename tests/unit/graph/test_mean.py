"""The mean of networks says what the mean of their values, or of their probabilities, is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from mmdb.errors import ArchitectureError
from mmdb.graph.factories import SHIPPED
from mmdb.graph.mean import MeanOf, mean_of
from mmdb.graph.spec.build import architecture_of, build, check_output
from mmdb.graph.spec.parse import AVERAGES, canonical, factories_in, parse, with_arguments
from mmdb.plan.candidate_work import factories_of
from mmdb.store.models.architectures import outlined

ENSEMBLE = "tabular(hidden=[8], ensemble=3)"
MEMBERS: list[Any] = ["mlp(hidden=[4])", ENSEMBLE, {"factory": "linear"}]


def _built(averages: str, outputs: int = 3) -> MeanOf:
    torch.manual_seed(0)
    network = build({"mean": MEMBERS, "averages": averages}, {}, (5,), outputs, SHIPPED)
    assert isinstance(network, MeanOf)
    return network.eval()


@pytest.mark.parametrize("averages", AVERAGES)
@pytest.mark.parametrize("rows", [1, 7])
def test_it_is_the_mean_of_what_its_networks_say(averages: str, rows: int) -> None:
    network, x = _built(averages), torch.randn(rows, 5)
    said: Callable[[torch.Tensor], torch.Tensor] = {
        "outputs": lambda y: y,
        "probabilities": lambda y: torch.softmax(y, 1),
        "label_probabilities": lambda y: torch.sigmoid(y),
    }[averages]
    with torch.no_grad():
        expected = torch.stack([said(member(x)) for member in network.children()]).mean(0)
        torch.testing.assert_close(said(network(x)), expected)
    assert [name for name, _ in network.named_children()] == ["0", "1", "2"]


@pytest.mark.parametrize("averages", AVERAGES)
def test_what_is_sure_stays_finite(averages: str) -> None:
    sure = [torch.tensor([[90.0, -90.0]]), torch.tensor([[-200.0, 200.0]])]
    assert mean_of(sure, averages).isfinite().all()
    torch.testing.assert_close(mean_of([sure[0]] * 2, "outputs"), sure[0])


def test_a_network_of_one_output_may_leave_its_axis_out() -> None:
    flat = [torch.nn.Sequential(torch.nn.Linear(5, 1), torch.nn.Flatten(0)) for _ in range(2)]
    found, x = MeanOf(flat, "outputs"), torch.randn(4, 5)
    assert found(x).shape == (4, 2, 1) and found.eval()(x).shape == (4,)


def test_each_network_learns_for_itself() -> None:
    network, x = _built("probabilities").train(), torch.randn(6, 5)
    assert network(x).shape == (6, 1 + 3 + 1, 3)


def test_it_is_read_and_written_alike() -> None:
    parsed = parse({"mean": MEMBERS, "averages": "probabilities"})
    assert parse(canonical(parsed).decode()) == parsed
    assert factories_in(parsed) == ("mlp", "tabular", "linear")
    assert [*factories_of(parsed)] == ["mlp", "tabular", "linear"]
    assert parse({"mean": MEMBERS})["averages"] == "outputs"


def test_it_has_an_outline_and_answers_for_batches() -> None:
    form = {"mean": MEMBERS, "averages": "probabilities"}
    assert len(outlined(architecture_of(form, {}, (5,), 3, SHIPPED))) > 5
    plain = {"mean": ["mlp", "linear"], "averages": "label_probabilities"}
    assert architecture_of(plain, {}, (5,), 3, SHIPPED).is_traced
    check_output(_built("probabilities"), (5,), 3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"mean": MEMBERS[:1]},
        {"mean": "mlp"},
        {"mean": [*MEMBERS] * 6},
        {"mean": ["mlp", {"mean": MEMBERS}]},
        {"mean": ["mlp", {"per": "a", "groups": 2, "place": 0, "network": "mlp"}]},
        {"mean": MEMBERS, "averages": "medians"},
        {"mean": MEMBERS, "head": "mlp"},
        {"mean": ["mlp", 3]},
        {"mean": ["mlp", "nothing"]},
        {"mean": ["mlp(hidden=[100, 100])"] * 3},
    ],
    ids=str,
)
def test_what_has_no_mean_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArchitectureError):
        build(wrong, {}, (5,), 3, SHIPPED, max_parameters=30_000)


def test_several_inputs_or_labels_have_no_mean() -> None:
    for shape, outputs in (({"a": (3,), "b": (3,)}, 2), ((3,), {"y": 2, "z": 2})):
        with pytest.raises(ArchitectureError, match="one input and one label"):
            build({"mean": ["mlp", "linear"]}, {}, shape, outputs, SHIPPED)  # type: ignore[arg-type]


def test_arguments_of_a_candidate_become_its_networks() -> None:
    headed = parse({"backbone": "mlp(hidden=[3])", "cut": "1", "head": "linear"})
    found = with_arguments(parse("mlp(hidden=[3])"), {"hidden": [5]})
    assert found["arguments"] == {"hidden": [5]}
    inner: Any = with_arguments(headed, {"dropout": 0.5})["backbone"]
    assert inner["arguments"] == {"hidden": [3], "dropout": 0.5}
    last = {"name": "a", "op": "Linear", "args": {"out_features": "$width"}}
    layers: dict[str, object] = {"layers": [last]}
    assert with_arguments(layers, {}) == layers
    built = build({"mean": [with_arguments(layers, {"width": 3})] * 2}, {}, (5,), 3, SHIPPED)
    assert built.eval()(torch.zeros(2, 5)).shape == (2, 3)
