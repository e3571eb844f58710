"""Probing writes down every layer, and leaves no trace."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from mmdb.errors import InvalidInput, InvalidOption, TrainingFailed
from mmdb.probe import ProbeRecord, ProbeSummary, probe, reproducible
from mmdb.store.tensors.tensor_bytes import hash_of


def seeded(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """Return a module whose initial weights draw from `seed`."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make()


def values(*shape: int, seed: int = 0) -> torch.Tensor:
    """Return normal values (*shape) of a seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return an optimizer with state."""
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def records(summary: ProbeSummary, path: str, number: int = 0) -> list[ProbeRecord]:
    """Return the calls of a layer in a pass."""
    return [record for record in summary.passes[number].records if record.path == path]


def named(tensor: torch.Tensor) -> str:
    """Return the name under which the store keeps a tensor."""
    return hash_of(tensor).hex()


class Residual(nn.Module):
    """A block with an addition in place, an activation in place that is called twice, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(4, 4, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.5)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.drop(self.relu(self.bn1(self.conv1(x))))
        y = self.conv2(y)
        y += x
        found: torch.Tensor = self.relu(y)
        return found


def network() -> nn.Module:
    """Return a small network with all that Residual has."""
    return seeded(
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), Residual(), nn.Flatten(), nn.Linear(64, 5))
    )


IMAGES = values(2, 3, 6, 6)
CLASSES = torch.tensor([1, 3])
TRAINING: dict[str, Any] = {
    "targets": CLASSES,
    "loss": nn.functional.cross_entropy,
    "mode": "training",
}


# -- what is written down -----------------------------------------------------


def test_each_call_of_a_layer_is_a_record_in_the_order_of_execution() -> None:
    found = probe(network(), IMAGES).passes[0].records
    calls = [(record.path, record.kind, record.call) for record in found]
    assert calls == [
        ("0", "Conv2d", 0),
        ("1.conv1", "Conv2d", 0),
        ("1.bn1", "BatchNorm2d", 0),
        ("1.relu", "ReLU", 0),
        ("1.drop", "Dropout", 0),
        ("1.conv2", "Conv2d", 0),
        ("1.relu", "ReLU", 1),
        ("2", "Flatten", 0),
        ("3", "Linear", 0),
        ("", "Sequential", 0),
    ]


def test_a_digest_is_the_name_under_which_the_store_keeps_the_tensor() -> None:
    module = network()
    found = probe(module, IMAGES)
    assert found.inputs == {"": named(IMAGES)}
    assert found.parameters == {path: named(p) for path, p in module.named_parameters()}
    assert found.buffers == {path: named(b) for path, b in module.named_buffers()}
    with torch.no_grad():
        output = module.eval()(IMAGES)
    assert records(found, "")[0].outputs == {"": named(output)}
    digest = found.digests[named(output)]
    assert (digest.dtype, digest.shape, digest.nan_count) == ("float32", (2, 5), 0)
    assert digest.max == output.max().item()
    assert digest.l2 == pytest.approx(output.double().norm().item())


def test_an_input_that_a_layer_overwrites_is_written_down_as_it_was() -> None:
    module = nn.Sequential(nn.ReLU(inplace=True))
    given = values(8)
    kept = given.clone()
    record = records(probe(module, given), "0")[0]
    assert record.inputs["0"] == named(kept)
    assert record.outputs[""] == named(kept.relu())
    assert torch.equal(given, kept)


def test_gradients_are_those_of_backpropagation() -> None:
    module = network()
    found = probe(module, IMAGES, **TRAINING, keep="tensors").passes[0]
    module.train()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        loss = nn.functional.cross_entropy(module(IMAGES), CLASSES)
        loss.backward()
    assert found.loss == named(loss)
    assert found.gradients == {path: named(p.grad) for path, p in module.named_parameters()}  # type: ignore[arg-type]


def test_the_gradient_of_an_input_is_what_this_layer_adds_to_it() -> None:
    class Fork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.left, self.right = (nn.Linear(3, 3, bias=False) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.first(x)
            return torch.cat([self.left(h), self.right(h)])

    module = seeded(Fork)
    found = probe(module, values(2, 3), mode="training", keep="tensors")

    def gradient(path: str, kind: str) -> torch.Tensor:
        (name,) = getattr(records(found, path)[0], kind).values()
        return found.tensors[name]

    left, right = gradient("left", "grad_inputs"), gradient("right", "grad_inputs")
    torch.testing.assert_close(
        left, gradient("left", "grad_outputs") @ module.get_parameter("left.weight")
    )
    torch.testing.assert_close(gradient("first", "grad_outputs"), left + right)
    assert records(found, "first")[0].grad_inputs == {}  # the data need no gradient


def test_the_gradient_of_the_data_is_written_down_if_they_require_one() -> None:
    given = values(2, 3).requires_grad_()
    found = probe(seeded(lambda: nn.Linear(3, 3)), given, mode="training")
    assert set(records(found, "")[0].grad_inputs) == {"0"}
    assert given.grad is None


def test_backward_ticks_run_against_the_order_of_the_layers() -> None:
    found = probe(network(), IMAGES, **TRAINING).passes[0].records
    ticks = [record.backward_started for record in found if record.path]
    assert None not in ticks
    assert ticks == sorted(ticks, reverse=True)  # type: ignore[type-var]


def test_nested_inputs_and_outputs_have_names() -> None:
    @dataclass
    class Answer:
        hidden: torch.Tensor
        scores: list[torch.Tensor]

    class Nested(nn.Module):
        def forward(self, x: dict[str, torch.Tensor], *, scale: torch.Tensor) -> Any:
            return Answer(x["a"] * scale, [x["b"], x["b"] + 1]), "text", None

    given = {"x": {"a": values(2), "b": values(3)}, "scale": torch.tensor(2.0)}
    record = records(probe(Nested(), given), "")[0]
    assert list(record.inputs) == ["x.a", "x.b", "scale"]
    assert list(record.outputs) == ["0.hidden", "0.scores.0", "0.scores.1"]


def test_a_layer_with_children_and_weights_of_its_own_is_written_down() -> None:
    module = seeded(lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True))
    found = probe(module, values(2, 3, 8).requires_grad_(), mode="training")
    attention = records(found, "self_attn")[0]
    assert attention.kind == "MultiheadAttention"
    assert list(attention.outputs) == ["0"]  # the weights of attention are None
    assert set(attention.inputs) == {"0", "1", "2"}
    assert set(attention.grad_inputs) == {"0"}  # the three are one tensor


def test_recurrent_layers_hand_on_tuples() -> None:
    found = probe(seeded(lambda: nn.LSTM(3, 4)), values(5, 2, 3), mode="training")
    record = records(found, "")[0]
    assert list(record.outputs) == ["0", "1.0", "1.1"]
    assert set(record.grad_outputs) == {"0", "1.0", "1.1"}


def test_modules_that_share_weights_name_them_at_each_layer() -> None:
    module = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    module[1].weight = module[0].weight
    found = probe(module, values(2, 3), mode="training")
    assert found.parameters["0.weight"] == found.parameters["1.weight"]
    assert set(found.passes[0].gradients) == {"0.weight", "1.weight"}


def test_recomputed_layers_are_called_again() -> None:
    class Saving(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(3, 3), nn.Sigmoid(), nn.Linear(3, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = checkpoint(self.inner, x, use_reentrant=False)
            return found

    found = probe(seeded(Saving), values(2, 3), mode="training")
    first, again = records(found, "inner.0")
    assert (first.call, again.call) == (0, 1)
    assert first.outputs == again.outputs


def test_sparse_gradients_and_frozen_or_unused_parameters() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(10, 3, sparse=True)
            self.frozen = nn.Linear(3, 3).requires_grad_(False)
            self.unused = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.frozen(self.embed(x))
            return found

    found = probe(seeded(Words), torch.tensor([1, 2, 1]), mode="training")
    assert set(found.passes[0].gradients) == {"embed.weight"}
    digest = found.digests[found.passes[0].gradients["embed.weight"]]
    assert digest.shape == (10, 3)


def test_batch_norm_and_the_optimizer_step_show_up_after_the_pass() -> None:
    found = probe(network(), IMAGES, **TRAINING, optimizer=sgd, passes=2)
    first, second = found.passes
    assert first.buffers_after["1.bn1.running_mean"] != found.buffers["1.bn1.running_mean"]
    assert first.parameters_after["3.weight"] != found.parameters["3.weight"]
    assert second.parameters_after["3.weight"] != first.parameters_after["3.weight"]
    assert probe(network(), IMAGES).passes[0].buffers_after == {}


def test_patterns_choose_the_layers() -> None:
    found = probe(network(), IMAGES, layers=["1.conv?", "1"])
    paths = [record.path for record in found.passes[0].records]
    assert paths == ["1.conv1", "1.conv2", "1", ""]
    assert "3.weight" in found.parameters


def test_tensors_are_kept_once_each_and_within_bounds() -> None:
    all_of_them = probe(network(), IMAGES, keep="tensors")
    assert set(all_of_them.tensors) == set(all_of_them.digests)
    for name, tensor in all_of_them.tensors.items():
        assert named(tensor) == name
    some = probe(network(), IMAGES, keep="tensors", max_bytes=2000)
    assert 0 < sum(tensor.nbytes for tensor in some.tensors.values()) <= 2000
    assert some.dropped == len(some.digests) - len(some.tensors) > 0


def test_ten_thousand_layers() -> None:
    module = nn.Sequential(*(nn.ReLU() for _ in range(10_000)))
    found = probe(module, values(2))
    assert len(found.passes[0].records) == 10_001


# -- the text form ------------------------------------------------------------


def test_a_summary_survives_its_text() -> None:
    found = probe(network(), IMAGES, **TRAINING, optimizer=sgd, passes=2, layers=["1.*"])
    text = found.to_json()
    again = ProbeSummary.from_json(text)
    assert again == found
    assert again.to_json() == text


def test_statistics_that_are_no_numbers_survive_the_text() -> None:
    nan, inf = float("nan"), float("inf")
    given = (
        torch.tensor([nan, inf, -inf]),
        torch.tensor([nan]),
        torch.zeros(0),
        torch.tensor(True),
    )
    module = nn.Sequential()
    module.forward = lambda *args: args[0]  # type: ignore[method-assign]
    found = probe(module, given)
    assert ProbeSummary.from_json(found.to_json()) == found
    mixed, lost, empty, truth = (found.digests[found.inputs[name]] for name in "0123")
    assert (mixed.min, mixed.max, mixed.mean, mixed.nan_count) == (-inf, inf, None, 1)
    assert (lost.min, lost.l2, lost.nan_count) == (None, None, 1)
    assert (empty.max, empty.shape) == (None, (0,))
    assert (truth.mean, truth.dtype, truth.shape) == (1.0, "bool", ())


@pytest.mark.parametrize(
    "dtype",
    ["bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "int8", "uint64", "float64"],
)
def test_every_dtype_has_a_digest(dtype: str) -> None:
    given = torch.ones(3, 2).to(getattr(torch, dtype)).T
    digest = probe(nn.Identity(), given).digests[named(given)]
    assert (digest.dtype, digest.shape, digest.max) == (dtype, (2, 3), 1.0)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format":1}', '{"format":2}', "nonsense"])
def test_what_is_no_summary_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="probe summary"):
        ProbeSummary.from_json(text)


def test_a_summary_that_lacks_a_digest_is_refused() -> None:
    found = probe(nn.Identity(), values(2))
    text = found.to_json().replace(found.inputs[""], "00", 1)
    with pytest.raises(InvalidInput, match="probe summary"):
        ProbeSummary.from_json(text)


# -- no trace -----------------------------------------------------------------


class Meddling(nn.Module):
    """Changes all that a forward pass can change, then raises if it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()
        self.seen: torch.Tensor
        self.count = 0
        self.register_buffer("seen", torch.zeros(3))
        self.register_buffer("nothing", None)
        self.raises = False
        self.memory = torch.zeros(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.cache = x
        self.seen = self.seen + 1  # another tensor in its place
        self.memory.add_(1)
        self.inner.get_parameter("3.weight").data.mul_(0.5)
        self.inner.get_submodule("0").requires_grad_(False)
        random.random()
        np.random.random()
        found: torch.Tensor = self.inner(x)
        if self.raises:
            raise RuntimeError("told to")
        return found


def process_state() -> list[Any]:
    """Return what a process shares with the probe."""
    return [
        torch.get_rng_state().tolist(),
        random.getstate(),
        np.random.get_state()[1].tolist(),  # type: ignore[index]
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.get_num_threads(),
        torch.backends.cudnn.benchmark,
        torch.is_grad_enabled(),
    ]


def module_state(module: nn.Module) -> dict[str, Any]:
    """Return all that can be seen of a module, tensors by identity and by bits."""
    seen: dict[str, Any] = {"memory": module.memory.tolist()}  # type: ignore[operator]
    for path, part in module.named_modules():
        seen[path] = [sorted(part.__dict__), part.training, len(part._forward_hooks)]
        seen[path] += [len(part._forward_pre_hooks), len(part._forward_hooks_with_kwargs)]
        for name, tensor in (*part._parameters.items(), *part._buffers.items()):
            if tensor is not None:
                seen[f"{path}.{name}"] = (id(tensor), named(tensor), tensor.requires_grad)
                seen[f"{path}.{name}.grad"] = (
                    id(tensor.grad),
                    tensor.grad is not None and named(tensor.grad),
                )
    return seen


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("raises", [False, True])
def test_probing_leaves_no_trace(mode: str, raises: bool) -> None:
    module = seeded(Meddling)
    module.get_submodule("inner.1").eval()
    module.get_parameter("inner.1.conv1.weight").grad = torch.ones(4, 4, 3, 3)
    module.raises = raises  # type: ignore[assignment]
    before, process = module_state(module), process_state()
    options = TRAINING | {"optimizer": sgd, "passes": 2} if mode == "training" else {}
    if raises:
        with pytest.raises(TrainingFailed, match="told to"):
            probe(module, IMAGES, seed=5, threads=1, **options)
    else:
        probe(module, IMAGES, seed=5, threads=1, **options)
    assert module_state(module) == before
    assert process_state() == process
    assert module.count == 0


def test_a_switch_that_only_warns_goes_on_to_warn() -> None:
    try:
        torch.use_deterministic_algorithms(True, warn_only=True)
        probe(nn.Identity(), values(2))
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_backward_pass_of_ones_own_goes_on_after_a_probe() -> None:
    module = seeded(lambda: nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 1)))
    output = module(values(2, 3)).sum()
    probe(module, values(2, 3), mode="training")
    output.backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_it_works_where_gradients_are_switched_off() -> None:
    module = seeded(lambda: nn.Linear(3, 3))
    expected = probe(module, values(2, 3), mode="training")
    with torch.no_grad():
        assert probe(module, values(2, 3), mode="training") == expected
    with torch.inference_mode():
        assert probe(module, values(2, 3), mode="training") == expected


