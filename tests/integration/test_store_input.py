"""What cannot be saved or is not there is named, and nothing is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import mmdb
from mmdb import errors
from mmdb.api import Database
from mmdb.store.models.model_rows import find_model
from mmdb.store.models.recover import ModelReader
from mmdb.store.models.save import save_model
from mmdb.store.tensors.tensor_bytes import DTYPES
from tests.stores import check, check_usable, counts


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    """Yield an open database, once on each engine."""
    with mmdb.connect(database_url) as opened:
        yield opened


def weights(seed: int = 0) -> dict[str, torch.Tensor]:
    """Return a model of a tensor with chunks of its own and one in the pack."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "body.weight": torch.randn(128, 128, generator=generator) * 0.02,
        "body.bias": torch.randn(128, generator=generator) * 0.02,
    }


class Noted(nn.Linear):
    """A layer with a note in its state dict."""

    def get_extra_state(self) -> str:
        return "a note"

    def set_extra_state(self, state: object) -> None:
        return


EYE = torch.eye(40)
#: What cannot be saved, and what the error says.
BAD: list[tuple[Callable[[], Any], str]] = [
    (lambda: {"fine": EYE, "epoch": 3}, "'epoch' is a int"),
    (lambda: Noted(2, 2), "_extra_state' is a str"),
    (lambda: {"fine": EYE, "bias": None}, "'bias' is a NoneType"),
    (lambda: {"fine": EYE, "bad": EYE.to_sparse()}, "'bad'.*sparse_coo"),
    (lambda: {"fine": EYE, "bad": EYE.to("meta")}, "'bad'.*without memory"),
    (
        lambda: {"fine": EYE, "bad": torch.quantize_per_tensor(EYE, 0.1, 0, torch.qint8)},
        "'bad'.*quantized",
    ),
    (lambda: nn.LazyLinear(3), "'weight' has no shape"),
    (lambda: {3: EYE}, "3 is a int"),
    (lambda: {"\ud800": EYE}, "half a character"),
]


@pytest.mark.filterwarnings("ignore:Lazy modules are", "ignore:.*quantiz")
def test_what_is_no_tensor_is_named_and_nothing_is_stored(db: Database) -> None:
    for source, message in BAD:
        with pytest.raises(errors.MmdbError, match=message):
            save_model(db.connection, "net", source())
    check_usable(db)


REFUSED: list[tuple[dict[str, Any], type[errors.MmdbError]]] = [
    ({"parent": "nobody"}, errors.ModelNotFound),
    ({"parent": "net@7"}, errors.ModelNotFound),
    ({"parent": "net@prod"}, errors.ModelNotFound),
    ({"approach": "update"}, errors.NoParent),
    ({"approach": "update", "parent": "small"}, errors.NoParent),
    ({"approach": "provenance"}, errors.InvalidRecipe),
    ({"approach": "shrink"}, errors.InvalidOption),
    ({"options": {"weight": 1}}, errors.InvalidOption),
    ({"version": 1}, errors.AlreadyExists),
]


def test_a_save_that_cannot_be_leaves_the_database_as_it_was(db: Database) -> None:
    save_model(db.connection, "net", weights())
    save_model(db.connection, "small", {"x": torch.ones(3)})
    before = counts(db)
    for options, error in REFUSED:
        with pytest.raises(error):
            save_model(db.connection, "net", weights(1), **options)
        assert counts(db) == before
    check(db.connection, save_model(db.connection, "net", weights(1)), weights(1))


#: Calls that cannot be meant, and what the error says.
MISTAKES: list[tuple[Callable[[Any], object], str]] = [
    (lambda db: db.save("x", None), "A NoneType is no model"),
    (lambda db: db.save("x", [EYE]), "A list is no model"),
    (lambda db: db.save("x", weights(), metrics=[1]), "metrics is"),
    (lambda db: db.save("x", weights(), metrics={"a": 10**400}), "'a' is about 1e400"),
    (lambda db: db.tensor("net", "body.bias", rows=slice(0, 2)), "rows is slice"),
    (lambda db: db.tensor("net", "body.bias", rows=1), "rows is 1"),
    (lambda db: db.tensor("net", "body.bias", rows="ab"), "rows is 'ab'"),
    (lambda db: db.tensor("net", "body.bias", rows=(0.5, 2)), "rows is"),
    (lambda db: db.tensor("net", "body.bias", rows=(1,)), "rows is"),
    (lambda db: db.tensors("net"), "wanted are 'net'"),
    (lambda db: db.tensors([("net", "body.bias", "x")]), "wanted are"),
    (lambda db: db.recover("net", into="x"), "into is 'x'"),
    (lambda db: db.recover("net", base="x"), "base is 'x'"),
    (lambda db: db.architecture("mlp", input_shape="x", outputs=1), "input_shape is 'x'"),
    (lambda db: db.architecture("mlp", input_shape=[2.5], outputs=1), "input_shape is"),
    (lambda db: db.architecture("mlp", input_shape=[2], outputs="x"), "outputs is"),
    (lambda db: db.export_model("net", 5), "target is 5"),
]


