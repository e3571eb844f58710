from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from mmdb.graph.ops.capture import capture
from mmdb.graph.ops.op_contraction import skeleton_of
from mmdb.graph.ops.op_graph import CONSTANT, Operation, OpGraph, Value
from mmdb.graph.ops.skeleton import LayerSkeleton
from mmdb.graph.transfer import TensorTransfer, transfer
from tests.unit.graph.transfer.carried import (
    carry,
    error_of,
    images,
    paired,
    relative_error,
    tokens,
    trained,
    vectors,
)
from tests.unit.graph.transfer.networks import (
    Chain,
    Cross,
    DenseNet,
    Experts,
    Gpt,
    Llama,
    MobileNet,
    Packed,
    Perceptron,
    Recurrent,
    ResNet,
    Shuffled,
    Unet,
    Vit,
)

Make = Callable[[], nn.Module]
LIMIT = 1e-6

# -- what the child computes is what the parent computes ------------------------------

WIDER: Mapping[str, tuple[Make, Make, Callable[[], Tensor]]] = {
    "same": (lambda: ResNet(), lambda: ResNet(), images),
    "chain": (lambda: Chain((4, 6)), lambda: Chain((8, 12)), images),
    "chain, indivisible": (lambda: Chain((4, 6)), lambda: Chain((5, 17)), images),
    "chain, flattened": (
        lambda: Chain((4, 6), flat=True),
        lambda: Chain((6, 7), flat=True),
        images,
    ),
    "residual": (lambda: ResNet((6, 8)), lambda: ResNet((12, 16)), images),
    "residual, indivisible": (lambda: ResNet((6, 8)), lambda: ResNet((7, 13)), images),
    "residual, inner": (lambda: ResNet((6, 8)), lambda: ResNet((6, 8), inner=1.5), images),
    "groups of the same number": (
        lambda: ResNet((6, 8), groups=2),
        lambda: ResNet((10, 14), groups=2),
        images,
    ),
    "more groups": (
        lambda: ResNet((4, 8), groups=2),
        lambda: ResNet((8, 16), groups=4),
        images,
    ),
    "dense": (lambda: DenseNet(6, 4), lambda: DenseNet(12, 8), images),
    "dense, indivisible": (lambda: DenseNet(6, 4), lambda: DenseNet(7, 5), images),
    "dense, stem only": (lambda: DenseNet(6, 4), lambda: DenseNet(9, 4), images),
    "depthwise": (lambda: MobileNet(6), lambda: MobileNet(12), images),
    "depthwise, indivisible": (lambda: MobileNet(6, 2.0), lambda: MobileNet(7, 3.0), images),
    "shuffled": (lambda: Shuffled(8), lambda: Shuffled(20), images),
    "kernel 3 to 5": (lambda: Chain((4, 6)), lambda: Chain((4, 6), kernel=5), images),
    "kernel 1 to 3": (lambda: Chain((4, 6), kernel=1), lambda: Chain((5, 7)), images),
    "depthwise kernel": (lambda: MobileNet(6), lambda: MobileNet(8, kernel=5), images),
    "vit": (lambda: Vit(8, 2), lambda: Vit(16, 2), images),
    "vit, more heads": (lambda: Vit(8, 2), lambda: Vit(16, 4), images),
    "vit, indivisible": (lambda: Vit(8, 2), lambda: Vit(12, 3, hidden=17), images),
    "vit, three times": (lambda: Vit(8, 2), lambda: Vit(28, 2), images),
    "vit, norm last": (
        lambda: Vit(8, 2, norm_first=False),
        lambda: Vit(16, 4, 2, 15, norm_first=False),
        images,
    ),
    "packed, more heads": (
        lambda: Packed(8, 2, 4, 10),
        lambda: Packed(8, 3, 4, 10),
        vectors,
    ),
    "packed, larger heads": (
        lambda: Packed(8, 2, 4, 10),
        lambda: Packed(16, 2, 6, 11),
        vectors,
    ),
    "packed, indivisible": (
        lambda: Packed(8, 2, 4, 10),
        lambda: Packed(11, 3, 5, 13),
        vectors,
    ),
    "packed, written out": (
        lambda: Packed(8, 2, 4, 10, fused=False),
        lambda: Packed(13, 3, 5, 13, fused=False),
        vectors,
    ),
    "grouped queries": (lambda: Llama(8, 4, 2), lambda: Llama(16, 8, 4), tokens),
    "grouped queries, indivisible": (
        lambda: Llama(8, 4, 2, tied=False),
        lambda: Llama(11, 9, 3, hidden=13, tied=False),
        tokens,
    ),
    "grouped queries, more a group": (lambda: Llama(8, 4, 2), lambda: Llama(8, 6, 2), tokens),
    "every query its key": (lambda: Llama(8, 2, 2), lambda: Llama(8, 6, 3), tokens),
    "grouped queries, larger": (
        lambda: Llama(8, 4, 2, 4, rotated=False),
        lambda: Llama(9, 4, 2, 6, rotated=False),
        tokens,
    ),
    "tied, rms norm": (lambda: Llama(8), lambda: Llama(13), tokens),
    "torch's rms norm": (
        lambda: Llama(8, own_norm=False),
        lambda: Llama(13, own_norm=False),
        tokens,
    ),
    "tied, layer norm": (lambda: Gpt(8, 2), lambda: Gpt(16, 4), tokens),
    "tied, layer norm, indivisible": (lambda: Gpt(8, 2), lambda: Gpt(14, 2), tokens),
    "lstm": (lambda: Recurrent(4, 6), lambda: Recurrent(5, 9), tokens),
    "lstm, both ways": (
        lambda: Recurrent(4, 6, both=True),
        lambda: Recurrent(4, 7, both=True),
        tokens,
    ),
    "norms of groups": (lambda: Unet(8, 6, 4), lambda: Unet(24, 7, 4), images),
    "more norms of groups": (lambda: Unet(8, 6, 4, 2), lambda: Unet(12, 14, 6, 2), images),
    "cross": (lambda: Cross(8, 2, 6), lambda: Cross(20, 4, 7), vectors),
    "experts": (lambda: Experts(6, 5), lambda: Experts(7, 9), vectors),
    "gelu": (lambda: Perceptron((5, 6), nn.GELU), lambda: Perceptron((9, 7), nn.GELU), vectors),
}


