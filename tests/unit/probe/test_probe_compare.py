"""Two probes side by side: the first difference is the cause, and the others are listed."""

from __future__ import annotations

import copy
import json
import math
from io import StringIO
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from torch import nn

from mmdb import terminal
from mmdb.probe import Comparison, ProbeSummary, compare, probe
from mmdb.probe.table import table_lines


def network(seed: int = 0) -> nn.Sequential:
    """Return conv, batch norm, dropout, two linear layers and one that is called twice."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shared = nn.Linear(6, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.shared(torch.relu(self.shared(x)))
            return found

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(2, 3, 3),
            nn.BatchNorm2d(3),
            nn.Dropout(0.5),
            nn.Flatten(),
            nn.Linear(27, 6),
            Twice(),
            nn.Linear(6, 4),
        )


DATA = torch.randn(4, 2, 5, 5, generator=torch.Generator().manual_seed(0))


def flip(module: nn.Module, path: str, element: int = 0, bit: int = 0) -> nn.Module:
    """Return a copy of a module with one bit of one weight flipped."""
    changed = copy.deepcopy(module)
    with torch.no_grad():
        changed.get_parameter(path).view(-1).view(torch.int32)[element] ^= 1 << bit
    return changed


def probed(module: nn.Module, **options: Any) -> ProbeSummary:
    """Return a probe in training, with tensors."""
    return probe(module, DATA, **({"mode": "training", "keep": "tensors"} | options))


def whats(comparison: Comparison, path: str) -> set[str]:
    """Return in what a layer differs."""
    return {each.what for each in comparison.differences if each.path == path}


def test_equal_modules_are_equal() -> None:
    found = compare(probed(network()), probed(copy.deepcopy(network())))
    assert (found.verdict, found.reasons, found.first) == ("equal", (), None)
    assert found.compared > 60


def test_a_probe_equals_what_was_read_back_from_its_text() -> None:
    one = probed(network())
    assert compare(one, ProbeSummary.from_json(one.to_json())).equal


def test_a_flipped_bit_is_named_with_all_that_it_moves() -> None:
    module = network()
    found = compare(probed(module), probed(flip(module, "4.weight", element=30, bit=20)))
    assert found.verdict == "different"
    assert found.first is not None
    assert (found.first.path, found.first.what, found.first.name) == ("4", "parameter", "weight")
    assert found.first.magnitude is not None
    assert found.first.magnitude.changed == 1
    assert found.first.magnitude.first_index == (1, 3)
    forward = {"parameter", "buffer", "input", "output"}
    for path in ("0", "1", "2", "3"):
        assert not whats(found, path) & forward
    for path in ("5.shared", "6", ""):
        assert whats(found, path) >= {"output", "grad_output"}
    assert whats(found, "0") == {"grad_output", "grad_parameter"}


def test_both_calls_of_a_layer_are_listed() -> None:
    module = network()
    found = compare(probed(module), probed(flip(module, "5.shared.bias", bit=20)))
    outputs = [d for d in found.differences if (d.path, d.what) == ("5.shared", "output")]
    assert [each.call for each in outputs] == [0, 1]
    assert outputs[1].layer == "5.shared call 2"
    assert found.first is not None
    assert str(found.first).startswith("parameter bias of 5.shared (Linear): 1 of 6 elements")


def test_another_seed_shows_first_at_the_dropout() -> None:
    found = compare(probed(network()), probed(network(), seed=1))
    assert (found.verdict, found.reasons) == ("not comparable", ("seed: 0 and 1",))
    assert found.first is not None
    assert (found.first.path, found.first.kind, found.first.what) == ("2", "Dropout", "output")


def test_another_seed_of_a_module_without_randomness_is_equal() -> None:
    found = compare(probed(network().eval(), mode="inference"), probe(network(), DATA, seed=1))
    assert (found.verdict, found.equal) == ("equal", True)
    assert found.reasons == ("seed: 0 and 1",)


def test_a_gradient_that_differs_by_itself_is_first() -> None:
    class Noisy(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0] + torch.randn(grads[0].shape)

    class Layer(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return Noisy.apply(x)  # type: ignore[no-untyped-call]

    module = nn.Sequential(nn.Linear(50, 3), Layer(), nn.Linear(3, 3))
    data = DATA.reshape(4, 50)
    found = compare(*(probe(module, data, mode="training", seed=seed) for seed in (0, 1)))
    assert found.first is not None
    assert (found.first.path, found.first.what) == ("1", "grad_input")
    assert {each.path for each in found.differences} == {"1", "0"}


def test_a_buffer_that_differs_after_the_step_comes_last() -> None:
    module = network()
    other = copy.deepcopy(module)
    momentum = other.get_submodule("1")
    assert isinstance(momentum, nn.BatchNorm2d)
    momentum.momentum = 0.5
    found = compare(probed(module), probed(other))
    assert {each.what for each in found.differences} == {"buffer_after"}
    assert {each.name for each in found.differences} == {"running_mean", "running_var"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mode": "inference"}, "mode: 'training' and 'inference'"),
        ({"passes": 2}, "passes: 1 and 2"),
        ({"layers": ["0"]}, "layers: None and ('0',)"),
    ],
)
def test_probes_that_did_not_do_the_same_are_not_comparable(
    options: dict[str, Any], reason: str
) -> None:
    found = compare(probed(network()), probed(network(), **options))
    assert (found.verdict, found.reasons) == ("not comparable", (reason,))


def test_other_inputs_are_not_comparable() -> None:
    found = compare(probe(network(), DATA), probe(network(), DATA + 1))
    assert found.reasons == ("inputs: they are not the same tensors",)
    assert found.verdict == "not comparable"


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (nn.Linear(6, 5), "architecture: 6.weight is float32 [4, 6] and float32 [5, 6]"),
        (nn.Linear(6, 4, bias=False), "architecture: 6.bias is float32 [4] and nothing"),
        (nn.Identity(), "architecture: 6 is Linear and Identity"),
    ],
)
def test_another_architecture_is_not_comparable(layer: nn.Module, reason: str) -> None:
    other = network()
    other[6] = layer
    found = compare(probe(network(), DATA), probe(other, DATA))
    assert (found.verdict, found.reasons) == ("not comparable", (reason,))
    assert {each.path for each in found.differences} <= {"6", ""}


def test_the_order_of_the_probes_does_not_matter() -> None:
    one, other = probed(network()), probed(flip(network(), "4.weight", bit=20))
    there, back = compare(one, other), compare(other, one)
    assert [(d.path, d.what) for d in there.differences] == [
        (d.path, d.what) for d in back.differences
    ]


# -- how much -----------------------------------------------------------------

FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)


@settings(max_examples=40, deadline=None)
@given(pairs=st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=6))
def test_digests_alone_never_claim_more_than_the_tensors_show(
    pairs: list[tuple[float, float]],
) -> None:
    a, b = (torch.tensor(side) for side in zip(*pairs, strict=True))
    kept = [probe(nn.Identity(), side, keep="tensors") for side in (a, b)]
    digests = [probe(nn.Identity(), side) for side in (a, b)]
    exact, bound = compare(kept[0], kept[1]), compare(digests[0], digests[1])
    assert exact.equal == bound.equal
    for sure, least in zip(exact.differences, bound.differences, strict=True):
        assert sure.magnitude is not None
        assert least.magnitude is not None
        assert (sure.magnitude.exact, least.magnitude.exact) == (True, False)
        assert least.magnitude.max_abs <= sure.magnitude.max_abs * (1 + 1e-9)
        assert not math.isnan(sure.magnitude.max_abs)
    json.loads(exact.to_json())


def test_bits_that_differ_in_equal_numbers_are_a_difference() -> None:
    sides = torch.tensor([1.0, 0.0]), torch.tensor([1.0, -0.0])
    found = compare(*(probe(nn.Identity(), side, keep="tensors") for side in sides))
    assert found.first is not None
    assert found.first.magnitude is not None
    assert found.first.magnitude.max_abs == 0.0
    assert found.first.magnitude.first_index == (1,)


def test_the_size_of_a_difference_is_told_in_words() -> None:
    one, other = torch.zeros(2, 3), torch.zeros(2, 3)
    other[1, 0] = 0.25
    kept = compare(*(probe(nn.Identity(), side, keep="tensors") for side in (one, other)))
    known = compare(*(probe(nn.Identity(), side) for side in (one, other)))
    assert str(kept.first) == (
        "input 0 of (model) (Identity): 1 of 6 elements differs, by at most 0.25, first at [1, 0]"
    )
    assert str(known.first) == "input 0 of (model) (Identity): by at least 0.25"


# -- what people see ----------------------------------------------------------


def deep(layers: int = 150) -> nn.Sequential:
    """Return a stack of small layers."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers)))
        for layer in module.parameters():  # lengths are kept, so that differences go through
            if layer.ndim == 2:
                nn.init.orthogonal_(layer)
    return module


