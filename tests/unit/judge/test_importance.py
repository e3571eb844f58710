"""Which columns matter: found among others that do not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mmdb.judge.importance import importances

COLUMNS, MATTER = 20, 5


@pytest.mark.parametrize("seed", range(10))
def test_columns_that_matter_come_first(seed: int) -> None:
    random = np.random.default_rng(seed)
    x = random.normal(size=(400, COLUMNS))
    weights = np.zeros(COLUMNS)
    matter = random.choice(COLUMNS, MATTER, replace=False)
    weights[matter] = random.choice([-1, 1], MATTER) * random.uniform(0.5, 1.5, MATTER)
    y = torch.from_numpy(x @ weights + random.normal(size=len(x)))
    values = {f"c{k}": x[:, k] for k in range(COLUMNS)}

    def outputs(given: object) -> tuple[torch.Tensor, ...]:
        columns = [given[f"c{k}"] for k in range(COLUMNS)]  # type: ignore[index]
        return (torch.from_numpy(np.stack(columns, 1) @ weights),)

    def rmse(found: tuple[torch.Tensor, ...], rows: torch.Tensor) -> float:
        return float((found[0][rows] - y[rows]).square().mean().sqrt())

    groups = [(name,) for name in values]
    found = [*importances(values, groups, outputs, rmse, maximize=False, seed=seed)]
    first = sorted(range(COLUMNS), key=lambda k: -found[k].value)[:MATTER]
    assert set(first) == set(matter.tolist())
    for k, one in enumerate(found):
        assert (one.low > 0) == (k in matter)
        assert one.value == 0 or one.low <= one.value <= one.high


def test_columns_of_a_group_are_shuffled_as_one() -> None:
    """Two columns that are equal tell the same alone; together they are all that is known."""
    random = np.random.default_rng(0)
    one = random.normal(size=300)
    y = torch.from_numpy(one)
    values = {"a": one, "b": one.copy()}

    def outputs(given: object) -> tuple[torch.Tensor, ...]:
        return (torch.from_numpy((given["a"] - given["b"]) + y.numpy()),)  # type: ignore[index]

    def mse(found: tuple[torch.Tensor, ...], rows: torch.Tensor) -> float:
        return float((found[0][rows] - y[rows]).square().mean())

    (both,) = importances(values, [("a", "b")], outputs, mse, maximize=False)
    assert both.value == pytest.approx(0, abs=1e-12)
    (alone,) = importances(values, [("a",)], outputs, mse, maximize=False)
    assert alone.value > 1
