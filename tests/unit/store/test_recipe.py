"""Recipes: what they may hold, and that all of it comes back without pickle."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mmdb.errors import InvalidRecipe
from mmdb.store.models.recipe import Recipe, check_recipe, recipe_bytes
from mmdb.store.tensors.nested import flatten, unflatten
from mmdb.store.tensors.tensor_bytes import DTYPES, hash_of


def there_and_back(value: Any) -> Any:
    """Return what a JSON column that orders keys, and the tensor store, give back of a value."""
    plain, flat = flatten(value)
    text = json.dumps(plain, sort_keys=True, allow_nan=False)
    assert all(tensor.ndim == 1 and tensor.numel() for tensor in flat.values())
    return unflatten(json.loads(text), flat)


def same(a: Any, b: Any) -> bool:
    """Return whether two values are equal in type and bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return (a.dtype, a.shape, hash_of(a)) == (b.dtype, b.shape, hash_of(b))
    if isinstance(a, np.ndarray):
        return bool((a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()))
    if isinstance(a, dict):
        return set(a) == set(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return bool(a.hex() == b.hex())
    return bool(a == b)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        [1, 1.0, True, "1", None],
        2**70,
        [0.1, 1e-8, 1e16, 1.7e308, 5e-324, -0.0, math.inf, -math.inf, math.nan],
        {"a": (1, [2, (3,)]), "b": {}},
        {0: {"step": 1}, 1: {"step": 2}},
        {"$tensor": 1},
        {"$odd": {"$tensor": "no"}, "x": 2},
        {(1, 2): "tuple", None: "none"},
        Counter({30: 1, 60: 2}),
        list(range(1000)),
        tuple(range(-700, 0)),
        [2**63] * 100,
        [True] * 100,
        "é \u2028 \U0001f600",
        np.arange(6, dtype=np.uint32).reshape(2, 3),
        torch.empty(0, 3),
        torch.tensor(3.5, dtype=torch.float64),
        torch.arange(12).reshape(3, 4).T,
        [torch.zeros(2), torch.ones(3), torch.ones(2, dtype=torch.int64)],
    ],
    ids=str,
)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert same(there_and_back(value), value)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_tensors_of_every_dtype_come_back(dtype: str) -> None:
    kind = DTYPES[dtype]
    size = 5 * kind.itemsize
    raw = torch.randint(0, 2 if dtype == "bool" else 256, (size,), generator=torch.Generator())
    tensor = raw.to(torch.uint8).view(kind)
    assert same(there_and_back({"a": tensor, "b": [tensor[1:3]]})["b"][0], tensor[1:3])


def test_tensors_that_come_back_own_their_memory() -> None:
    found = there_and_back([torch.zeros(3), torch.zeros(3)])
    found[0].add_(1)
    assert found[1].tolist() == [0, 0, 0]


def make_training() -> tuple[Any, Any, Any]:
    module = nn.Sequential(nn.Linear(3, 4), nn.Dropout(), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(module.parameters(), amsgrad=True)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)  # its state holds infinity
    steps = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5])  # its state holds a Counter
    for _ in range(4):
        optimizer.zero_grad()
        module(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        steps.step()
    return optimizer, plateau, steps


def test_states_of_optimizer_and_schedules_come_back() -> None:
    states = {str(k): part.state_dict() for k, part in enumerate(make_training())}
    found = there_and_back(states)
    assert same(found, states)
    for part, state in zip(make_training(), found.values(), strict=True):
        part.load_state_dict(state)
        assert same(part.state_dict(), state)


def test_states_of_generators_come_back_and_take_few_bytes_of_json() -> None:
    states = {
        "python": random.Random(3).getstate(),
        "numpy": np.random.RandomState(3).get_state(),
        "torch": torch.Generator().manual_seed(3).get_state(),
    }
    assert same(there_and_back(states), states)
    assert len(json.dumps(flatten(states)[0])) < 500


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": [1, {"b": lambda: 0}]}, "the recipe.a[1].b is a function"),
        ({1: {2}}, "the recipe[1] is a set"),
        (b"bytes", "the recipe is a bytes"),
        (Path("x"), "PosixPath"),
        (np.float32(1), "the recipe is a float32"),
        (np.array(["a"]), "ndarray"),
        (np.array([None]), "ndarray"),
        ("\0", "a database cannot keep"),
        ({"\ud800": 1}, "a database cannot keep"),
        (torch.zeros(2, 2).to_sparse(), "without plain bytes"),
        (torch.zeros(2, device="meta"), "without plain bytes"),
    ],
)
def test_what_would_need_pickle_is_refused_with_its_place(value: Any, where: str) -> None:
    with pytest.raises(InvalidRecipe) as caught:
        flatten(value)
    assert where in caught.value.message
    assert caught.value.hint


def test_a_stored_form_that_is_not_known_is_refused() -> None:
    with pytest.raises(InvalidRecipe, match="\\$pickle"):
        unflatten({"$pickle": "gASV"}, {})


# -- what a recipe needs ------------------------------------------------------


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(),
        Recipe(trainer="t", seed=-1),
        Recipe(trainer="t", seed=2**63),
        Recipe(trainer="t", threads=0),
        Recipe(trainer="t", arguments={"seed": 1}),
        Recipe(trainer="t", arguments={"state": {}}),
        Recipe(trainer="t", arguments={"optimizer": torch.optim.SGD}),
        Recipe(trainer="t", state={"optimizer": make_training()[0]}),
    ],
)
def test_a_recipe_that_cannot_be_followed_is_refused(recipe: Recipe) -> None:
    with pytest.raises(InvalidRecipe):
        check_recipe(recipe)


def test_a_run_s_recipe_takes_few_bytes_and_states_count_in_full() -> None:
    assert recipe_bytes(Recipe(train_s=3.0), 600) < 7_000
    state = {"optimizer": {"state": {0: {"exp_avg": torch.zeros(1000)}}}}
    added = recipe_bytes(Recipe(trainer="t", state=state), 2) - recipe_bytes(Recipe(trainer="t"), 2)
    assert 4000 <= added < 4200
