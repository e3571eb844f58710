from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import pytest
import torch
from torch import nn

from mmdb.errors import ArchitectureError, InvalidLayerGraph
from mmdb.graph.factories import SHIPPED
from mmdb.graph.spec.build import build, check_output, initial_module, parameter_count
from mmdb.graph.spec.layer_graph import (
    MAX_LAYERS,
    build_layers,
    build_sized_layers,
    empty_like,
)
from mmdb.graph.trace.stand_ins import on_meta
from mmdb.graph.vocabulary import OPS

DOCS = Path(__file__).parents[4] / "docs" / "architectures.md"
Json = dict[str, object]


def layer(name: str, op: str, inputs: list[str] | None = None, **args: object) -> Json:
    wired: Json = {} if inputs is None else {"inputs": inputs}
    return {"name": name, "op": op, "args": args, **wired}


def graph(*layers: object, **more: object) -> Json:
    return {"layers": list(layers), **more}


HEAD = layer("head", "Linear", out_features="$outputs")
RESIDUAL = graph(
    layer("stem", "Conv2d", out_channels=8, kernel_size=3, padding=1),
    layer("conv", "Conv2d", out_channels=8, kernel_size=3, padding="same"),
    layer("norm", "BatchNorm2d"),
    layer("sum", "add", ["norm", "stem"]),
    layer("relu", "ReLU"),
    layer("mean", "mean", dim=[2, 3]),
    HEAD,
)
BRANCHES = graph(
    layer("flat", "Flatten"),
    layer("wide", "Linear", ["flat"], out_features="$width * 2"),
    layer("narrow", "Linear", ["flat"], out_features="$width // 2"),
    layer("both", "concat", ["wide", "narrow"], dim=-1),
    HEAD,
    output="head",
    defaults={"width": 8},
)


def run(
    written: Json, input_shape: tuple[int, ...], outputs: int = 3, **arguments: object
) -> nn.Module:
    module = initial_module(written, arguments, input_shape, outputs, SHIPPED, seed=3)
    check_output(module, input_shape, outputs)
    return module


def chain(*layers: object) -> Json:
    return graph(*layers, layer("flat", "flatten"), HEAD)


# -- what is well formed ------------------------------------------------------


def test_a_residual_sum_trains_and_names_its_tensors_after_the_layers() -> None:
    module = run(RESIDUAL, (3, 8, 8))
    module(torch.ones(4, 3, 8, 8)).sum().backward()
    assert {"stem.weight", "norm.running_mean", "head.bias"} <= set(module.state_dict())
    assert all(p.grad is not None for p in module.parameters())


def test_a_residual_sum_computes_what_torch_does() -> None:
    module = run(RESIDUAL, (3, 8, 8)).eval()
    x = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    part = module.get_submodule
    stem = part("stem")(x)
    hidden = torch.relu(part("norm")(part("conv")(stem)) + stem).mean(dim=(2, 3))
    assert torch.equal(module(x), part("head")(hidden))


def test_sizes_are_inferred_across_a_concat() -> None:
    module = run(BRANCHES, (5, 2), width=12)
    shapes = {name: tuple(tensor.shape) for name, tensor in module.named_parameters()}
    assert shapes["wide.weight"] == (24, 10)
    assert shapes["narrow.weight"] == (6, 10)
    assert shapes["head.weight"] == (3, 30)


def test_a_default_holds_where_no_argument_is_given() -> None:
    assert parameter_count(run(BRANCHES, (5,))) == (5 + 1) * (16 + 4) + (20 + 1) * 3