def test_equal_runs_of_layers_are_one_line_and_the_first_difference_stands_out() -> None:
    data, module = torch.ones(2, 4), deep()
    found = compare(probe(module, data), probe(flip(module, "100.weight", bit=22), data))
    lines = table_lines(found, width=80)
    assert [line for line, first in lines if first] == [
        line for line, _ in lines if line.startswith("→ 100 ")
    ]
    text = [line for line, _ in lines]
    assert text[0].split() == ["layer", "class", "w", "in", "out", "largest"]
    assert text[1] == "  … 98 equal: 0 to 97"
    assert text[4].split()[:6] == ["→", "100", "Linear", "≠", "=", "≠"]
    assert text[-2] == "  … 40 differ: 110 to 149"
    assert text[-1].split()[0] == "(model)"
    assert len(lines) == 16


def test_layers_that_differ_only_on_the_way_back_are_told_so() -> None:
    data, module = torch.ones(2, 4), deep()
    sides = (module, flip(module, "100.weight", bit=22))
    found = compare(*(probe(side, data, mode="training") for side in sides))
    assert table_lines(found, width=80)[1][0] == (
        "  … 98 differ only after the forward pass: 0 to 97"
    )


@pytest.mark.parametrize("width", [30, 60, 80, 200])
def test_the_table_fits_the_terminal(width: int) -> None:
    name = "a_rather_long_name_of_a_layer_that_is_deep_inside"
    module = nn.Sequential()
    module.add_module(name, nn.Linear(4, 4))
    data = torch.ones(2, 4)
    sides = (module, flip(module, f"{name}.weight", bit=22))
    lines = table_lines(compare(*(probe(side, data) for side in sides)), width=width)
    assert all(len(line) <= max(width, 40) for line, _ in lines)


def test_a_comparison_is_shown_in_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=StringIO(), width=80)
    monkeypatch.setattr(terminal, "console", console)
    module = network()
    one = probed(module)
    terminal.show_probe_comparison(compare(one, one))
    terminal.show_probe_comparison(compare(one, probed(flip(module, "4.weight", bit=20), seed=2)))
    assert isinstance(console.file, StringIO)
    lines = console.file.getvalue().splitlines()
    assert lines[0].startswith("equal: ")
    assert lines[1].startswith("not comparable: ")
    assert lines[2] == "seed: 0 and 2"
    assert lines[3].startswith("first: output of 2 (Dropout): ")
    assert sum(line.startswith("→") for line in lines) == 1
