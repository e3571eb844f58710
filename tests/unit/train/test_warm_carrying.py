"""A child's tensors out of a parent's: what is carried over, and what keeps it from being so."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmdb.data.matching import MISSING
from mmdb.graph.factories import cnn, mlp
from mmdb.graph.ops.known_values import Inputs
from mmdb.graph.tabular import tabular
from mmdb.store.models.model_rows import ModelDefinition
from mmdb.store.models.module import build_empty
from mmdb.train.compute.live import build, packed, state_hash, weights
from mmdb.train.compute.translate import ByName
from mmdb.train.values.jobs import from_json
from mmdb.train.values.spec import CandidateSpec
from mmdb.train.values.warm_spec import (
    Carried,
    Example,
    Moved,
    ParentForm,
    RowMap,
    TensorOrigin,
    Unfit,
    WarmResult,
    WarmSpec,
)
from mmdb.train.warm import carrying
from mmdb.train.warm.carrying import carry
from mmdb.train.warm.first_state import _same_network, fill, first_state
from tests.unit.train.test_warm_rate import TARGET, rows

FACTORIES = {
    "mlp": "mmdb.graph.factories:mlp",
    "cnn": "mmdb.graph.factories:cnn",
    "tabular": "mmdb.graph.tabular:tabular",
}
ROW = [Inputs((torch.zeros(2, 6),))]


def form(
    factory: str = "mlp",
    arguments: Mapping[str, Any] | None = None,
    *,
    input_shape: tuple[int, ...] = (6,),
    factories: Mapping[str, str] = FACTORIES,
) -> ParentForm:
    """Return how a parent that a factory builds can be had."""
    given = dict(arguments or {})
    definition = ModelDefinition(
        architecture={"factory": factory, "arguments": given},
        arguments={},
        input_shape=input_shape,
        outputs=3,
    )
    shapes = (Example(shape=input_shape),)
    return ParentForm(reference="p@1", definition=definition, factories=factories, examples=shapes)


def built(seed: int, make: Callable[[], nn.Module]) -> nn.Module:
    """Return a module whose every tensor is drawn, running statistics too."""
    torch.manual_seed(seed)
    module = make().eval()
    with torch.no_grad():
        for path, tensor in module.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape) + (0.5 if "var" in path else -0.5))
    return module


def small(**arguments: Any) -> nn.Module:
    return mlp((6,), 3, **({"hidden": [8]} | arguments))


def started(child: nn.Module, parent: ParentForm, tensors: Mapping[str, Tensor], **how: Any) -> Any:
    """Return what was carried over, in the child already."""
    carried = carry(child, ROW, parent, tensors, **({"seed": 0, "shrink": None} | how))
    fill(child, carried.tensors)
    return carried


def test_a_wider_child_computes_what_its_parent_does() -> None:
    own = {"hidden": [8], "batch_norm": True}
    parent = built(0, lambda: small(**own)).double()
    child = built(1, lambda: small(hidden=[13], batch_norm=True)).double()
    carried = started(child, form(arguments=own), parent.state_dict())
    x, _ = rows()
    expected = parent(x.double())
    assert torch.allclose(child(x.double()), expected, rtol=1e-9, atol=1e-9)
    assert carried.exact and carried.coverage == 1
    assert 0.5 < carried.similarity < 1
    assert {one.operator for one in carried.origins} <= {"widen", "copy"}
    assert [one.path for one in carried.origins] == list(child.state_dict())


def test_the_same_module_gets_the_same_tensors() -> None:
    parent, child = built(0, small), built(1, small)
    carried = started(child, form(arguments={"hidden": [8]}), parent.state_dict())
    assert carried.similarity == 1
    assert all(torch.equal(t, parent.state_dict()[p]) for p, t in child.state_dict().items())


def test_the_child_stays_as_it_is_until_it_is_filled() -> None:
    parent, child = built(0, small), built(1, small)
    before = {path: tensor.clone() for path, tensor in child.state_dict().items()}
    generator = torch.get_rng_state()
    carried = carry(
        child, ROW, form(arguments={"hidden": [8]}), parent.state_dict(), seed=0, shrink=None
    )
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(torch.equal(t, before[p]) for p, t in child.state_dict().items())
    places = {p: t.data_ptr() for p, t in child.state_dict().items()}
    fill(child, carried.tensors)
    assert {p: t.data_ptr() for p, t in child.state_dict().items()} == places


def test_a_parent_that_shrinks_keeps_a_part_of_the_child_s_own() -> None:
    parent, child = built(0, small), built(1, small)
    own, its = child.state_dict()["1.weight"].clone(), parent.state_dict()["1.weight"]
    started(child, form(arguments={"hidden": [8]}), parent.state_dict(), shrink=0.75)
    assert torch.allclose(child.state_dict()["1.weight"], 0.75 * its + 0.25 * own)


def test_one_seed_gives_one_result_and_another_seed_another() -> None:
    parent = built(0, small)
    found = []
    for seed in (3, 3, 4):
        child = built(1, lambda: small(hidden=[20]))
        started(child, form(arguments={"hidden": [8]}), parent.state_dict(), seed=seed)
        found.append(child.state_dict())
    assert all(torch.equal(found[0][path], found[1][path]) for path in found[0])
    assert not all(torch.equal(found[0][path], found[2][path]) for path in found[0])


class Stubborn(nn.Module):
    """A module whose forward goes by values that a recording does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("this forward is for nobody")