#: Layers with each operator, and the shape of an input.
OP_CASES: list[tuple[list[Json], tuple[int, ...]]] = [
    ([layer("a", "Conv1d", out_channels=4, kernel_size=2), layer("b", "BatchNorm1d")], (3, 9)),
    ([layer("a", "GroupNorm", num_groups=2)], (4, 3)),
    ([layer("a", "LayerNorm")], (4, 3)),
    ([layer("a", "MaxPool1d", kernel_size=2)], (4, 6)),
    ([layer("a", "AvgPool1d", kernel_size=2, stride=1)], (4, 6)),
    ([layer("a", "MaxPool2d", kernel_size=[2, 1], ceil_mode=True)], (1, 5, 5)),
    ([layer("a", "AvgPool2d", kernel_size=2, padding=[1, 0])], (1, 4, 4)),
    ([layer("a", "AdaptiveAvgPool1d", output_size=2)], (4, 6)),
    ([layer("a", "AdaptiveAvgPool2d", output_size=[1, 2])], (4, 6, 6)),
    ([layer("a", "Embedding", num_embeddings=9, embedding_dim=4)], (5,)),
    ([layer("p", "Position"), layer("a", "TransformerEncoderLayer", nhead=2)], (5, 4)),
    ([layer("a", "MultiheadAttention", num_heads=2, dropout=0.5)], (5, 4)),
    ([layer("a", "transpose", dim0=1, dim1=2), layer("b", "Softmax", dim=1)], (5, 4)),
    ([layer("a", "reshape", shape=["$channels", -1, 2])], (3, 8)),
    ([layer("a", "mean", dim=-1, keepdim=True)], (3, 8)),
    ([layer("a", "mul", ["input", "input"])], (3, 8)),
    ([layer("a", "GELU", approximate="tanh"), layer("b", "LeakyReLU")], (3,)),
    ([layer("a", "SiLU"), layer("b", "Tanh"), layer("c", "Sigmoid")], (3,)),
    ([layer("a", "ReLU6"), layer("b", "ELU", alpha=0.5)], (3,)),
    ([layer("a", "Hardswish"), layer("b", "Hardsigmoid")], (3,)),
    ([layer("a", "Unflatten", dim=1, unflattened_size=[2, -1])], (6,)),
    ([layer("a", "Dropout", p=0.1), layer("b", "Identity")], (3,)),
    ([layer("a", "Dropout2d", p=0.1)], (3, 2, 2)),
    ([layer("a", "Linear", in_features="$features", out_features=4)], (3,)),
]


@pytest.mark.parametrize(("layers", "input_shape"), OP_CASES)
def test_an_op_builds_runs_and_passes_gradients(
    layers: list[Json], input_shape: tuple[int, ...]
) -> None:
    module = run(chain(*layers), input_shape)
    given = torch.ones(4, *input_shape, requires_grad=True)
    module(given).square().sum().backward()
    assert all(p.grad is not None for p in module.parameters())
    assert given.grad is not None or layers[0]["op"] == "Embedding"  # whose input is no number


def test_every_op_is_built_and_run_here_and_is_in_the_docs() -> None:
    written = [*(chain(*layers) for layers, _ in OP_CASES), RESIDUAL, BRANCHES]
    assert {one["op"] for each in written for one in each["layers"]} == set(OPS)  # type: ignore[attr-defined]
    docs = DOCS.read_text()
    assert all(f"`{op}`" in docs for op in OPS)


def test_a_graph_pickles_and_reads_any_batch() -> None:
    module = run(chain(layer("a", "reshape", shape=[2, 4])), (8,)).eval()
    copy = pickle.loads(pickle.dumps(module))
    for rows in (1, 2, 7):
        x = torch.ones(rows, 8)
        assert torch.equal(copy(x), module(x))


def test_a_graph_can_be_traced() -> None:
    traced = torch.fx.symbolic_trace(run(RESIDUAL, (3, 8, 8)))
    assert [node.op for node in traced.graph.nodes].count("call_module") == 5


def test_ten_thousand_layers_are_built_and_one_more_is_refused() -> None:
    layers = [layer(f"l{i}", "ReLU") for i in range(MAX_LAYERS - 1)]
    run(graph(*layers, HEAD), (2,))
    with pytest.raises(InvalidLayerGraph, match="10000"):
        build(graph(layer("x", "ReLU"), *layers, HEAD), {}, (2,), 3, SHIPPED)


AT_PATHS = graph(
    layer("first", "Linear", in_features=3, out_features=3),
    layer("act", "ReLU"),
    layer("again", "Linear", in_features=3, out_features=3),
    layer("head", "Linear", in_features=3, out_features=2),
    paths=[["head", "head"], ["body.0", "first"], ["body.0", "again"], ["body.1", "act"]],
)


