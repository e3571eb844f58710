"""A server and three nodes: distribute a model, update it on either side, recover it anywhere.

The four use cases are those that MMLib was evaluated with (Strassenburg et al., EDBT 2022): U1 the
initial model goes to the nodes, U2 the server updates it, U3 the nodes update it, U4 any model is
recovered, by anybody. The server is PostgreSQL, a node a DuckDB file; all that passes between them
goes through a relay that counts the bytes of both directions.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import nn

import mmdb
from mmdb.api import Database
from mmdb.errors import AlreadyExists, ConnectionLost
from mmdb.store.models.save import Saved
from mmdb.store.sync.push_pull import CopyOptions, CopyReport, push
from mmdb.store.tensors.tensor_bytes import hash_of
from tests.relay import Relay

NODES = 3
HIDDEN, INPUTS, OUTPUTS = 256, 64, 1000
ARCHITECTURE = f"mlp(hidden=[{HIDDEN}, {HIDDEN}, {HIDDEN}], batch_norm=True)"
#: On the wire, of what the save stored: statements, names and rows must fit into the rest.
BAR = 1.05
#: On the wire where there is nothing to send.
NOTHING_BYTES = 12_000

Weights = dict[str, bytes]  # path -> hash of the tensor


@dataclass
class Zoo:
    """The server and its nodes, and the weights that each model was saved with."""

    url: str  # of the server
    server: Database
    nodes: list[Database]
    expected: dict[str, Weights] = field(default_factory=dict)

    def save(self, db: Database, name: str, module: nn.Module, parent: str | None = None) -> Saved:
        """Save a module as an update of its parent, if it has one."""
        given = {"architecture": ARCHITECTURE, "input_shape": (INPUTS,), "outputs": OUTPUTS}
        saved = db.save(
            name,
            module,
            parent=parent,
            approach="snapshot" if parent is None else "update",
            **(given if parent is None else {}),  # type: ignore[arg-type]
        )
        self.expected[saved.reference] = weights(module)
        return saved

    def pull(self, node: Database, model: str) -> tuple[CopyReport, int]:
        """Pull a model from the server; return what was done and the bytes that passed."""
        with Relay(self.url) as relay:
            return node.pull(model, from_=relay.url), relay.passed

    def push(
        self, node: Database, model: str, version: Literal["next"] | None = None
    ) -> tuple[CopyReport, int]:
        """Push a model to the server; return what was done and the bytes that passed."""
        with Relay(self.url) as relay:
            return node.push(model, to=relay.url, version=version), relay.passed

    def check(self, db: Database, model: str) -> None:
        """Recover a model and compare it, tensor by tensor, with what was saved."""
        assert weights(db.recover(model)) == self.expected[model], model


def weights(module: nn.Module) -> Weights:
    return {path: hash_of(tensor) for path, tensor in module.state_dict().items()}


def initial() -> nn.Module:
    from mmdb.graph.factories import mlp

    torch.manual_seed(0)
    return mlp((INPUTS,), OUTPUTS, hidden=[HIDDEN, HIDDEN, HIDDEN], batch_norm=True)


def trained(module: nn.Module, seed: int, *, everything: bool = False) -> nn.Module:
    """Return the module after steps that move its classifier, or every weight, a little."""
    tuned = copy.deepcopy(module)
    classifier = [m for m in tuned.modules() if isinstance(m, nn.Linear)][-1]
    moved = tuned if everything else classifier
    optimizer = torch.optim.SGD(moved.parameters(), lr=0.1 if everything else 1e-3)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(64, INPUTS, generator=generator)
    y = torch.randint(0, OUTPUTS, (64,), generator=generator)
    tuned.train(everything)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(tuned(x), y).backward()
        optimizer.step()
    return tuned


@pytest.fixture
def zoo(postgres_url: str, tmp_path: Path) -> Iterator[Zoo]:
    server = mmdb.connect(postgres_url)
    nodes = [mmdb.connect(f"duckdb:///{tmp_path}/node{k}.duckdb") for k in range(NODES)]
    yield Zoo(postgres_url, server, nodes)
    for db in (server, *nodes):
        db.close()


def test_the_four_use_cases(zoo: Zoo) -> None:
    server, nodes = zoo.server, zoo.nodes

    # U1: the initial model goes from the server to every node.
    first = initial()
    saved = zoo.save(server, "m", first)
    for node in nodes:
        copied, passed = zoo.pull(node, "m")
        assert copied.models == ("m@1",) and passed <= BAR * saved.stored_bytes
        zoo.check(node, "m@1")

    # U2: the server updates it, and the nodes fetch the difference.
    second = trained(first, 1)
    saved = zoo.save(server, "m", second, "m@1")
    for node in nodes:
        copied, passed = zoo.pull(node, "m")
        assert copied.bytes_sent == saved.stored_bytes and passed <= BAR * saved.stored_bytes
        assert copied.bytes_skipped > 0
        zoo.check(node, "m@2")

    # U3: the nodes update their copies, each in its own way, and send the differences.
    for k, node in enumerate(nodes):
        saved = zoo.save(node, f"m-{k}", trained(second, 10 + k, everything=k == 1), "m@2")
        copied, passed = zoo.push(node, f"m-{k}")
        assert copied.models == (f"m-{k}@1",) and passed <= BAR * saved.stored_bytes
        assert copied.bytes_sent == saved.stored_bytes
    # Two nodes save the same version: the second one to arrive is told, and may be the next.
    third, other = trained(second, 20), trained(second, 21)
    for node, module in ((nodes[0], third), (nodes[1], other)):
        zoo.save(node, "m", module, "m@2")
    zoo.expected |= {"m@3": weights(third), "m@4": weights(other)}
    zoo.push(nodes[0], "m@3")
    with pytest.raises(AlreadyExists, match="m@3"):
        zoo.push(nodes[1], "m@3")
    assert zoo.push(nodes[1], "m@3", "next")[0].models == ("m@4",)

    # A connection that breaks in the middle leaves nothing to be seen; the push is called again.
    saved = zoo.save(nodes[2], "broken", trained(second, 30, everything=True), "m@2")
    options = CopyOptions(batch_bytes=256 << 10)
    with Relay(zoo.url, cut_after=saved.stored_bytes * 2 // 3) as relay:
        with pytest.raises(ConnectionLost):
            push(nodes[2].connection, "broken", to=relay.url, options=options)
    assert not server.sql("SELECT 1 FROM mmdb.model WHERE name = 'broken'")
    copied, passed = zoo.push(nodes[2], "broken")
    assert 0 < copied.bytes_sent <= passed < 0.9 * saved.stored_bytes

    # U4: every model is recovered by the server and, once pulled, by every node.
    everywhere = ["m@1", "m@2", "m-0@1", "m-1@1", "m-2@1", "broken@1", "m@4"]
    for model in [*everywhere, "m@3"]:
        zoo.check(server, model)
    for k, node in enumerate(nodes):
        for model in everywhere:
            zoo.pull(node, model)
            zoo.check(node, model)
        if k != 1:  # it has an m@3 of its own
            zoo.pull(node, "m@3")
            zoo.check(node, "m@3")

    # Once more, nothing is sent.
    for node in nodes:
        for model in everywhere:
            for copied, passed in (zoo.pull(node, model), zoo.push(node, model)):
                assert (copied.kept, copied.bytes_sent) == ((model,), 0)
                assert passed < NOTHING_BYTES
