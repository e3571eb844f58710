from __future__ import annotations

import copy
import random
import threading
from itertools import pairwise
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from mmdb.errors import NotACut
from mmdb.graph.cut.cut import (
    backbone_of,
    chain_of,
    cuts_of,
    frozen_paths,
    prefix_of,
    rest_of,
    stage_of,
)
from mmdb.graph.spec.build import initial_module
from mmdb.graph.spec.layer_form import traced
from tests.unit.graph.cut.checked import check_cut
from tests.unit.graph.cut.networks import (
    CASES,
    TOKENS,
    WIDTH,
    Masked,
    Pictures,
    Tied,
    Words,
    masked,
    pictures,
    words,
)

AT = [(case, cut) for case in sorted(CASES) for cut in CASES[case][2]]


@pytest.fixture(scope="module")
def networks() -> dict[str, tuple[nn.Module, Any]]:
    """Each network in training mode, with statistics that are not the initial ones, and rows."""
    torch.manual_seed(0)
    made = {}
    for case in sorted(CASES):
        make, rows, _ = CASES[case]
        network = make()
        for part in network.modules():
            if isinstance(part, nn.BatchNorm2d):
                cast("Tensor", part.running_mean).normal_()
                cast("Tensor", part.running_var).uniform_(0.5, 2.0)
        made[case] = network, rows()
    return made


def run(module: nn.Module, rows: Any) -> Any:
    with torch.no_grad():
        return module(**rows) if isinstance(rows, dict) else module(rows)


def evaluated(network: nn.Module, rows: Any) -> Tensor:
    network.eval()
    try:
        return cast("Tensor", run(network, rows))
    finally:
        network.train()


@pytest.mark.parametrize("case", sorted(CASES))
def test_every_place_to_cut_is_found_in_the_order_in_which_it_runs(
    networks: dict[str, tuple[nn.Module, Any]], case: str
) -> None:
    assert cuts_of(networks[case][0]) == CASES[case][2]


@pytest.mark.parametrize(("case", "cut"), AT)
def test_both_parts_give_the_bits_of_the_whole(
    networks: dict[str, tuple[nn.Module, Any]], case: str, cut: str
) -> None:
    network, rows = networks[case]
    before = {path: tensor.clone() for path, tensor in network.state_dict().items()}
    prefix, rest = prefix_of(network, cut), rest_of(network, cut)
    assert not prefix.train().training and not any(p.requires_grad for p in prefix.parameters())
    assert rest.training and network.training
    features = run(prefix, rows)
    kept = features.clone()
    found = run(rest.eval(), features)
    assert torch.equal(found, evaluated(network, rows))
    assert torch.equal(features, kept)  # whatever works in place there
    assert torch.equal(prefix(**rows) if isinstance(rows, dict) else prefix(rows), features)
    after = network.state_dict()
    assert all(torch.equal(after[path], tensor) for path, tensor in before.items())
    check_cut(network, cut, **rows) if isinstance(rows, dict) else check_cut(network, cut, rows)


@pytest.mark.parametrize(("case", "cut"), AT)
def test_tensors_are_shared_and_stand_at_their_paths(
    networks: dict[str, tuple[nn.Module, Any]], case: str, cut: str
) -> None:
    network = networks[case][0]
    whole = network.state_dict()
    prefix, rest = prefix_of(network, cut).state_dict(), rest_of(network, cut).state_dict()
    for part in (prefix, rest):
        assert all(part[path].data_ptr() == whole[path].data_ptr() for path in part)
    held = frozen_paths(network, cut)
    assert set(prefix) <= set(held)
    assert {whole[path].data_ptr() for path in held} == {t.data_ptr() for t in prefix.values()}
    learned = {path for path, p in rest_of(network, cut).named_parameters() if p.requires_grad}
    assert not learned & set(held)
    unused = {"unused.weight", "unused.bias"} & set(whole)
    assert set(prefix) | set(rest) | set(held) | unused == set(whole)


@pytest.mark.parametrize("case", sorted(CASES))
def test_one_pass_and_every_stage_give_the_bits_of_each_prefix(
    networks: dict[str, tuple[nn.Module, Any]], case: str
) -> None:
    network, rows = networks[case]
    cuts = CASES[case][2]
    alone = {cut: run(prefix_of(network, cut), rows) for cut in cuts}
    backwards = [(cut, "none") for cut in reversed(cuts)]
    together = run(chain_of(network, backwards), rows)
    for (cut, _), features in zip(backwards, together, strict=True):
        assert torch.equal(features, alone[cut]) and features.is_contiguous()
    for source, cut in [*pairwise(cuts), (cuts[0], cuts[-1])]:
        stage = stage_of(network, source, cut, "flatten")
        assert not any(p.requires_grad for p in stage.parameters())
        assert torch.equal(run(stage, alone[source]), alone[cut].flatten(1))