# -- errors -------------------------------------------------------------------


def test_an_error_names_the_layer() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Linear(4, 4)))
    with pytest.raises(TrainingFailed, match=r"in layer '1\.0' \(Linear\): RuntimeError: mat1"):
        probe(module, values(2, 3))


def test_a_module_that_catches_the_error_of_a_layer_goes_on() -> None:
    class Trying(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.narrow = nn.Linear(9, 9), nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                found: torch.Tensor = self.wide(x)
            except RuntimeError:
                found = self.narrow(x)
            return found

    found = probe(seeded(Trying), values(2, 3))
    assert [record.path for record in found.passes[0].records] == ["narrow", ""]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "train"}, "mode is 'train'"),
        ({"keep": "all"}, "keep is 'all'"),
        ({"passes": 0}, "passes is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"threads": 0}, "threads is 0"),
        ({"layers": ["fc*"]}, "'fc\\*'"),
        ({"targets": CLASSES}, "of no use"),
        ({"mode": "training", "targets": CLASSES}, "no loss"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        probe(nn.Linear(3, 3), values(2, 3), **options)


@pytest.mark.parametrize(
    "module", [nn.Linear(3, 3, device="meta"), nn.LazyLinear(3)], ids=["meta", "lazy"]
)
def test_weights_that_are_not_there_are_refused(module: nn.Module) -> None:
    with pytest.raises(InvalidInput, match="'weight'"):
        probe(module, values(2, 3))


@pytest.mark.parametrize(
    "loss", [lambda output: output, lambda output: 3.0, lambda output: output.detach().sum()]
)
def test_a_loss_without_a_gradient_is_refused(loss: Callable[[Any], Any]) -> None:
    with pytest.raises(InvalidInput, match="loss"):
        probe(nn.Linear(3, 3), values(2, 3), mode="training", loss=loss)


def test_an_optimizer_that_fails_is_blamed() -> None:
    def refuses(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=-1.0)

    with pytest.raises(TrainingFailed, match="optimizer"):
        probe(nn.Linear(3, 3), values(2, 3), mode="training", optimizer=refuses)


# -- the same twice -----------------------------------------------------------


def test_training_with_dropout_is_reproducible_from_one_seed() -> None:
    found = reproducible(network(), IMAGES, **TRAINING, optimizer=sgd, passes=2)
    assert found.equal
    assert found.compared > 100


def test_a_function_makes_the_same_initial_weights_each_time() -> None:
    assert reproducible(lambda: nn.Linear(3, 3), values(2, 3)).equal


def test_randomness_of_its_own_is_found_and_named() -> None:
    private = torch.Generator().manual_seed(0)

    class Noise(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.randn(x.shape, generator=private)

    found = reproducible(nn.Sequential(nn.Linear(3, 3), Noise(), nn.ReLU()), values(2, 3))
    assert found.first is not None
    assert (found.first.path, found.first.kind, found.first.what) == ("1", "Noise", "output")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"module": 5}, "module is 5"),
        ({"passes": None}, "passes is NULL"),
        ({"seed": True}, "seed is True"),
        ({"layers": [5]}, r"layers is \[5\]"),
        ({"threads": 1.5}, "threads is 1.5"),
    ],
)
def test_an_argument_of_a_wrong_type_is_named(given: dict[str, Any], named: str) -> None:
    all_given: dict[str, Any] = {"module": nn.Linear(2, 1), "inputs": torch.ones(1, 2)} | given
    with pytest.raises(InvalidOption, match=named) as raised:
        probe(**all_given)
    assert raised.value.hint