def test_a_child_that_cannot_be_followed_has_no_parent_at_all() -> None:
    parent = built(0, small)
    with pytest.raises(Unfit, match="this forward is for nobody") as caught:
        started(Stubborn(), form(arguments={"hidden": [8]}), parent.state_dict())
    assert caught.value.is_final


def test_a_parent_whose_factory_is_gone_gives_its_tensors_where_they_are_the_child_s() -> None:
    parent, child = built(0, small), built(1, small)
    gone = form("gone", {"hidden": [8]}, factories={})
    carried = started(child, gone, parent.state_dict())
    assert carried.similarity == carried.coverage == 1
    assert all(torch.equal(t, parent.state_dict()[p]) for p, t in child.state_dict().items())
    other = built(1, lambda: small(hidden=[9]))
    with pytest.raises(Unfit, match="'gone'") as caught:
        started(other, gone, parent.state_dict())
    assert not caught.value.is_final


def test_a_parent_of_which_nothing_but_tensors_is_known_is_taken_by_path_and_shape() -> None:
    parent, child = built(0, small), built(1, small)
    unknown = ParentForm(reference="p@1", definition=None, factories={})
    assert started(child, unknown, parent.state_dict()).coverage == 1
    extra = {**parent.state_dict(), "more": torch.zeros(1)}
    with pytest.raises(Unfit, match="not known"):
        started(child, unknown, extra)


def test_a_parent_that_cannot_be_run_is_not_called_the_same() -> None:
    parent = built(0, small)
    unknown = ParentForm(reference="p@1", definition=None, factories={})
    for form_of_it in (unknown, form("gone", {"hidden": [8]}, factories={})):
        carried = started(built(1, small), form_of_it, parent.state_dict())
        assert not carried.exact
        assert any("not verified: p@1 cannot be built" in reason for reason in carried.reasons)


def test_what_a_flow_does_not_see_is_seen_before_it_is_called_the_same() -> None:
    parent, child = built(0, small), built(1, lambda: small(hidden=[13]))
    its = form(arguments={"hidden": [8]})
    exact = started(child, its, parent.state_dict())
    assert exact.exact and not exact.reasons
    child.register_forward_hook(lambda module, given, made: made + 1)
    wrong = started(child, its, parent.state_dict())
    assert not wrong.exact and "not verified: an output differs" in wrong.reasons[0]


@pytest.mark.parametrize("rows_given", [1, 3, 6, 8, 9, 13, 32])
def test_the_rows_of_an_example_do_not_matter(rows_given: int) -> None:
    parent = built(0, small)
    found = []
    for given in (torch.zeros(2, 6), torch.full((rows_given, 6), 3.0)):
        child = built(1, lambda: small(hidden=[13]))
        found.append(
            carry(
                child,
                [Inputs((given,))],
                form(arguments={"hidden": [8]}),
                parent.state_dict(),
                seed=0,
                shrink=None,
            )
        )
    assert all(one.exact and not one.reasons for one in found)
    assert found[0].origins == found[1].origins
    assert all(torch.equal(t, found[1].tensors[path]) for path, t in found[0].tensors.items())


def test_what_has_nothing_in_common_gives_nothing() -> None:
    parent = built(0, lambda: cnn((1, 6, 6), 5, width=4))
    given = {"width": 4}
    with pytest.raises(Unfit) as caught:
        started(
            built(1, lambda: nn.Sequential(nn.Bilinear(6, 6, 3))),
            form("cnn", given, input_shape=(1, 6, 6)),
            parent.state_dict(),
        )
    assert caught.value.is_final or "p@1" in str(caught.value)


