"""A network per group answers as each group's own network does."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mmdb.errors import ArchitectureError
from mmdb.graph.factories import SHIPPED
from mmdb.graph.grouped import Grouped
from mmdb.graph.spec.build import build
from mmdb.graph.spec.parse import canonical, factories_in, parse

ARCHITECTURE: dict[str, Any] = {
    "per": "shop",
    "groups": 9,
    "place": 1,
    "network": "mlp(hidden=[4], activation='tanh')",
}
CODED = {"factory": "mlp", "arguments": {"columns": [["number", 2], ["code", 5, 3]]}}


def _built(architecture: dict[str, Any], width: int = 4, outputs: int = 2) -> Grouped:
    torch.manual_seed(0)
    network = build(architecture, {}, (width,), outputs, SHIPPED)
    assert isinstance(network, Grouped)
    with torch.no_grad():
        for parameter in network.each.parameters():
            parameter.add_(torch.randn_like(parameter))
    return network


@pytest.mark.parametrize("inner", [ARCHITECTURE["network"], CODED, "linear"], ids=str)
@pytest.mark.parametrize("rows", [1, 2, 200])
def test_a_row_goes_through_its_groups_network(inner: Any, rows: int) -> None:
    network = _built(ARCHITECTURE | {"network": inner})
    network._chunk = 7
    x = torch.randint(0, 5, (rows, 4)).float()
    x[:, 1] = torch.randint(0, 9, (rows,)).float()
    with torch.no_grad():
        found = network(x)
        for row, output in zip(x, found, strict=True):
            own = network.of(int(row[1])).eval()(network.rows(row[None]))[0]
            torch.testing.assert_close(output, own)


def test_an_architecture_of_groups_is_read_and_written_alike() -> None:
    parsed = parse(ARCHITECTURE)
    assert parse(parsed) == parsed and factories_in(parsed) == ("mlp",)
    assert canonical(parsed) == canonical(ARCHITECTURE)


def test_groups_begin_alike_and_arguments_are_the_networks() -> None:
    torch.manual_seed(0)
    network = build(ARCHITECTURE, {"hidden": [3, 2]}, (4,), 2, SHIPPED)
    weights = [*network.parameters()]
    assert [tuple(w.shape) for w in weights[::2]] == [(9, 3, 3), (9, 2, 3), (9, 2, 2)]
    assert all((w == w[:1]).all() for w in weights)


@pytest.mark.parametrize(
    ("change", "width"),
    [
        ({"groups": 1}, 4),
        ({"groups": "9"}, 4),
        ({"groups": 2**24 + 1}, 4),
        ({"place": 4}, 4),
        ({"place": -1}, 4),
        ({"place": None}, 4),
        ({}, 1),
        ({"network": ARCHITECTURE}, 4),
        ({"network": None}, 4),
        ({"network": "nothing_of_this_name"}, 4),
        ({"further": 1}, 4),
        ({"groups": 2**24, "network": "mlp(hidden=[64])"}, 4),
    ],
    ids=str,
)
def test_what_cannot_be_built_is_refused(change: dict[str, Any], width: int) -> None:
    with pytest.raises(ArchitectureError):
        build(ARCHITECTURE | change, {}, (width,), 2, SHIPPED)
    for key in ARCHITECTURE:
        with pytest.raises(ArchitectureError):
            parse({k: v for k, v in ARCHITECTURE.items() if k != key})