def wired(seed: int) -> dict[str, object]:
    """Return a layer graph of eight layers, each over one or two before it, all of them used."""
    draw = random.Random(seed)
    inputs: list[list[str]] = []
    for number in range(8):
        near = ["input", *(f"l{n}" for n in range(number))][-3:]
        inputs.append(sorted(draw.sample(near, min(len(near), draw.choice((1, 1, 2))))))
    read = {name for names in inputs for name in names}
    ends = [f"l{n}" for n in range(8) if f"l{n}" not in read]
    layers: list[dict[str, object]] = [
        {"name": f"l{n}", "op": "add" if len(names) > 1 else "Linear", "inputs": names,
         "args": {} if len(names) > 1 else {"out_features": 4}}
        for n, names in enumerate(inputs)
    ]  # fmt: skip
    if len(ends) > 1:
        layers.append({"name": "end", "op": "add", "inputs": ends})
    return {"layers": layers}


def passed_by_all(graph: dict[str, object], name: str) -> bool:
    """Return whether every way from the input to the last layer leads through one of them."""
    layers = cast("list[dict[str, Any]]", graph["layers"])
    reached = {"input"}
    for layer in layers:
        if layer["name"] != name and reached & set(layer["inputs"]):
            reached.add(layer["name"])
    return layers[-1]["name"] not in reached


def test_cuts_are_what_every_way_through_random_graphs_passes() -> None:
    some = 0
    for seed in range(25):
        graph = wired(seed)
        names = [
            cast("str", layer["name"]) for layer in cast("list[dict[str, Any]]", graph["layers"])
        ]
        expected = tuple(name for name in names if passed_by_all(graph, name))
        network = initial_module(graph, {}, (4,), 1, {}, seed=seed).eval()
        assert cuts_of(network) == expected
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))
        for name in names:
            if name not in expected:
                with pytest.raises(NotACut):
                    rest_of(network, name)
                continue
            found = run(rest_of(network, name), run(prefix_of(network, name), x))
            assert torch.equal(found, run(network, x))
        some += len(expected) < len(names)
    assert some > 8


def test_pools_are_taken_before_what_follows_changes_the_outputs_in_place() -> None:
    network = Pictures()
    cuts = [("bn1", "flatten"), ("bn1", "none"), ("layer1.0", "mean"), ("layer1", "mean")]
    x = pictures()
    found = run(chain_of(network, cuts), x)
    for (cut, pool), features in zip(cuts, found, strict=True):
        assert torch.equal(features, run(prefix_of(network, cut, pool), x))
    assert found[0].min() < 0 and found[2].shape == (4, WIDTH)
    assert torch.equal(found[2], run(prefix_of(network, "layer1.0"), x).mean(dim=(2, 3)))


def test_the_rest_trains_as_the_network_does() -> None:
    torch.manual_seed(1)
    network = Pictures()
    features = run(prefix_of(network, "layer1"), pictures())
    rest = rest_of(network, "layer1")
    optimizer = torch.optim.SGD(rest.parameters(), lr=0.5)
    before = network.fc.weight.detach().clone(), network.conv1.weight.detach().clone()
    rest(features).square().mean().backward()
    optimizer.step()
    assert not torch.equal(network.fc.weight, before[0])
    assert torch.equal(network.conv1.weight, before[1])


def test_a_functional_dropout_follows_the_mode_of_the_rest() -> None:
    torch.manual_seed(2)
    network = Words()
    network.dropout.p = 0.0
    rest = rest_of(network, "encoder")
    features = run(prefix_of(network, "encoder"), words(16))
    assert not torch.equal(run(rest, features), run(rest, features))
    rest.eval()
    assert torch.equal(run(rest, features), run(rest, features))


def test_any_number_of_rows_passes() -> None:
    network = Words()
    prefix, rest = prefix_of(network, "encoder.layers.1"), rest_of(network, "encoder.layers.1")
    for rows in (1, 2, 7):
        x = words(rows)
        assert torch.equal(run(rest.eval(), run(prefix, x)), evaluated(network, x))


def test_what_is_known_of_the_inputs_lets_more_be_followed() -> None:
    network = Words()
    assert cuts_of(network, (TOKENS,)) == ("embed", *cuts_of(network))
    prefix = prefix_of(network, "embed", inputs=(TOKENS,))
    rest = rest_of(network, "embed", inputs=(TOKENS,))
    for rows in (1, 3):
        x = words(rows)
        assert torch.equal(run(rest.eval(), run(prefix, x)), evaluated(network, x))
    with pytest.raises(NotACut) as caught:
        rest_of(network, "embed")
    assert "encoder.layers.0" in caught.value.hint