def test_paths_say_where_the_tensors_are_and_in_which_order() -> None:
    module = build_layers(AT_PATHS, {}, (3,), 2)
    assert list(module.state_dict()) == ["head.weight", "head.bias", "body.0.weight", "body.0.bias"]
    x = torch.ones(1, 3)
    shared, head = module.get_submodule("body.0"), module.get_submodule("head")
    assert torch.equal(module(x), head(shared(torch.relu(shared(x)))))


def test_a_sized_graph_builds_without_the_shape_of_its_input() -> None:
    sides = [build_sized_layers(AT_PATHS), build_layers(AT_PATHS, {}, (3,), 2)]
    shapes = [{name: t.shape for name, t in side.state_dict().items()} for side in sides]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (graph(HEAD), "a value to \\$outputs"),
        (graph(layer("a", "Linear", out_features=2)), "in_features is missing"),
        (graph(layer("a", "Position", tokens=2)), "width is missing"),
        (graph(*[layer("a", "Linear", in_features=10**5, out_features=10**5)]), "the limit is"),
    ],
)
def test_a_graph_that_is_not_sized_or_too_large_is_refused(written: Json, message: str) -> None:
    with pytest.raises(InvalidLayerGraph, match=message):
        build_sized_layers(written)


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ("head", "must be a list"),
        (["head"], "not \\[path, layer\\]"),
        ([["body", "tail"]], "names 'tail', which is no layer"),
        ([["", "head"]], "cannot have the path"),
        ([["a..b", "head"]], "cannot have the path"),
        ([["a." * 200 + "b", "head"]], "cannot have the path"),
        ([[3, "head"]], "cannot have the path"),
        ([["forward", "head"]], "reserved"),
        ([["body.training", "head"]], "reserved"),
        ([["_wiring", "head"]], "reserved"),
        ([["act", "head"]], "the name of a layer that has none"),
        ([["act.0", "head"]], "inside another layer"),
        ([["body", "head"], ["body", "act"]], "which is another layer"),
    ],
)
def test_paths_that_do_not_fit_are_refused(paths: object, message: str) -> None:
    with pytest.raises(InvalidLayerGraph, match=message):
        build_layers(graph(layer("act", "ReLU"), HEAD, paths=paths), {}, (3,), 2)


def test_the_examples_of_the_docs_build() -> None:
    examples = re.findall(r"<!-- input (\S+) -->\n+```json\n(.*?)```", DOCS.read_text(), re.S)
    assert len(examples) >= 4
    for shape, text in examples:
        input_shape = tuple(int(side) for side in shape.split("x"))
        run(json.loads(text), input_shape, 10)


# -- what is not --------------------------------------------------------------

