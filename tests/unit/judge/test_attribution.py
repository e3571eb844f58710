"""What columns added to an answer: against sums over all orders, and integrals in small steps."""

from __future__ import annotations

from functools import cache
from itertools import permutations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mmdb.errors import InvalidInput
from mmdb.graph.factories import cnn, mlp
from mmdb.graph.tabular import Columns, WordsInput, tabular
from mmdb.judge.attribution import Answer, Arrays, Place, integrated_gradients, shapley

CODES = 7


def columns_of(*spans: int) -> list[Place]:
    ends = np.cumsum(spans).tolist()
    pairs = zip(ends, spans, strict=True)
    return [Place(input="", span=slice(end - n, end)) for end, n in pairs]


def mixed() -> tuple[nn.Module, list[Place]]:
    """Return a network of three numbers, two codes, and the codes of four words."""
    runs: Columns = [["number", 3], ["code", CODES, 4], ["code", CODES, 2], ["words", 4, CODES, 3]]
    module = tabular((9,), 3, columns=runs, hidden=[16], ensemble=2)
    coded = [
        Place(input="", span=slice(start, end), codes=CODES)
        for start, end in ((3, 4), (4, 5), (5, 9))
    ]
    return module, [*columns_of(1, 1, 1), *coded]


MODELS = {
    "linear": lambda: (nn.Linear(5, 3), columns_of(1, 1, 3)),
    "mlp": lambda: (mlp((5,), 3, hidden=[16, 8]), columns_of(2, 1, 1, 1)),
    "tanh": lambda: (
        nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 3)),
        columns_of(*[1] * 4),
    ),
    "cnn": lambda: (cnn((1, 8, 8), 3), columns_of(32, 32)),
    "tabular": mixed,
}


def drawn(name: str) -> tuple[nn.Module, list[Place], Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    module, places = MODELS[name]()
    shape = (1, 8, 8) if name == "cnn" else (places[-1].span.stop,)
    x, base = torch.randn(6, *shape), torch.randn(1, *shape) / 4
    for place in places:
        if place.codes:
            size = x[:, place.span].shape
            x[:, place.span] = torch.randint(CODES, size).float()
            base[:, place.span] = 0.0
    return module.eval(), places, x, base, torch.tensor([0, 1, 2, 0, 1, 2])


def answer_of(module: nn.Module) -> Answer:
    def answer(arrays: Arrays, asked: Tensor) -> Tensor:
        chances: Tensor = module(arrays[""]).softmax(-1)
        return chances.gather(1, asked[:, None])[:, 0]

    return answer


@pytest.mark.parametrize("name", MODELS)
def test_shapley_is_the_mean_over_all_orders(name: str) -> None:
    module, places, x, base, asked = drawn(name)
    answer = answer_of(module)
    found = shapley(answer, {"": x}, asked, {"": base}, places)
    wanted = np.zeros((len(x), len(places)))

    @cache  # many orders come by the same set of columns
    def answered(known: frozenset[int]) -> Tensor:
        rows = base.expand_as(x).clone()
        for k in known:
            rows.flatten(1)[:, places[k].span] = x.flatten(1)[:, places[k].span]
        with torch.no_grad():
            return answer({"": rows}, asked)

    orders = list(permutations(range(len(places))))
    for order in orders:
        for place, k in enumerate(order):
            before = answered(frozenset(order[:place]))
            after = answered(frozenset(order[: place + 1]))
            wanted[:, k] += (after - before).double().numpy()
    np.testing.assert_allclose(found.added, wanted / len(orders), atol=1e-6)
    assert found.gap.max() < 1e-6


def slopes_at(module: nn.Module, x: Tensor, base: Tensor, asked: int, share: float) -> list[Tensor]:
    """Return the gradient at a point of the way, of the row and each embedding, times the way."""
    coded = [one for one in module.modules() if isinstance(one, nn.Embedding | WordsInput)]
    inside = [one.embedding for one in coded if isinstance(one, WordsInput)]
    coded = [one for one in coded if not any(one is other for other in inside)]
    given: list[Tensor] = []
    keep = [one.register_forward_hook(lambda _, __, out: given.append(out)) for one in coded]
    with torch.no_grad():
        module(x), module(base)
    for handle in keep:
        handle.remove()
    ends, starts = given[: len(coded)], given[len(coded) :]
    leaves = [
        (start + share * (end - start)).requires_grad_()
        for end, start in zip(ends, starts, strict=True)
    ]
    waiting = iter(leaves)
    handles = [one.register_forward_hook(lambda _, __, ___: next(waiting)) for one in coded]
    way = x.clone() if coded else base + share * (x - base)
    if coded:
        way[:, :3] = base[:, :3] + share * (x - base)[:, :3]
    way.requires_grad_()
    module(way).softmax(-1)[0, asked].backward()
    for handle in handles:
        handle.remove()
    assert way.grad is not None
    found = [way.grad * (x - base)]
    for leaf, end, start in zip(leaves, ends, starts, strict=True):
        assert leaf.grad is not None
        found.append(leaf.grad * (end - start))
    return found


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_the_integral_along_the_way(name: str) -> None:
    """A plain loop over points and rows, with the way of codes that of their embeddings."""
    module, places, x, base, asked = drawn(name)
    found = integrated_gradients(
        answer_of(module), module, {"": x}, asked, {"": base}, places, steps=(32,)
    )
    at, weight = np.polynomial.legendre.leggauss(32)
    for row in range(len(x)):
        wanted = np.zeros(len(places))
        for share, part in zip((at + 1) / 2, weight / 2, strict=True):
            plain, *coded = slopes_at(module, x[row : row + 1], base, int(asked[row]), share)
            rest = iter(coded)
            for k, place in enumerate(places):
                moved = next(rest) if place.codes else plain.flatten(1)[:, place.span]
                wanted[k] += part * float(moved.sum())
        np.testing.assert_allclose(found.added[row], wanted, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_add_up_within_one_percent(name: str) -> None:
    module, places, x, base, asked = drawn(name)
    answer = answer_of(module)
    found = integrated_gradients(answer, module, {"": x}, asked, {"": base}, places)
    with torch.no_grad():
        start = answer({"": base.expand_as(x)}, asked).numpy()
    difference = np.abs(found.answer - start)
    np.testing.assert_allclose(found.added.sum(1), found.answer - start, atol=1e-3)
    assert (found.gap <= 0.01 * np.maximum(difference, 0.01)).all()


def test_what_cannot_be_told_apart_is_refused() -> None:
    module, places, x, base, asked = drawn("tabular")
    with pytest.raises(InvalidInput, match="11 columns"):
        shapley(answer_of(module), {"": x}, asked, {"": base}, [*places, *places[:5]])

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(CODES, 3)

        def forward(self, x: Tensor) -> Tensor:
            embedded: Tensor = self.embedding(x.long())
            return embedded.sum(1)

    both = [Place(input="", span=slice(k, k + 1), codes=CODES) for k in range(2)]
    x, base = torch.randint(CODES, (3, 2)).float(), torch.zeros(1, 2)
    module, asked = Shared(), torch.zeros(3, dtype=torch.int64)
    with pytest.raises(InvalidInput, match="cannot be told"):
        integrated_gradients(answer_of(module), module, {"": x}, asked, {"": base}, both)