@pytest.mark.parametrize("case", WIDER)
def test_a_wider_child_computes_what_its_parent_does(case: str) -> None:
    parent, child, inputs = WIDER[case]
    assert error_of(child, trained(parent()), inputs()) <= LIMIT


DEEPER: Mapping[str, tuple[Make, Make, Callable[[], Tensor]]] = {
    "blocks": (lambda: ResNet((6, 8), (1, 1)), lambda: ResNet((6, 8), (3, 2)), images),
    "blocks, wider": (lambda: ResNet((6, 8), (1, 1)), lambda: ResNet((9, 11), (2, 4)), images),
    "inverted blocks": (lambda: MobileNet(6, depth=1), lambda: MobileNet(7, depth=3), images),
    "dense layers": (lambda: DenseNet(6, 4, 2), lambda: DenseNet(6, 4, 4), images),
    "dense layers, wider": (lambda: DenseNet(6, 4, 2), lambda: DenseNet(7, 5, 3), images),
    "encoder layers": (lambda: Vit(8, 2, 1), lambda: Vit(8, 2, 3), images),
    "encoder layers, wider": (lambda: Vit(8, 2, 1), lambda: Vit(14, 2, 2), images),
    "decoder layers": (lambda: Llama(8, depth=1), lambda: Llama(12, depth=3), tokens),
    "tied decoder": (lambda: Gpt(8, 2, depth=1), lambda: Gpt(12, 3, depth=2), tokens),
}


@pytest.mark.parametrize("case", DEEPER)
def test_a_deeper_child_computes_what_its_parent_does(case: str) -> None:
    parent, child, inputs = DEEPER[case]
    assert error_of(child, trained(parent()), inputs()) <= LIMIT


@pytest.mark.parametrize("activation", [nn.ReLU, nn.ReLU6, nn.Identity])
@pytest.mark.parametrize("widths", [(4, 4, 6), (5, 9, 7), (4, 12, 6)])
def test_a_new_layer_of_a_chain_hands_on_what_it_reads(
    activation: type[nn.Module], widths: tuple[int, ...]
) -> None:
    parent = trained(Chain((4, 6), names=("a", "c"), activation=activation))

    def child() -> nn.Module:
        return Chain(widths, names=("a", "b", "c"), activation=activation)

    assert error_of(child, parent, images()) <= LIMIT


def test_two_new_layers_of_a_chain_hand_on_what_they_read() -> None:
    parent = trained(Chain((4, 6), names=("a", "c")))

    def child() -> nn.Module:
        return Chain((5, 6, 7, 8), names=("a", "b", "d", "c"), kernel=5)

    assert error_of(child, parent, images()) <= LIMIT