TEN = 10**10
BAD: dict[str, tuple[object, str]] = {
    "no layers": (graph(), "list of 1 to"),
    "layers that are no list": ({"layers": "Linear"}, "list of 1 to"),
    "a layer that is no object": (graph("Linear"), "layer 1 must be an object"),
    "an unknown key": (graph(HEAD, seed=3), "unknown key 'seed'"),
    "an unknown key of a layer": (graph({**HEAD, "arg": {}}), "'head' has an unknown key 'arg'"),
    "no name": (graph({"op": "ReLU"}), "layer 1 has no usable name"),
    "a name with a dot": (graph(layer("a.b", "ReLU")), "no usable name"),
    "a name that is a list": (graph({"name": ["a"], "op": "ReLU"}), "no usable name"),
    "the name of a method": (graph(layer("forward", "ReLU")), "'forward' is reserved"),
    "a dunder": (graph(layer("__class__", "ReLU")), "'__class__' is reserved"),
    "the name of the wiring": (graph(layer("_wiring", "ReLU")), "'_wiring' is reserved"),
    "the name input": (graph(layer("input", "ReLU")), "'input' is reserved"),
    "a name twice": (graph(layer("a", "ReLU"), layer("a", "ReLU")), "'a' .*used twice"),
    "an unknown op": (graph(layer("a", "Lineal")), "'a': unknown op 'Lineal'"),
    "an op that is code": (graph(layer("a", "os.system")), "unknown op"),
    "an op of torch that is not listed": (graph(layer("a", "ModuleList")), "unknown op"),
    "an op that is a list": (graph({"name": "a", "op": ["ReLU"]}), "unknown op"),
    "args that are a list": (graph({**HEAD, "args": [3]}), "'head': 'args' must be an object"),
    "inputs that are numbers": (graph({**HEAD, "inputs": [0]}), "'head': 'inputs' must be"),
    "a layer that reads itself": (graph(layer("a", "ReLU", ["a"])), "'a' .*reads itself"),
    "a forward reference": (
        graph(layer("a", "ReLU", ["b"]), layer("b", "ReLU", ["a"])),
        "'a' .*reads 'b', which comes after",
    ),
    "an unknown input": (graph(layer("a", "ReLU", ["x"])), "'a' .*reads 'x', which is no layer"),
    "two inputs to one": (graph(layer("a", "ReLU", ["input", "input"])), "takes 1 input, not 2"),
    "no inputs": (graph(layer("a", "ReLU", [])), "takes 1 input, not 0"),
    "one input to a sum": (graph(layer("a", "add")), "takes 2 to 1000 inputs, not 1"),
    "inputs without number": (graph(layer("a", "add", ["input"] * 1001)), "not 1001"),
    "an unknown output": (graph(HEAD, output="tail"), "'output' names no layer: 'tail'"),
    "the input as output": (graph(HEAD, output="input"), "'output' names no layer"),
    "an output that is a list": (graph(HEAD, output=["head"]), "'output' names no layer"),
    "a dead end": (graph(layer("a", "ReLU"), {**HEAD, "inputs": ["input"]}), "'a' .*no path"),
    "a missing argument": (graph(layer("a", "Linear")), "'a' .*'out_features' is missing"),
    "an unknown argument": (graph(layer("a", "ReLU", inplace=True)), "unknown argument 'inplace'"),
    "a device": (graph(layer("a", "Linear", out_features=3, device="cuda")), "'device'"),
    "text for a number": (graph(layer("a", "Linear", out_features="3")), "out_features must be"),
    "a float for a size": (graph(layer("a", "Linear", out_features=3.0)), "out_features must be"),
    "true for a size": (graph(layer("a", "Linear", out_features=True)), "out_features must be"),
    "zero for a size": (graph(layer("a", "Linear", out_features=0)), "out_features must be"),
    "a list for a size": (graph(layer("a", "Linear", out_features=[3])), "out_features must be"),
    "null for a size": (graph(layer("a", "Linear", out_features=None)), "out_features must be"),
    "a number too large": (graph(layer("a", "Linear", out_features=TEN)), "out_features must be"),
    "a number of 9,000 bits": (graph(layer("a", "Linear", out_features=2**9000)), "out_features"),
    "one for a flag": (graph(layer("a", "Linear", out_features=1, bias=1)), "bias must be"),
    "a probability of one": (graph(layer("a", "Dropout", p=1)), "p must be"),
    "three sides": (
        graph(layer("a", "Conv2d", out_channels=1, kernel_size=[1, 1, 1])),
        "kernel_size must be",
    ),
    "an unknown choice": (graph(layer("a", "GELU", approximate="eval")), "approximate must be"),
    "nine dimensions": (graph(layer("a", "reshape", shape=[1] * 9)), "shape must be"),
    "an empty shape": (graph(layer("a", "reshape", shape=[])), "shape must be"),
    "a shape that does not fit": (graph(layer("a", "reshape", shape=[5, 5])), "'a' .*6x6"),
    "two unknown sides": (graph(layer("a", "reshape", shape=[-1, -1])), "'a'"),
    "the mean of the batch": (graph(layer("a", "mean", dim=0)), "0 is the batch"),
    "the mean of the batch from the end": (graph(layer("a", "mean", dim=-3)), "0 is the batch"),
    "a softmax of the batch": (graph(layer("a", "Softmax", dim=0)), "0 is the batch"),
    "a flattened batch": (graph(layer("a", "Flatten", start_dim=0)), "0 is the batch"),
    "a transposed batch": (graph(layer("a", "transpose", dim0=0, dim1=1)), "0 is the batch"),
    "a joined batch": (graph(layer("a", "concat", ["input", "input"], dim=0)), "0 is the batch"),
    "a dimension too far": (graph(layer("a", "mean", dim=3)), "'a' .*dim 3 is not a dimension"),
    "a dimension twice": (graph(layer("a", "mean", dim=[1, 1])), "'a'"),
    "nothing left": (graph(layer("a", "mean", dim=[1, 2]), HEAD), "'head' .*1 or more"),
    "inputs of two ranks": (
        graph(layer("a", "mean", dim=1), layer("b", "add", ["a", "input"])),
        "'b' .*differ in rank",
    ),
    "inputs of two sizes": (
        graph(layer("a", "Linear", out_features=5), layer("b", "add", ["a", "input"])),
        "'b' .*does not fit",
    ),
    "a picture for no picture": (
        graph(layer("a", "Conv2d", in_channels=2, out_channels=1, kernel_size=1)),
        "'a' .*needs rows of 3 dimensions",
    ),
    "a batch norm of a row without channels": (graph(layer("a", "BatchNorm2d")), "'a'"),
    "a wrong in_features": (
        graph(layer("a", "Linear", in_features=5, out_features=1)),
        "in_features is 5, but its input has 6",
    ),
    "a wrong num_features": (graph(layer("a", "BatchNorm1d", num_features=5)), "is 5, but"),
    "groups that do not divide": (graph(layer("a", "GroupNorm", num_groups=4)), "'a'"),
    "heads that do not divide": (
        graph(layer("a", "MultiheadAttention", num_heads=4)),
        "'a' .*divisible",
    ),
    "a kernel larger than its input": (
        graph(layer("a", "Conv1d", out_channels=1, kernel_size=9)),
        "'a' .*does not fit",
    ),
    "a window larger than its input": (graph(layer("a", "MaxPool1d", kernel_size=9)), "'a'"),
    "an unknown placeholder": (graph(layer("a", "Linear", out_features="$w")), "a value to \\$w"),
    "a placeholder that is code": (
        graph(layer("a", "Linear", out_features="$(rm -rf)")),
        "cannot read the placeholder",
    ),
    "a placeholder with a power": (
        graph(layer("a", "Linear", out_features="$outputs ** 9")),
        "cannot read the placeholder",
    ),
    "a default that is not used": (graph(HEAD, defaults={"w": 1}), "'w' is used by no layer"),
    "a default that hides a size": (graph(HEAD, defaults={"outputs": 1}), "'outputs'"),
    "defaults that are a list": (graph(HEAD, defaults=[1]), "'defaults' must be an object"),
    "half of a text": (
        graph(layer("a", "Linear", out_features="$w // 2"), defaults={"w": "x"}),
        "needs a whole number",
    ),
    "a half that is nothing": (
        graph(layer("a", "Linear", out_features="$w // 2"), defaults={"w": 1}),
        "out_features must be",
    ),
    "a deep list": (graph(layer("a", "reshape", shape=[[[[1]]]])), "shape must be"),
}


