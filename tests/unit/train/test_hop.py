"""What a hop does with a candidate's configuration, against small closed forms."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmdb.data.decoding import Target
from mmdb.errors import (
    Cancelled,
    FunctionFailed,
    FunctionNotFound,
    InvalidHyperparameter,
    NotANumber,
    OutputMismatch,
    TrainingFailed,
)
from mmdb.train.candidate.losses import TrainRows
from mmdb.train.candidate.setup import Setup, check_setup, setup_of
from mmdb.train.compute.exact import neutral
from mmdb.train.compute.hop import HopOutcome, train_pass, validate_pass
from mmdb.train.compute.live import Live, build_live, encode
from mmdb.train.compute.optimizer import Portion, batches, steps
from mmdb.train.drive.candidate_check import CandidateCheck
from mmdb.train.values.row_batch import Inputs, Labels
from mmdb.train.values.runtime import TRACE_LIMIT, trace_of

ROWS, WIDTH, CLASSES = 64, 6, 3
CLASS = Target(name="digit", task="classification", size=CLASSES)
NUMBER = Target(name="price", task="regression", size=1)
TAGS = Target(name="tags", task="multilabel", size=2)
HERE = "tests.unit.train.test_hop"
FUNCTIONS = {
    "loss": {name: f"{HERE}:{name}" for name in ("squares", "rowwise", "nothing", "breaks")},
    "augmentation": {name: f"{HERE}:{name}" for name in ("noise", "drop_rows", "widen")},
}


def squares(output: Tensor, y: Tensor, *, scale: float = 1.0) -> Tensor:
    return scale * (output - y).square().mean()


def rowwise(output: Tensor, y: Tensor) -> Tensor:
    return (output - y).square()


def nothing(output: Tensor, y: Tensor) -> None:
    return None


def breaks(output: Tensor, y: Tensor) -> Tensor:
    raise ValueError("this loss is broken")


def noise(x: Tensor, generator: torch.Generator, *, std: float = 0.1) -> Tensor:
    return x + std * torch.randn(x.shape, generator=generator, device=x.device)


def drop_rows(x: Tensor, generator: torch.Generator) -> Tensor:
    return x[1:]


def widen(x: Tensor, generator: torch.Generator) -> Tensor:
    return x.double()


def rows(target: Target, count: int = ROWS) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(1)
    x = torch.randn(count, WIDTH, generator=source)
    if target.task == "classification":
        return x, torch.randint(CLASSES, (count,), generator=source)
    if target.task == "regression":
        return x, torch.randn(count, generator=source)
    return x, (torch.rand(count, target.size, generator=source) > 0.5).float()


def linear(size: int = CLASSES) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(WIDTH, size)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, CLASSES)
    )


def setup(raw: Mapping[str, Any], *targets: Target, **options: Any) -> Setup:
    return setup_of(raw, targets or (CLASS,), functions=FUNCTIONS, **options)


def trained(
    made: Setup, x: Inputs, y: Labels, module: nn.Module | None = None, **options: Any
) -> tuple[Live, HopOutcome]:
    live = build_live(module or linear(), made.config)
    return live, train_pass(live, x, y, setup=made, seed=5, ends_epoch=True, **options)


def validated(live: Live, x: Inputs, y: Labels, made: Setup) -> float:
    return validate_pass(live, x, y, setup=made).loss


def weights(live: Live) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in live.module.parameters()])


SGD = {"optimizer": "sgd", "lr": 0.1}


def test_a_pass_equals_a_plain_loop_bit_for_bit() -> None:
    x, y = rows(CLASS)
    live, outcome = trained(setup(SGD | {"batch_size": 16}), x, y, network())
    module = network()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    before, total = torch.get_num_threads(), 0.0
    torch.set_num_threads(1)
    torch.manual_seed(5)
    for index in torch.randperm(ROWS).split(16):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(x[index]), y[index])
        loss.backward()
        optimizer.step()
        total += loss.item() * 16
    torch.set_num_threads(before)
    for path, tensor in module.state_dict().items():
        assert torch.equal(live.module.state_dict()[path], tensor), path
    assert (outcome.loss, outcome.steps, outcome.rows) == (total / ROWS, 4, ROWS)


@pytest.mark.parametrize(("size", "accumulate", "count"), [(16, 2, 64), (8, 4, 64), (5, 3, 64)])
def test_accumulated_batches_equal_one_large_batch(size: int, accumulate: int, count: int) -> None:
    x, y = rows(CLASS, count)
    small = setup(SGD | {"batch_size": size, "accumulate": accumulate})
    large = setup(SGD | {"batch_size": size * accumulate})
    (one, first), (other, second) = trained(small, x, y), trained(large, x, y)
    torch.testing.assert_close(weights(one), weights(other), rtol=1e-6, atol=1e-7)
    assert first.steps == second.steps == -(-count // (size * accumulate))
    assert first.loss == pytest.approx(second.loss, rel=1e-6)


def test_the_plan_weighs_every_row_of_a_step_alike() -> None:
    found = steps(torch.arange(13), 5, 2)
    assert [[len(p.index) for p in step] for step in found] == [[5, 5], [3]]
    assert [[p.share for p in step] for step in found] == [[0.5, 0.5], [1.0]]
    found = steps(torch.arange(13), 4, 3)
    assert [[(len(p.index), p.share) for p in step] for step in found] == [
        [(4, 4 / 13), (4, 4 / 13), (5, 5 / 13)]
    ]
    assert [len(part) for part in batches(torch.arange(13), 6)] == [6, 7]


def test_gradients_are_reduced_before_they_are_clipped_and_applied() -> None:
    x, y = rows(CLASS, 16)
    seen: list[float] = []

    def reduce(module: nn.Module) -> None:
        for parameter in module.parameters():
            assert parameter.grad is not None
            seen.append(float(parameter.grad.norm()))
            parameter.grad.mul_(1000)

    made = setup(SGD | {"batch_size": 16, "clip_norm": 0.5})
    before = weights(build_live(linear(), made.config))
    live, _ = trained(made, x, y, reduce=reduce)
    assert len(seen) == 2 and max(seen) < 10
    torch.testing.assert_close((weights(live) - before).norm(), torch.tensor(0.05))


def test_a_plan_of_ones_own_gives_rows_and_shares() -> None:
    x, y = rows(CLASS, 12)

    def halves(order: Tensor) -> list[list[Portion]]:
        first, second = order.split(6)
        empty = order[:0]
        return [[Portion(first, 0.25), Portion(second, 0.75), Portion(empty, 5.0)]]

    live, outcome = trained(setup(SGD), x, y, plan=halves)
    module = linear()
    torch.manual_seed(5)
    first, second = torch.randperm(12).split(6)
    loss = nn.functional.cross_entropy
    mean = 0.25 * loss(module(x[first]), y[first]) + 0.75 * loss(module(x[second]), y[second])
    mean.backward()
    for parameter, found in zip(module.parameters(), live.module.parameters(), strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(found, parameter - 0.1 * parameter.grad)
    assert outcome.steps == 1


def test_an_empty_step_leaves_the_gradients_to_others() -> None:
    x, y = rows(CLASS, 4)
    seen: list[object] = []
    live, outcome = trained(
        setup(SGD),
        x,
        y,
        plan=lambda order: [[Portion(order[:0], 0.0)]],
        reduce=lambda module: seen.extend(p.grad for p in module.parameters()),
    )
    assert seen == [None, None] and (outcome.loss, outcome.steps) == (0.0, 1)
    assert torch.equal(weights(live), weights(build_live(linear(), setup(SGD).config)))


def test_clipping_by_norm_and_by_value() -> None:
    x, y = rows(CLASS, 16)
    start = weights(build_live(linear(), setup(SGD).config))
    by_norm, _ = trained(setup(SGD | {"batch_size": 16, "clip_norm": 1e-3}), x, y)
    torch.testing.assert_close((weights(by_norm) - start).norm().item(), 1e-4, rtol=1e-3, atol=0)
    by_value, _ = trained(setup(SGD | {"batch_size": 16, "clip_value": 1e-3}), x, y)
    assert (weights(by_value) - start).abs().max() <= 1.001e-4
    far, _ = trained(setup(SGD | {"batch_size": 16, "clip_norm": 1e9}), x, y)
    free, _ = trained(setup(SGD | {"batch_size": 16}), x, y)
    assert torch.equal(weights(far), weights(free))


SMOOTH = {"name": "cross_entropy", "label_smoothing": 0.2}
LOSSES: list[tuple[Target, object, Callable[[Tensor, Tensor], Tensor]]] = [
    (CLASS, SMOOTH, nn.CrossEntropyLoss(label_smoothing=0.2)),
    (CLASS, {"name": "multi_margin", "margin": 0.5}, nn.MultiMarginLoss(margin=0.5)),
    (NUMBER, {"name": "huber", "delta": 0.3}, nn.HuberLoss(delta=0.3)),
    (NUMBER, {"name": "smooth_l1", "beta": 0.3}, nn.SmoothL1Loss(beta=0.3)),
    (NUMBER, "mae", nn.L1Loss()),
    (NUMBER, {"name": "poisson_nll", "full": False}, nn.PoissonNLLLoss()),
    (NUMBER, {"name": "squares", "scale": 3.0}, lambda o, y: 3 * nn.functional.mse_loss(o, y)),
    (TAGS, "bce", nn.BCEWithLogitsLoss()),
    (TAGS, "soft_margin", nn.MultiLabelSoftMarginLoss()),
]


@pytest.mark.parametrize("block", [torch.no_grad, torch.inference_mode])
def test_gradients_are_recorded_whatever_the_caller_has_set(
    block: Callable[[], AbstractContextManager[None]],
) -> None:
    x, y = rows(CLASS)
    expected, live = weights(trained(setup(SGD), x, y)[0]), build_live(linear(), setup(SGD).config)
    check = CandidateCheck(
        architecture={"factory": "linear"},
        input_shape=(WIDTH,),
        input_dtype="float32",
        targets=(CLASS,),
        factories={"linear": "mmdb.graph.factories:linear"},
        functions=FUNCTIONS,
        train_rows=None,
        options={},
    )
    with block():
        check(SGD)
        train_pass(live, x, y, setup=setup(SGD), seed=5, ends_epoch=True)
        assert not torch.is_grad_enabled()
    assert torch.equal(weights(live), expected)


@pytest.mark.parametrize(("target", "loss", "expected"), LOSSES)
def test_a_loss_is_torchs_or_the_registered_one(
    target: Target, loss: object, expected: Callable[[Tensor, Tensor], Tensor]
) -> None:
    x, y = rows(target)
    made = setup({"loss": loss}, target)
    check_setup(made)
    live = build_live(linear(target.size), made.config)
    output = live.module(x)
    if target is NUMBER:
        output = output.squeeze(-1)
    found = validate_pass(live, x, y, setup=made)
    assert found.loss == pytest.approx(float(expected(output, y).detach()), rel=1e-5)


def test_class_weights_are_torchs() -> None:
    x, y = rows(CLASS)
    given = [0.5, 1.0, 4.0]
    made = setup({"class_weights": given}, CLASS)
    live = build_live(linear(), made.config)
    expected = nn.CrossEntropyLoss(weight=torch.tensor(given))(live.module(x), y)
    assert validate_pass(live, x, y, setup=made).loss == pytest.approx(
        float(expected.detach()), rel=1e-6
    )


def test_balanced_weights_go_by_the_train_rows() -> None:
    x, y = rows(CLASS)
    counts = TrainRows(count=100, by_class={"digit": [80, 20, 0], "tags": [25, 100]})
    made = setup({"class_weights": "balanced"}, CLASS, train_rows=counts)
    live = build_live(linear(), made.config)
    weight = torch.tensor([100 / 240, 100 / 60, 1.0])
    expected = nn.CrossEntropyLoss(weight=weight)(live.module(x), y)
    assert validate_pass(live, x, y, setup=made).loss == pytest.approx(
        float(expected.detach()), rel=1e-6
    )
    x, y = rows(TAGS)
    made = setup({"class_weights": "balanced"}, TAGS, train_rows=counts)
    live = build_live(linear(2), made.config)
    expected = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([3.0, 1.0]))(live.module(x), y)
    assert validate_pass(live, x, y, setup=made).loss == pytest.approx(
        float(expected.detach()), rel=1e-6
    )


def test_balanced_weights_need_counts() -> None:
    with pytest.raises(InvalidHyperparameter, match="no class counts"):
        setup({"class_weights": "balanced"}, CLASS)


class Heads(nn.Module):
    """Two inputs by name, two labels."""

    def __init__(self, form: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.digit = nn.Embedding(9, 4), nn.Linear(4 + WIDTH, CLASSES)
        self.price, self.form = nn.Linear(4 + WIDTH, 1), form

    def forward(self, *, numbers: Tensor, text: Tensor) -> object:
        assert text.dtype == torch.int64
        both = torch.cat([numbers, self.words(text).mean(1)], 1)
        digit, price = self.digit(both), self.price(both)
        if self.form == "dict":
            return {"price": price, "more": both, "digit": digit}
        return [digit, price] if self.form == "list" else (digit, price)


def named_rows() -> tuple[dict[str, Tensor], tuple[Tensor, ...]]:
    x, digit = rows(CLASS)
    _, price = rows(NUMBER)
    source = torch.Generator().manual_seed(2)
    text = torch.randint(9, (ROWS, 5), generator=source)
    return {"numbers": x, "text": text}, (digit, price)


@pytest.mark.parametrize("form", ["dict", "list", "tuple"])
def test_several_inputs_and_labels(form: str) -> None:
    x, y = named_rows()
    made = setup(
        SGD | {"batch_size": ROWS, "loss_weights": {"price": 0.25}, "loss": {"price": "mae"}},
        CLASS,
        NUMBER,
    )
    live, outcome = trained(made, x, y, Heads(form))
    start = Heads("tuple")
    digit, price = start(**x)
    expected = nn.functional.cross_entropy(digit, y[0])
    expected = expected + 0.25 * nn.functional.l1_loss(price.squeeze(-1), y[1])
    assert outcome.loss == pytest.approx(float(expected.detach()), rel=1e-6)
    expected.backward()
    for parameter, found in zip(start.parameters(), live.module.parameters(), strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(found, parameter - 0.1 * parameter.grad)
    found_metrics = validate_pass(live, x, y, setup=made).metrics
    assert set(found_metrics) == {"digit.accuracy", "price.rmse", "price.mae"}


class Returns(nn.Module):
    """Returns what it is given to return."""

    def __init__(self, make: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.weight, self.make = nn.Parameter(torch.ones(1)), make

    def forward(self, x: Tensor) -> object:
        return self.make(x * self.weight)


@pytest.mark.parametrize(
    ("make", "targets"),
    [
        (lambda x: None, (CLASS,)),
        (lambda x: {"x": x}, (CLASS,)),
        (lambda x: x, (CLASS, NUMBER)),
        (lambda x: (x,), (CLASS, NUMBER)),
        (lambda x: (x, None), (CLASS, NUMBER)),
        (lambda x: {"digit": x}, (CLASS, NUMBER)),
    ],
)
def test_outputs_that_do_not_fit_the_labels_are_refused(
    make: Callable[[Tensor], object], targets: tuple[Target, ...]
) -> None:
    x, y = rows(CLASS)
    labels: Labels = y if len(targets) == 1 else (y, rows(NUMBER)[1])
    with pytest.raises(OutputMismatch, match="digit"):
        trained(setup({}, *targets), x, labels, Returns(make))


def test_augmentation_gives_the_same_bits_twice_and_others_in_another_hop() -> None:
    x, y = rows(CLASS)
    made = setup({"augment": [{"name": "noise", "std": 0.5}]})
    states = {}
    for name, seed in (("one", 5), ("again", 5), ("other", 6)):
        live = build_live(linear(), made.config)
        train_pass(live, x, y, setup=made, seed=seed, ends_epoch=True)
        states[name] = encode(live)
    assert states["one"] == states["again"] != states["other"]
    plain, _ = trained(setup({}), x, y)
    assert encode(plain) != states["one"]


def test_augmentation_leaves_row_order_and_validation_alone() -> None:
    x, y = rows(CLASS)
    still, _ = trained(setup({"augment": {"name": "noise", "std": 0.0}}), x, y, network())
    plain, _ = trained(setup({}), x, y, network())
    assert encode(still) == encode(plain)
    loud = setup({"augment": {"name": "noise", "std": 9.0}})
    before = validate_pass(plain, x, y, setup=setup({}))
    assert validate_pass(plain, x, y, setup=loud) == before


@pytest.mark.parametrize("name", ["drop_rows", "widen"])
def test_an_augmentation_must_return_its_batch(name: str) -> None:
    x, y = rows(CLASS)
    with pytest.raises(FunctionFailed, match=name):
        trained(setup({"augment": name}), x, y)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision_trains_float32_weights_near_those_of_float32(precision: str) -> None:
    x, y = rows(CLASS)
    raw = SGD | {"batch_size": 16}
    mixed, first = trained(setup(raw | {"amp": precision}), x, y, network())
    full, second = trained(setup(raw), x, y, network())
    assert weights(mixed).dtype == torch.float32
    assert not torch.equal(weights(mixed), weights(full))
    torch.testing.assert_close(weights(mixed), weights(full), rtol=0.1, atol=0.05)
    assert first.loss == pytest.approx(second.loss, rel=0.02)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision_gives_the_same_bits_in_a_replay(precision: str) -> None:
    x, y = rows(CLASS)
    made = setup(SGD | {"batch_size": 8, "amp": precision})
    live, _ = trained(made, x, y, network())
    with neutral(0):
        again, _ = trained(made, x, y, network())
    assert encode(live) == encode(again)


def test_a_registered_loss_answers_for_what_it_returns() -> None:
    for name in ("rowwise", "nothing"):
        with pytest.raises(FunctionFailed, match=name):
            check_setup(setup({"loss": name}, NUMBER))
    with pytest.raises(FunctionFailed, match="this loss is broken"):
        check_setup(setup({"loss": "breaks"}, NUMBER))


@pytest.mark.parametrize("target", ["mmdb.nowhere:loss", f"{HERE}:absent", f"{HERE}:ROWS"])
def test_a_function_that_is_gone_is_named(target: str) -> None:
    with pytest.raises(FunctionFailed, match=target.split(":")[0]):
        setup_of({"loss": "mine"}, (NUMBER,), functions={"loss": {"mine": target}})


def test_a_function_that_is_not_registered_is_named() -> None:
    from mmdb.train.candidate.named_choices import NamedChoice
    from mmdb.train.candidate.setup import Augmentation

    with pytest.raises(FunctionNotFound, match="spin"):
        Augmentation([NamedChoice(name="spin")], FUNCTIONS)


def test_the_traceback_of_a_users_module_is_kept() -> None:
    x, y = rows(CLASS)

    def deeper(batch: Tensor) -> object:
        raise KeyError("no such layer")

    with pytest.raises(TrainingFailed, match="KeyError") as raised:
        trained(setup({}), x, y, Returns(deeper))
    assert "in deeper" in raised.value.trace and "no such layer" in raised.value.trace
    assert trace_of(raised.value) == raised.value.trace


@pytest.mark.parametrize("error", [SystemExit("enough"), GeneratorExit("enough")])
def test_a_module_that_exits_is_blamed(error: BaseException) -> None:
    x, y = rows(CLASS)

    def deeper(batch: Tensor) -> object:
        raise error

    with pytest.raises(TrainingFailed, match=f"{type(error).__name__}: enough") as raised:
        trained(setup({}), x, y, Returns(deeper))
    assert "in deeper" in raised.value.trace


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt: a shell ignores it in what it starts behind itself."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_a_ctrl_c_is_the_callers_and_no_other_keyboard_interrupt() -> None:
    x, y = rows(CLASS)

    def deeper(batch: Tensor) -> object:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(setup({}), x, y, Returns(deeper))
    with ThreadPoolExecutor(1) as threads:  # no signal reaches Python there
        with pytest.raises(TrainingFailed, match="KeyboardInterrupt"):
            threads.submit(trained, setup({}), x, y, Returns(deeper)).result()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # no Ctrl-C reaches this process any more
    with pytest.raises(TrainingFailed, match="KeyboardInterrupt"):
        trained(setup({}), x, y, Returns(deeper))


def test_a_long_traceback_keeps_its_end() -> None:
    try:
        raise ValueError("x" * 2 * TRACE_LIMIT + "the end")
    except ValueError as error:
        found = trace_of(error)
    assert len(found) == TRACE_LIMIT and found.endswith("the end\n")
    assert trace_of(NotANumber("The loss became nan.")) == ""


def test_a_cancelled_pass_ends_between_two_steps() -> None:
    x, y = rows(CLASS)
    asked: list[int] = []

    def stopped() -> bool:
        asked.append(1)
        return len(asked) == 4

    with pytest.raises(Cancelled):
        trained(setup({"batch_size": 8}), x, y, stopped=stopped)
    assert len(asked) == 4
    live = build_live(linear(), setup({}).config)
    with pytest.raises(Cancelled):
        validate_pass(live, x, y, setup=setup({}), stopped=lambda: True)


def test_an_infinite_loss_ends_the_hop() -> None:
    x, y = rows(CLASS)
    with pytest.raises(NotANumber, match="loss"):
        trained(setup({}), x * float("inf"), y)
    with pytest.raises(NotANumber, match="validation loss"):
        validate_pass(build_live(linear(), setup({}).config), x * float("inf"), y, setup=setup({}))


def test_a_validation_has_an_objective_and_a_train_hop_none() -> None:
    x, y = rows(CLASS)
    made = setup({}, options={"metric": "loss", "metrics": ["f1"]})
    live, outcome = trained(made, x, y)
    assert outcome.objective is None and outcome.metrics == {}
    before = encode(live)
    found = validate_pass(live, x, y, setup=made)
    assert found.objective == found.loss and set(found.metrics) == {"accuracy", "f1"}
    assert encode(live) == before