def test_a_new_linear_layer_hands_on_what_it_reads() -> None:
    parent = trained(Perceptron((5, 6)))
    names = {"layers.4": "layers.2", "layers.6": "layers.4", "layers.2": "none"}
    assert error_of(lambda: Perceptron((7, 9, 6)), parent, vectors(), names=names) <= LIMIT


def test_no_activation_but_relu_lets_a_new_layer_hand_on() -> None:
    parent = trained(Chain((4, 6), names=("a", "c"), activation=nn.GELU))
    child = trained(Chain((4, 4, 6), names=("a", "b", "c"), activation=nn.GELU), seed=1)
    made = carry(child, parent, images())
    assert not made.exact
    assert any("gelu" in reason and "b" in reason for reason in made.reasons)


sizes = st.integers(1, 19)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    own=st.tuples(sizes, sizes), more=st.tuples(sizes, sizes), kernels=st.sampled_from([0, 2, 4])
)
def test_any_wider_chain_is_exact(
    own: tuple[int, int], more: tuple[int, int], kernels: int
) -> None:
    parent = trained(Chain(own, kernel=3))
    widths = tuple(a + b for a, b in zip(own, more, strict=True))
    assert error_of(lambda: Chain(widths, kernel=3 + kernels), parent, images()) <= LIMIT


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    width=st.integers(4, 9), heads=st.integers(1, 3), size=st.integers(1, 4),
    more=st.tuples(*[st.integers(0, 9)] * 3),
)  # fmt: skip
def test_any_wider_transformer_is_exact(
    width: int, heads: int, size: int, more: tuple[int, int, int]
) -> None:
    parent = trained(Packed(width, heads, size, 6))

    def child() -> nn.Module:
        return Packed(width + more[0], heads + more[1], size + more[2], 9, 2)

    assert error_of(child, parent, vectors()) <= LIMIT


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(width=st.integers(4, 9), groups=st.integers(1, 2), more=st.tuples(*[st.integers(0, 5)] * 3))
def test_any_wider_decoder_is_exact(width: int, groups: int, more: tuple[int, int, int]) -> None:
    parent = trained(Llama(width, 2 * groups, groups, depth=1))
    wide = groups + more[1]

    def child() -> nn.Module:
        return Llama(width + more[0], 2 * wide, wide, hidden=10 + more[2], depth=1)

    assert error_of(child, parent, tokens()) <= LIMIT


# -- copies of a unit do not stay copies ---------------------------------------------

GROWN: Mapping[str, tuple[Make, Make, Callable[[], Tensor], str]] = {
    "chain": (lambda: Chain((4, 6)), lambda: Chain((8, 12)), images, "c0.0.weight"),
    "batch norm": (lambda: ResNet((6, 8)), lambda: ResNet((12, 16)), images, "norm.weight"),
    "residual": (lambda: ResNet((6, 8)), lambda: ResNet((12, 16)), images, "stem.weight"),
    "depthwise": (
        lambda: MobileNet(6), lambda: MobileNet(12), images, "blocks.0.depth.0.weight",
    ),
    "heads": (
        lambda: Packed(8, 2, 4, 10), lambda: Packed(8, 4, 4, 10), vectors,
        "blocks.0.attention.qkv.weight",
    ),
    "hidden": (
        lambda: Packed(8, 2, 4, 10), lambda: Packed(8, 2, 4, 20), vectors, "blocks.0.up.weight",
    ),
    "stream": (
        lambda: Packed(8, 2, 4, 10), lambda: Packed(16, 2, 4, 10), vectors, "enter.weight",
    ),
    "tied": (lambda: Gpt(8, 2), lambda: Gpt(16, 2), tokens, "embed.weight"),
    "lstm": (lambda: Recurrent(4, 6), lambda: Recurrent(4, 12), tokens, "lstm.weight_ih_l0"),
}  # fmt: skip