# -- tensors on both sides --------------------------------------------------------


def test_a_tied_tensor_and_a_module_on_both_sides_stay_as_they_are() -> None:
    torch.manual_seed(3)
    network = Tied()
    rest = rest_of(network, "body.0")
    learned = [path for path, p in rest.named_parameters() if p.requires_grad]
    assert learned == ["body.1.weight", "body.1.bias"]
    rest.train()
    assert rest.training and not rest.get_submodule("norm").training
    prefix = prefix_of(network, "body.0")
    assert {*dict(prefix.named_parameters())} >= {"embed.weight", "norm.weight", "body.0.bias"}
    assert set(frozen_paths(network, "body.0")) >= {"embed.weight", "out.weight", "norm.weight"}


def test_a_cut_may_be_named_by_any_path_of_its_module() -> None:
    network = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 2))
    network.add_module("other", nn.Identity())
    network.get_submodule("1").alias = network.get_submodule("0")
    x = torch.randn(3, 4)
    assert torch.equal(run(prefix_of(network, "1.alias.0"), x), run(prefix_of(network, "0.0"), x))


def test_dropout_that_runs_on_both_sides_is_off_before_the_cut_alone() -> None:
    torch.manual_seed(4)
    network = Words()
    prefix, rest = prefix_of(network, "encoder.layers.0"), rest_of(network, "encoder.layers.0")
    rest.train()
    x = words()
    assert torch.equal(run(prefix, x), run(prefix, x))
    assert rest.get_submodule("dropout").training


def test_tensors_that_no_state_dict_has_come_along() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)
            self.table = torch.randn(4)

        def forward(self, x: Tensor) -> Tensor:
            x = self.a(x * self.table) + torch.arange(4) * 2
            return cast("Tensor", self.b(x * self.table))

    network, x = Table(), torch.randn(3, 4)
    check_cut(network, "a", x)
    assert set(rest_of(network, "a").state_dict()) == {"b.weight", "b.bias"}
    assert torch.equal(
        run(copy.deepcopy(rest_of(network, "a")), run(network.a, x * network.table)),
        run(network, x),
    )


# -- traces and threads -----------------------------------------------------------


def test_a_prefix_is_traced_like_the_layers_it_holds() -> None:
    network = Pictures()
    ops = [node.op for node in traced(prefix_of(network, "bn1")).nodes]
    assert ops == ["input", "conv2d", "batch_norm2d", "output"]
    assert traced(Masked()).nodes[-1].op == "output"  # though most of it cannot be followed
    named = traced(prefix_of(Masked(), "pooler"))
    assert sum(node.op == "input" for node in named.nodes) == 2
    mean = traced(prefix_of(network, "layer1", "mean", rank=3))
    assert mean.nodes[-2].op == "mean" and mean.is_traced
    assert mean.canonical_hash != traced(prefix_of(network, "layer1")).canonical_hash


def test_a_backbone_that_trains_follows_its_mode() -> None:
    torch.manual_seed(5)
    network = Words()
    backbone = backbone_of(network, "encoder")
    x = words()
    assert all(p.requires_grad for p in backbone.parameters())
    assert not torch.equal(run(backbone, x), run(backbone, x))
    backbone.eval()
    assert torch.equal(run(backbone, x), run(prefix_of(network, "encoder"), x))


def test_other_threads_compute_while_networks_are_cut() -> None:
    torch.manual_seed(6)
    network, x = Words(), words()
    expected = evaluated(network, x)
    network.eval()
    stop = threading.Event()
    wrong: list[object] = []

    def compute() -> None:
        while not stop.is_set():
            try:
                if not torch.equal(run(network, x), expected):
                    wrong.append("other bits")
            except Exception as error:
                wrong.append(error)

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        for cut in CASES["encoder"][2]:
            prefix_of(network, cut), rest_of(network, cut)
    finally:
        stop.set()
        thread.join()
    assert not wrong


def test_inputs_by_name_may_come_in_any_order() -> None:
    network = Masked()
    rows = masked()
    names = ("mask", "ids")
    prefix = prefix_of(network, "pooler", inputs=names)
    assert torch.equal(run(prefix, rows), run(prefix, dict(reversed(rows.items()))))
    assert torch.equal(run(prefix, rows), run(prefix_of(network, "pooler"), rows))
    with pytest.raises(TypeError, match="ids"):
        run(prefix, {"ids": rows["ids"]})