def test_a_tensor_that_is_not_finite_is_not_carried_over() -> None:
    parent, child = built(0, small), built(1, small)
    tensors = {p: t.clone() for p, t in parent.state_dict().items()}
    tensors["1.weight"][0, 0] = float("nan")
    own = child.state_dict()["1.weight"].clone()
    carried = started(child, form(arguments={"hidden": [8]}), tensors)
    assert torch.equal(child.state_dict()["1.weight"], own)
    assert carried.coverage < 1 and not carried.exact
    (origin,) = [one for one in carried.origins if one.path == "1.weight"]
    assert origin.parent is None and "finite" in (origin.reason or "")


def test_what_goes_wrong_with_one_parent_is_a_reason_against_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*given: Any, **how: Any) -> Any:
        raise IndexError("no such axis")

    monkeypatch.setattr(carrying, "transfer", fails)
    with pytest.raises(Unfit, match="p@1: IndexError: no such axis") as caught:
        started(built(1, small), form(arguments={"hidden": [8]}), built(0, small).state_dict())
    assert not caught.value.is_final


class Tied(nn.Module):
    """A module with one tensor under two paths."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, width), nn.Linear(6, width)
        self.second.weight = self.first.weight
        self.head = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        both: Tensor = self.head(self.first(x) + self.second(x))
        return both


def tied(input_shape: tuple[int, ...], outputs: int, *, width: int = 4) -> nn.Module:
    """Return a module with tied weights; a factory."""
    return Tied(width)


def test_what_is_tied_in_the_child_stays_tied() -> None:
    parent, child = built(0, lambda: Tied(4)), built(1, lambda: Tied(6))
    here = {"tied": f"{__name__}:tied"}
    started(child, form("tied", {"width": 4}, factories=here), parent.state_dict())
    assert child.get_parameter("first.weight") is child.get_parameter("second.weight")
    x, _ = rows()
    assert torch.allclose(child(x), parent(x), atol=1e-5)


# -- rows in another order -----------------------------------------------------------------

#: What columns are: numbers, a flag, two categories, codes, words and a picture.
COLUMNS: dict[str, list[Any]] = {
    **{name: ["number", 1] for name in "xzv"},
    "f": ["plain", 1],
    "g": ["plain", 2],
    **{name: ["code", 5, 3] for name in "cd"},
    "w": ["words", 2, 5, 4],
    "p": ["picture", 1, 2, 2],
}
SLOTS = {"g": 2, "w": 2, "p": 4}


def slots(columns: str) -> list[tuple[str, int]]:
    return [(name, part) for name in columns for part in range(SLOTS.get(name, 1))]


def other_rows(parent: str, child: str) -> RowMap:
    """Return where the child's numbers are among the parent's, each column a letter."""
    its = slots(parent)
    places = tuple(its.index(slot) if slot in its else MISSING for slot in slots(child))
    return RowMap(inputs={"": Moved(places=places, width=len(its))})


def some_rows(columns: str) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    drawn = {
        slot: torch.randint(5, (64,), generator=generator).float()
        if slot[0] in "cdw"
        else torch.randn(64, generator=generator)
        for slot in slots("".join(COLUMNS))
    }
    return torch.stack([drawn[slot] for slot in slots(columns)], 1)


@pytest.mark.parametrize(
    ("factory", "arguments"),
    [
        ("tabular", {"hidden": [16, 8]}),
        ("tabular", {"hidden": [16, 8], "periodic": False}),
        ("tabular", {"hidden": []}),
        ("tabular", {"hidden": [16, 8], "ensemble": 4}),
        ("mlp", {"hidden": [16, 8]}),
    ],
)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        *(("xz", "zx"), ("xz", "xzv"), ("xz", "vxz"), ("xz", "xfz"), ("xzf", "fzx")),
        *(("xfz", "fxz"), ("xfz", "zvfx"), ("fg", "gf"), ("fx", "xgf"), ("xczg", "gzcx")),
        *(("xcdz", "zdcx"), ("cxz", "zcxv"), ("cx", "xdc"), ("cxpwf", "fxwcp")),
    ],
)
def test_weights_go_with_their_columns(
    factory: str, arguments: dict[str, Any], before: str, after: str
) -> None:
    def network(columns: str) -> tuple[Callable[[], nn.Module], ParentForm]:
        its = [COLUMNS[name] for name in columns]
        is_told = factory == "tabular" or not set(columns) <= set("xzvfg")
        given = arguments | ({"columns": its} if is_told else {})
        shape = (len(slots(columns)),)
        make: Callable[..., nn.Module] = tabular if factory == "tabular" else mlp
        return lambda: make(shape, 3, **given), form(factory, given, input_shape=shape)

    rows = other_rows(before, after)
    make, its_form = network(before)
    parent, child = built(0, make), built(1, network(after)[0])
    inputs = [Inputs((torch.zeros(2, len(slots(after))),))]
    its_form = replace(its_form, rows=rows)
    carried = carry(child, inputs, its_form, parent.state_dict(), seed=0, shrink=None)
    fill(child, carried.tensors)
    x = some_rows(after)
    (expected,) = ByName(parent, rows)(x)
    assert torch.allclose(child(x), expected, atol=1e-5)
    assert (carried.coverage == 1) == (set(before) == set(after))


class ByPlace(nn.Module):
    """A network whose layers tell a row's numbers apart by their places."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.first, self.second = kind, nn.Linear(2, 3), nn.Linear(4, 3)
        self.line, self.table = nn.Conv1d(1, 3, 6), nn.Embedding(4, 3)
        self.factor: Tensor
        self.register_buffer("factor", torch.arange(6.0), persistent=False)
        self.whole = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        match self.kind:
            case "slice":
                y = self.first(x[:, :2]) + self.second(x[:, 2:])
            case "split":
                y = self.first(x.split([2, 4], 1)[0])
            case "index":
                y = self.first(x[:, [3, 1]])
            case "select":
                y = self.table(x[:, 4].long().clamp(0, 3))
            case "convolution":
                y = self.line(x[:, None]).flatten(1)
            case "sum so far":
                y = self.whole(x.cumsum(1))
            case "buffer":
                y = self.whole(x * self.factor)
            case _:
                y = self.whole(x.softmax(1))
        return y  # type: ignore[no-any-return]


