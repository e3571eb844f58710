"""From a search space to the candidates' configurations. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from itertools import product
from typing import Any

from mmdb.errors import EmptySearch, InvalidHyperparameter, InvalidOption
from mmdb.train.seeds import candidate_seed

#: Ends of a range; beyond them the width of a range is infinite.
LARGEST = 1e300
#: More candidates than this are a mistake in the space, not a search.
MAX_CANDIDATES = 10_000
METHODS = ("grid", "random")


def candidates(search: Mapping[str, Any], seed: int) -> list[dict[str, Any]]:
    """Return one configuration for each candidate.

    Args:
        search: {"method": "grid" | "random", "space": {name: dimension}, "trials": n}. A dimension
            is a list of values, a single value, or for "random" a range {"low", "high", "log",
            "whole"}.
        seed: of "random"; every dimension draws from a stream of its own.
    Raises:
        EmptySearch, InvalidHyperparameter, InvalidOption
    """
    for key in search:
        if key not in ("method", "space", "trials"):
            raise InvalidOption(
                f"search has no key {key!r}.", hint="Its keys are method, space and trials."
            )
    method, space = search.get("method", "grid"), search.get("space", {})
    if method not in METHODS:
        raise InvalidOption(f"search.method is {method!r}.", hint=f"Known: {', '.join(METHODS)}.")
    if not isinstance(space, Mapping):
        raise InvalidOption("search.space is not an object.", hint='{"lr": [0.1, 0.01]}')
    space = dict(sorted(space.items()))  # PostgreSQL's jsonb keeps no order of keys
    space = _plain(space)
    found = _grid(space) if method == "grid" else _random(space, search.get("trials", 8), seed)
    if not found:
        raise EmptySearch("The search space holds no candidate.")
    return found


def _plain(value: Any) -> Any:
    """Return a JSON value with whole floats as integers: jsonb makes an integer of 1e0."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _values(name: str, dimension: Any) -> list[Any]:
    if isinstance(dimension, list):
        if not dimension:
            raise EmptySearch(f"The dimension {name!r} of the search space has no value.")
        return dimension
    return [dimension]


def _grid(space: Mapping[str, Any]) -> list[dict[str, Any]]:
    for name, dimension in space.items():
        if isinstance(dimension, Mapping) and "low" in dimension:
            raise InvalidHyperparameter(
                f"{name} is a range, which a grid cannot walk.",
                hint="List its values, or use the method 'random'.",
            )
    columns = [_values(name, dimension) for name, dimension in space.items()]
    count = math.prod(map(len, columns))
    if count > MAX_CANDIDATES:
        raise InvalidOption(
            f"The grid has {count} candidates; {MAX_CANDIDATES} are the most.",
            hint="List fewer values, or draw some with the method 'random'.",
        )
    return [dict(zip(space, values, strict=True)) for values in product(*columns)]


def _random(space: Mapping[str, Any], trials: Any, seed: int) -> list[dict[str, Any]]:
    if not isinstance(trials, int) or isinstance(trials, bool) or trials < 1:
        raise EmptySearch(f"search.trials is {trials!r}.", hint="It is a whole number from 1.")
    if trials > MAX_CANDIDATES:
        raise InvalidOption(f"search.trials is {trials}.", hint=f"{MAX_CANDIDATES} are the most.")
    columns = {
        name: [
            _draw(name, dimension, random.Random(f"{name}/{candidate_seed(seed, t)}"))
            for t in range(trials)
        ]
        for name, dimension in space.items()
    }
    return [{name: column[t] for name, column in columns.items()} for t in range(trials)]


def _draw(name: str, dimension: Any, source: random.Random) -> Any:
    if not (isinstance(dimension, Mapping) and "low" in dimension):
        return source.choice(_values(name, dimension))
    low, high = dimension["low"], dimension.get("high", math.nan)
    log, whole = bool(dimension.get("log")), bool(dimension.get("whole"))
    unknown = set(dimension) - {"low", "high", "log", "whole"}
    numbers = all(isinstance(v, int | float) and abs(v) <= LARGEST for v in (low, high))
    if (
        unknown
        or not numbers
        or not low <= high
        or (log and low <= 0)
        or (whole and math.ceil(low) > math.floor(high))
    ):
        raise InvalidHyperparameter(
            f"The range of {name} is {dict(dimension)!r}.",
            hint='{"low": 1e-4, "high": 0.1, "log": true}; log needs low > 0; "whole" rounds.',
        )
    if log:
        value = math.exp(source.uniform(math.log(low), math.log(high)))
    else:
        value = source.uniform(low, high)
    return min(max(round(value), math.ceil(low)), math.floor(high)) if whole else value