@pytest.mark.parametrize("case", GROWN)
def test_copies_of_a_unit_get_different_gradients(case: str) -> None:
    make_parent, make_child, inputs, path = GROWN[case]
    parent, child = trained(make_parent()), trained(make_child(), seed=1)
    carry(child, parent, inputs())
    generator = torch.Generator().manual_seed(3)
    y = child(inputs())
    (y * torch.randn(y.shape, generator=generator, dtype=y.dtype)).sum().backward()
    weight = child.get_parameter(path).detach()
    gradient = child.get_parameter(path).grad
    assert gradient is not None
    if path == "embed.weight":
        weight, gradient = weight.T, gradient.T
    rows, slopes = (
        weight.flatten(1) if weight.ndim > 1 else weight[:, None],
        gradient.reshape(len(weight), -1),
    )
    copies = 0
    for one in range(len(rows)):
        for other in range(one):
            if torch.equal(rows[one], rows[other]):
                copies += 1
                if not slopes[one].any() and not slopes[other].any():
                    continue  # a unit that no input of this batch wakes
                difference = (slopes[one] - slopes[other]).norm()
                assert difference > 1e-3 * slopes[one].norm()
    assert copies >= len(rows) // 4


def test_units_made_as_a_mean_learn_and_are_read() -> None:
    child = trained(Packed(11, 2, 4, 10), seed=1)
    carry(child, trained(Packed(8, 2, 4, 10)), vectors())
    child(vectors()).square().sum().backward()
    for path in ("enter.weight", "blocks.0.down.weight", "blocks.0.norm1.bias"):
        gradient = child.get_parameter(path).grad
        assert gradient is not None
        assert (gradient[-3:].abs().flatten(1) if gradient.ndim > 1 else gradient[-3:]).abs().max()
    assert (child.get_parameter("blocks.0.up.weight")[:, -3:] != 0).all()


def test_new_blocks_give_zero_and_learn() -> None:
    child = trained(ResNet((6, 8), (2, 1)), seed=1)
    made = carry(child, trained(ResNet((6, 8))), images())
    operators = {origin.path: origin.operator for origin in made.origins}
    assert operators["stages.0.b1.bn2.weight"] == operators["stages.0.b1.bn2.bias"] == "deepen"
    assert operators["stages.0.b1.conv1.weight"] == "fresh"
    child.train()(images()).square().sum().backward()
    gradient = child.get_parameter("stages.0.b1.bn2.weight").grad
    assert gradient is not None and (gradient != 0).all()


# -- what is smaller, or does not fit -------------------------------------------------

NARROWER: Mapping[str, tuple[Make, Make, Callable[[], Tensor]]] = {
    "chain": (lambda: Chain((8, 12)), lambda: Chain((5, 6)), images),
    "flattened": (lambda: Chain((8, 12), flat=True), lambda: Chain((5, 6), flat=True), images),
    "blocks": (lambda: ResNet((6, 8), (3, 2)), lambda: ResNet((4, 5), (1, 1)), images),
    "groups": (lambda: ResNet((8, 8), groups=4), lambda: ResNet((4, 6), groups=2), images),
    "dense": (lambda: DenseNet(8, 6, 4), lambda: DenseNet(5, 4, 2), images),
    "depthwise": (lambda: MobileNet(8, kernel=5), lambda: MobileNet(5), images),
    "heads": (lambda: Vit(16, 4, 3), lambda: Vit(8, 2, 1), images),
    "packed": (lambda: Packed(16, 4, 6, 20), lambda: Packed(9, 2, 4, 10), vectors),
    "decoder": (lambda: Llama(12, 8, 4, depth=3), lambda: Llama(8, 4, 2, depth=1), tokens),
    "tied": (lambda: Gpt(16, 4), lambda: Gpt(9, 3), tokens),
    "lstm": (lambda: Recurrent(6, 9), lambda: Recurrent(4, 5), tokens),
    "wider and narrower": (lambda: Chain((8, 4)), lambda: Chain((5, 9)), images),
}


@pytest.mark.parametrize("case", NARROWER)
def test_a_smaller_child_takes_what_there_is(case: str) -> None:
    parent, child = (make() for make in NARROWER[case][:2])
    made = carry(trained(child, seed=1), trained(parent), NARROWER[case][2]())
    assert not made.exact and made.reasons
    assert torch.isfinite(child(NARROWER[case][2]())).all()
    from_parent = [origin for origin in made.origins if origin.parent is not None]
    assert len(from_parent) == len(made.origins)


def test_a_narrower_layer_has_evenly_spaced_units() -> None:
    parent, child = trained(Chain((8,))), trained(Chain((4,)), seed=1)
    carry(child, parent, images())
    taken = parent.state_dict()["c0.0.weight"][[0, 2, 4, 6]]
    assert torch.equal(child.state_dict()["c0.0.weight"], taken)
    taken = parent.state_dict()["c0.1.running_var"][[0, 2, 4, 6]]
    assert torch.equal(child.state_dict()["c0.1.running_var"], taken)
    assert torch.equal(
        child.state_dict()["head.weight"], parent.state_dict()["head.weight"][:, ::2]
    )