@pytest.mark.parametrize(("written", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_graph_is_refused_with_the_layers_name(written: Json, message: str) -> None:
    with pytest.raises(InvalidLayerGraph, match=message):
        build_layers(written, {}, (6, 6), 3)


@pytest.mark.parametrize(
    "arguments", [{"hidden": 3}, {"outputs": 3}, {"a b": 3}, {"": 3}, {"__class__": 3}]
)
def test_an_argument_that_no_layer_takes_is_refused(arguments: Json) -> None:
    with pytest.raises(InvalidLayerGraph, match="argument"):
        build(graph(HEAD), arguments, (6,), 3, SHIPPED)


def doubling(op: str) -> Json:
    twice = [layer(f"d{i}", op, [f"d{i - 1}" if i else "input"] * 2) for i in range(60)]
    return graph(*twice, HEAD)


TOO_LARGE = {
    "one wide layer": graph(layer("a", "Linear", out_features=2**31 - 1)),
    "a layer beyond 64 bits": graph(
        layer("a", "Linear", out_features=2**31 - 1), layer("b", "Linear", out_features=2**31 - 1)
    ),
    "many layers": graph(*[layer(f"l{i}", "Linear", out_features=10_000) for i in range(20)]),
    "a table": graph(layer("a", "Embedding", num_embeddings=2**31 - 1, embedding_dim=2**31 - 1)),
    "a kernel": graph(
        layer("a", "reshape", shape=[1, 6, 1]),
        layer("b", "Conv2d", out_channels=2**20, kernel_size=2**20, padding=2**20),
    ),
    "a padded picture": graph(
        layer("a", "reshape", shape=[1, 6, 1]),
        layer("b", "Conv2d", out_channels=1, kernel_size=1, padding=2**30),
    ),
    "a feed-forward part": graph(
        layer("a", "reshape", shape=[6, 1]),
        layer("b", "TransformerEncoderLayer", nhead=1, dim_feedforward=2**31 - 1),
    ),
    "a concat that doubles sixty times": doubling("concat"),
    "an adaptive pool": graph(
        layer("a", "reshape", shape=[1, 6, 1]),
        layer("b", "AdaptiveAvgPool2d", output_size=2**30),
    ),
}


@pytest.mark.parametrize("written", TOO_LARGE.values(), ids=TOO_LARGE.keys())
def test_a_graph_that_would_exhaust_memory_is_refused_unbuilt(written: Json) -> None:
    with pytest.raises(InvalidLayerGraph, match=r"layer '\w+' \(\w+\)"):
        build(written, {}, (6,), 3, SHIPPED)


def test_the_bound_on_parameters_is_the_callers() -> None:
    assert parameter_count(build_layers(graph(HEAD), {}, (6,), 3, max_parameters=21)) == 21
    with pytest.raises(InvalidLayerGraph, match=r"'head' .*21 parameters; the limit is 20"):
        build_layers(graph(HEAD), {}, (6,), 3, max_parameters=20)


def test_no_single_change_of_a_graph_gives_anything_but_an_architecture_error() -> None:
    values: list[object] = [None, True, -1, 0, 2**40, 1.5, "", "x", "$x", "$features", [], [[]], {}]
    text = json.dumps(RESIDUAL)
    places = list(re.finditer(r'(?<=: )("[^"]*"|\d+|\[[^\[\]]*\]|\{[^{}]*\})', text))
    for place in places:
        for value in values:
            changed = text[: place.start()] + json.dumps(value) + text[place.end() :]
            try:
                check_output(build(changed, {}, (3, 8, 8), 3, SHIPPED), (3, 8, 8), 3)
            except ArchitectureError as exc:
                assert len(exc.message) < 1000


def test_an_empty_module_is_like_the_one_that_its_class_makes() -> None:
    sized = graph(
        layer("first", "Linear", in_features=8, out_features=8),
        layer("norm", "BatchNorm1d", num_features=8),
        layer("rows", "reshape", shape=[2, 4]),
        layer("look", "MultiheadAttention", embed_dim=4, num_heads=2),
        layer("block", "TransformerEncoderLayer", d_model=4, nhead=2, dim_feedforward=6),
        layer("flat", "flatten"),
        layer("again", "Linear", in_features=8, out_features=8),
        layer("last", "Linear", in_features=8, out_features=8),
        paths=[["body.a", "first"], ["body.b", "again"], ["body.b", "last"]],
    )
    made = build_sized_layers(sized)
    with on_meta():
        empty = build_sized_layers(sized)
    copy = empty_like(empty)
    for module in (empty, copy):
        assert str(module) == str(made)
        own, expected = module.state_dict(keep_vars=True), made.state_dict(keep_vars=True)
        assert [(p, t.shape, t.dtype, type(t)) for p, t in own.items()] == [
            (p, t.shape, t.dtype, type(t)) for p, t in expected.items()
        ]
        assert all(tensor.is_meta for tensor in own.values())
        assert len({id(tensor) for tensor in own.values()}) == len({*map(id, expected.values())})
    assert not {*map(id, copy.parameters())} & {*map(id, empty.parameters())}
    copy.load_state_dict(made.state_dict(), assign=True)
    x = torch.randn(5, 8)
    assert torch.equal(copy.eval()(x), made.eval()(x))
    copy.register_forward_hook(lambda *_: None)
    assert not empty._forward_hooks and empty.training