def by_place(input_shape: tuple[int, ...], outputs: int, *, kind: str) -> nn.Module:
    """Return a network that tells numbers apart by their places; a factory."""
    return ByPlace(kind)


@pytest.mark.parametrize(
    "kind", ["slice", "split", "index", "select", "convolution", "sum so far", "buffer", "softmax"]
)
def test_a_parent_that_tells_columns_apart_by_their_places_is_none_for_another_order(
    kind: str,
) -> None:
    parent, child = (built(seed, lambda: ByPlace(kind)) for seed in (0, 1))
    here = form("by_place", {"kind": kind}, factories={"by_place": f"{__name__}:by_place"})
    rows = other_rows("xzvfcd", "dcfvzx")
    assert started(child, here, parent.state_dict()).coverage == 1
    if kind != "softmax":
        with pytest.raises(Unfit, match="tell columns apart by their places"):
            started(child, replace(here, rows=rows), parent.state_dict())
        return
    assert started(child, replace(here, rows=rows), parent.state_dict()).exact


# -- the state of a candidate ----------------------------------------------------------


def warm_spec(hidden: int = 12, **how: Any) -> WarmSpec:
    candidate = CandidateSpec(
        candidate_id=5,
        architecture={"factory": "mlp", "arguments": {"hidden": [hidden]}},
        config={"lr": 0.1},
        factories=FACTORIES,
        input_shape=(6,),
        targets=(TARGET,),
        seed=11,
    )
    parent = form(arguments={"hidden": [8]})
    return WarmSpec(candidate=candidate, example=Example(shape=(6,)), parent=parent, **how)


def test_a_state_is_made_of_the_spec_and_the_tensors_alone() -> None:
    tensors = built(0, small).state_dict()
    torch.manual_seed(1)
    result, state = first_state(warm_spec(), tensors)
    torch.manual_seed(2)
    spec = from_json(WarmSpec, json.loads(json.dumps(asdict(warm_spec()))))
    assert spec == warm_spec()
    again, other = first_state(spec, tensors)
    assert state_hash(state) == state_hash(other)
    assert result == again == from_json(WarmResult, json.loads(json.dumps(asdict(result))))
    assert result.refused is None and result.coverage == 1


def test_the_state_is_that_of_the_candidate_with_the_parent_s_function() -> None:
    parent = built(0, small)
    _, state = first_state(warm_spec(), parent.state_dict())
    child = small(hidden=[12]).eval()
    child.load_state_dict(weights(state))
    x, _ = rows()
    assert torch.allclose(child(x), parent(x), atol=1e-5)