def test_statistics_and_counts_are_carried() -> None:
    parent, child = trained(Chain((4,))), trained(Chain((8,)), seed=1)
    child.state_dict()["c0.1.num_batches_tracked"].fill_(0)
    made = carry(child, parent, images())
    assert child.state_dict()["c0.1.num_batches_tracked"] == 17
    running = parent.state_dict()["c0.1.running_mean"]
    assert torch.equal(child.state_dict()["c0.1.running_mean"], running.repeat(2))
    assert {origin.operator for origin in made.origins} == {"copy", "widen"}


def test_other_classes_keep_their_own_head() -> None:
    parent, child = trained(Chain((4,))), trained(Chain((8,), classes=7), seed=1)
    own = child.state_dict()["head.weight"].clone()
    made = carry(child, parent, images())
    assert torch.equal(made.tensors["head.weight"], own)
    assert not made.exact and any("head.weight" in reason for reason in made.reasons)
    operators = {origin.path: origin.operator for origin in made.origins}
    assert operators["c0.0.weight"] == "widen" and operators["head.bias"] == "fresh"


def test_another_vocabulary_keeps_its_own_embedding() -> None:
    parent, child = trained(Llama(8)), trained(Llama(8, words=13), seed=1)
    made = carry(child, parent, tokens())
    operators = {origin.path: origin.operator for origin in made.origins}
    assert operators["embed.weight"] == operators["head.weight"] == "fresh"
    assert operators["blocks.0.up.weight"] == "copy" and not made.exact


def test_longer_positions_begin_as_the_parents() -> None:
    parent, child = trained(Gpt(8)), trained(Gpt(8), seed=1)
    child.get_submodule("places").weight = nn.Parameter(torch.zeros(20, 8).double())
    made = carry(child, parent, tokens())
    assert torch.equal(made.tensors["places.weight"][:16], parent.state_dict()["places.weight"])
    assert (made.tensors["places.weight"][16:] == 0).all()


# -- options and bad input -----------------------------------------------------------


def test_shrinking_mixes_the_childs_own_tensors_in() -> None:
    parent, child = trained(Chain((4, 6))), trained(Chain((8, 6)), seed=1)
    own = {path: tensor.clone() for path, tensor in child.state_dict().items()}
    plain = carry(trained(Chain((8, 6)), seed=1), parent, images())
    made = carry(child, parent, images(), shrink=0.4, perturb=0.1)
    path = "c0.0.weight"
    torch.testing.assert_close(made.tensors[path], 0.4 * plain.tensors[path] + 0.1 * own[path])
    assert torch.equal(made.tensors["c0.1.running_var"], plain.tensors["c0.1.running_var"])
    assert made.origins[0].operator == "widen+shrink" and not made.exact


def test_the_same_seed_gives_the_same_shares() -> None:
    parent = trained(Chain((4, 6)))
    several = [
        carry(trained(Chain((8, 6)), seed=1), parent, images(), seed=seed) for seed in (1, 1, 2)
    ]
    one, same, other = (made.tensors["c1.0.weight"] for made in several)
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_a_tensor_that_is_not_finite_is_refused() -> None:
    parent, child = trained(Chain((4, 6))), trained(Chain((4, 6)), seed=1)
    own = child.state_dict()["c1.0.weight"].clone()
    parent.state_dict()["c1.0.weight"][0, 0, 0, 0] = torch.nan
    made = carry(child, parent, images())
    assert torch.equal(made.tensors["c1.0.weight"], own) and not made.exact
    assert any("c1.0.weight" in reason and "finite" in reason for reason in made.reasons)
    assert torch.isfinite(child(images())).all()


def test_another_dtype_is_cast() -> None:
    parent, child = trained(Chain((4, 6))), trained(Chain((8, 6)), seed=1).float()
    made = carry(child, parent, images(), child_x=images().float())
    assert any("cast from torch.float64 to torch.float32" in reason for reason in made.reasons)
    assert relative_error(child.double(), parent, images()) < 1e-5


def flows() -> tuple[OpGraph, OpGraph, list[tuple[int, int]], LayerSkeleton, LayerSkeleton]:
    child, parent = (capture(Chain(widths), (images().float(),)) for widths in ((8, 6), (4, 6)))
    outlines = skeleton_of(child), skeleton_of(parent)
    return child, parent, paired(*outlines), *outlines