def test_calls_that_cannot_be_meant_say_what_was_passed_and_what_it_takes(db: Database) -> None:
    db.save("net", weights())
    before = counts(db)
    for call, message in MISTAKES:
        with pytest.raises(errors.InvalidOption, match=message) as caught:
            call(db)
        assert caught.value.hint
    assert counts(db) == before
    for architecture, error in (("nope", errors.UnknownFactory), ("mlp(1)", errors.FactoryFailed)):
        with pytest.raises(error):
            db.save("x", nn.Linear(2, 2), architecture=architecture)


def test_values_of_a_dtype_that_torch_only_stores_are_not_read_in_sql(db: Database) -> None:
    db.save("odd", {"a": torch.arange(9, dtype=torch.uint8).view(torch.bits8)})
    with pytest.raises(errors.UnsupportedTensor, match="'a' holds bits8"):
        db.sql("SELECT mmdb.tensor_values('odd', 'a')")


def test_paths_and_rows_that_are_not_there_are_named(db: Database) -> None:
    save_model(db.connection, "net", weights() | {"scalar": torch.tensor(1.0)})
    reader, net = ModelReader(db.connection), find_model(db.connection, "net")
    with pytest.raises(errors.TensorNotFound, match="net@1 has no tensor 'nose'"):
        reader.tensors(net, ["body.bias", "nose"])
    for path, lo, hi in [("body.bias", 0, 129), ("body.bias", -1, 2), ("body.bias", 5, 4)]:
        with pytest.raises(errors.TensorNotFound, match="has 128 rows"):
            reader.rows(net, path, lo, hi)
    with pytest.raises(errors.TensorNotFound):
        reader.rows(net, "scalar", 0, 1)
    with pytest.raises(errors.InvalidOption):
        reader.tensors(net, verify="perhaps")  # type: ignore[arg-type]


def _odd_tensors() -> dict[str, torch.Tensor]:
    """Return tensors without plain bytes of their own."""
    x = torch.randn(60, 60)
    freed = torch.randn(50, 50)
    freed.untyped_storage().resize_(0)
    return {
        "viewed as quantized": torch.zeros(4000, dtype=torch.uint8).view(torch.quint8),
        "quantized": torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
        "sparse": x.to_sparse(),
        "compressed": x.to_sparse_csr(),
        "nested": torch.nested.nested_tensor([x, x[:3]]),
        "jagged": torch.nested.nested_tensor([x, x[:3]], layout=torch.jagged),
        "meta": x.to("meta"),
        "fake": FakeTensorMode().from_tensor(x),
        "masked": torch.masked.masked_tensor(x, x > 0),
        "functional": torch._to_functional_tensor(x),
        "freed": freed,
    }


@pytest.mark.filterwarnings("ignore")
def test_tensors_without_plain_bytes_are_refused_by_name(db: Database) -> None:
    for tensor in _odd_tensors().values():
        for path in ("a", "b.weight"):
            with pytest.raises(errors.UnsupportedTensor, match=f"'{path}': A tensor that is"):
                save_model(db.connection, "net", {path: tensor, "fine": torch.ones(3)})
    assert counts(db)["model"] == 0


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_a_tensor_of_every_dtype_however_it_lies_comes_back(db: Database) -> None:
    raw = torch.randint(0, 256, (64 * 512,), dtype=torch.uint8)
    for name, dtype in DTYPES.items():
        flat = raw.clone().view(dtype) if dtype is not torch.bool else (raw > 127)
        model = {
            "flat": flat,
            "turned": flat.reshape(64, -1).t(),
            "one": flat[0],
            "steps": flat[::2],
            "empty": torch.empty((0, 3), dtype=dtype),
        }
        check(db.connection, save_model(db.connection, name.replace("_", "-"), model), model)