def test_a_candidate_s_state_does_for_a_parent() -> None:
    parent = built(0, small)
    _, first = first_state(warm_spec(12), parent.state_dict())
    spec = warm_spec(12)
    its = WarmSpec(
        candidate=spec.candidate,
        example=spec.example,
        parent=form(arguments={"hidden": [12]}),
    )
    result, second = first_state(its, weights(first))
    assert weights(first).keys() == weights(second).keys()
    assert all(torch.equal(t, weights(second)[p]) for p, t in weights(first).items())
    assert result.similarity == 1


@pytest.mark.parametrize("factory", ["mlp", "cnn"])
@pytest.mark.parametrize("seed", range(4))
def test_an_adapter_of_its_parent_begins_as_following_both_would_have_it(
    factory: str, seed: int
) -> None:
    shape = (6,) if factory == "mlp" else (1, 8, 8)
    network = {"factory": factory, "arguments": {"dropout": 0.1 * seed}}
    trains = [["3"], [], ["3"], ["1"]][seed] if factory == "mlp" else []
    adapter = {"name": "lora", "rank": 1 + seed, "train": trains}
    adapted = {"adapted": network, "adapter": adapter}
    candidate = replace(warm_spec().candidate, architecture=adapted, input_shape=shape, seed=seed)
    network_form = form(factory, {"dropout": 0.1 * seed}, input_shape=shape)
    spec = WarmSpec(candidate=candidate, example=Example(shape=shape), parent=network_form)
    definition = network_form.definition
    assert definition is not None
    parent = build_empty(definition, FACTORIES).to_empty(device="cpu")
    parent.load_state_dict(
        {p: torch.rand(t.shape).to(t.dtype) for p, t in parent.state_dict().items()}
    )
    tensors = {path: t.clone() for path, t in parent.state_dict().items()}
    parent.eval()

    def both(spec: WarmSpec) -> Carried:
        child = build(spec.candidate).module
        found = _same_network(spec, child, tensors)
        inputs = [spec.example.inputs()]
        wanted = carry(child, inputs, spec.parent, tensors, seed=seed, shrink=None)
        assert found is not None
        assert wanted.tensors.keys() == found.tensors.keys()
        assert all(torch.equal(t, found.tensors[path]) for path, t in wanted.tensors.items())
        own = [one if one.parent else replace(one, operator="fresh") for one in wanted.origins]
        assert list(found.origins) == own
        assert found.exact >= wanted.exact
        assert found.coverage == pytest.approx(wanted.coverage)
        fill(child, found.tensors)
        x = torch.randn(5, *shape)
        assert torch.allclose(child.eval()(x), parent(x), atol=1e-5)
        return found

    assert both(spec).exact
    unknown = replace(network_form, rows=RowMap(class_doubts=("other classes",), is_known=False))
    assert both(replace(spec, parent=unknown)).reasons == ("other classes",)
    for other in (
        replace(spec, shrink=0.5),
        replace(spec, parent=form(factory, {"dropout": 0.9}, input_shape=shape)),
        replace(spec, candidate=replace(candidate, architecture=network)),
    ):
        child = build(other.candidate).module
        is_it = other.candidate.architecture == network  # which goes on with all that it has
        assert (_same_network(other, child, tensors) is not None) == is_it
    tensors[next(iter(tensors))].view(-1)[0] = float("nan")
    assert _same_network(spec, build(candidate).module, tensors) is None


def test_what_cannot_be_is_said_and_nothing_is_made() -> None:
    result, state = first_state(warm_spec(), {"a": torch.zeros(3)})
    assert result.refused is not None and state == b""
    assert not result.is_final


def test_packed_tensors_come_back_with_their_ties() -> None:
    first = torch.randn(3, 4)
    tensors = {"a": first, "b": first, "c": first.t(), "n": torch.tensor(3), "e": torch.zeros(0)}
    found = weights(packed(tensors))
    assert list(found.keys() - tensors.keys()) == []
    assert all(torch.equal(found[path], tensor) for path, tensor in tensors.items())
    assert found["a"] is found["b"]


def test_several_inputs_are_passed_by_name() -> None:
    example = Example(shape={"a": (3,), "ids": (4,)}, dtypes={"a": "float32", "ids": "int64"})
    inputs = example.inputs()
    assert inputs.args == ()
    shapes = {name: (tuple(one.shape), one.dtype) for name, one in inputs.kwargs.items()}
    assert shapes == {"a": ((2, 3), torch.float32), "ids": ((2, 4), torch.int64)}
    assert TensorOrigin(path="a", parent=None, operator="fresh", fraction=0.0).reason is None