class Masked(nn.Module):
    """Scores that a mask of zeros, one for each head, changes not at all."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(4, 3 * 2 * heads)
        self.head = nn.Linear(2 * heads, 3)

    def forward(self, x: Tensor) -> Tensor:
        n, t, _ = x.shape
        q, k, v = (
            part.view(n, t, self.heads, 2).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)
        )
        mask = torch.zeros(1, self.heads, t, t)
        y = (q @ k.mT + mask).softmax(-1) @ v
        found: Tensor = self.head(y.transpose(1, 2).flatten(2))
        return found


@pytest.mark.parametrize("is_known", [False, True])
def test_a_constant_of_one_number_is_as_wide_as_it_needs_to_be(is_known: bool) -> None:
    child, parent = trained(Masked(4), seed=1), trained(Masked(2))
    several = []
    for module in (child, parent):
        flow = capture(module, (vectors(),))
        unknown = [
            replace(op, arguments={"dtype": "float32"}) if op.op == CONSTANT else op
            for op in flow.operations
        ]
        several.append(flow if is_known else replace(flow, operations=tuple(unknown)))
    outlines = [skeleton_of(flow) for flow in several]
    made = transfer(
        several[0], several[1], paired(outlines[0], outlines[1]), outlines[0], outlines[1],
        parent.state_dict(), child.state_dict(),
    )  # fmt: skip
    child.load_state_dict(dict(made.tensors))
    assert made.exact == is_known
    assert (relative_error(child, parent, vectors()) <= LIMIT) == is_known


def run(child: OpGraph, parent: OpGraph, rest: tuple[object, ...]) -> TensorTransfer:
    pairs, one, other = rest
    own = Chain((8, 6)).state_dict()
    return transfer(child, parent, pairs, one, other, Chain((4, 6)).state_dict(), own)  # type: ignore[arg-type]


def test_a_missing_tensor_keeps_the_childs_own() -> None:
    child, parent, pairs, *outlines = flows()
    own, given = Chain((8, 6)).state_dict(), Chain((4, 6)).state_dict()
    del given["c0.0.weight"]
    made = transfer(child, parent, pairs, outlines[0], outlines[1], given, own)
    assert torch.equal(made.tensors["c0.0.weight"], own["c0.0.weight"])
    assert any("missing" in reason for reason in made.reasons)


@pytest.mark.parametrize("damage", ["order", "argument", "shape", "op", "output", "no pairs"])
def test_a_damaged_flow_does_no_harm(damage: str) -> None:
    child, parent, *rest = flows()
    conv = next(op for op in child.operations if op.op == "convolution")
    changes: dict[str, Operation] = {
        "order": replace(conv, arguments={**conv.arguments, "input": Value(999)}),
        "argument": replace(conv, arguments={"input": conv.arguments["input"]}),
        "shape": replace(conv, shapes=((3,),)),
        "op": replace(conv, op="unheard_of"),
    }
    operations = list(child.operations)
    operations[conv.ordinal] = changes.get(damage, conv)
    outputs = (Value(10**6),) if damage == "output" else child.outputs
    damaged = replace(child, operations=tuple(operations), outputs=outputs)
    made = run(damaged, parent, ([] if damage == "no pairs" else rest[0], *rest[1:]))
    assert not made.exact and made.reasons
    assert all(torch.isfinite(tensor).all() for tensor in made.tensors.values())


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_graph_gets_tensors(data: st.DataObject) -> None:
    child, parent, *rest = flows()
    names = ["cat", "add", "view", "matmul", "layer_norm", "mul", "linear", "select", "lstm", "x"]
    several = []
    for flow in (child, parent):
        operations = list(flow.operations)
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.integers(1, len(operations) - 1))
            op = operations[place]
            if op.op in (CONSTANT, "parameter", "buffer", "input"):
                continue
            sources = [Value(data.draw(st.integers(0, place - 1))) for _ in range(2)]
            arguments = {"self": sources[0], "other": sources[1], "input": sources[0], "dim": 1}
            operations[place] = replace(
                op, op=data.draw(st.sampled_from(names)), arguments=arguments
            )
        several.append(replace(flow, operations=tuple(operations)))
    made = run(several[0], several[1], tuple(rest))
    assert all(torch.isfinite(tensor).all() for tensor in made.tensors.values())
