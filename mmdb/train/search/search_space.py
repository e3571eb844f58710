"""A search space: dimensions, when each of them counts, and constraints. Pure."""

from __future__ import annotations

import json
import math
import operator
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from mmdb.arguments import is_number
from mmdb.errors import EmptySearch, InvalidHyperparameter, InvalidOption
from mmdb.messages import show
from mmdb.train.values.seeds import candidate_seed

#: Ends of a range; beyond them the width of a range is infinite.
LARGEST = 1e300
#: How far a number of a range moves when it is changed at random (Jaderberg et al. 2017).
FACTORS = (0.8, 1.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Values to choose from; a single one is not searched."""

    values: tuple[Any, ...]

    def draw(self, source: random.Random) -> Any:
        """Return one of the values, each as likely."""
        return source.choice(self.values)

    def ends(self) -> tuple[Any, ...]:
        """Return the values that must be tried to know that all can train: every one."""
        return self.values

    def move(self, value: Any, source: random.Random) -> Any:
        """Return a neighbour of a value in the list."""
        place = self.values.index(value) + source.choice((-1, 1))
        return self.values[min(max(place, 0), len(self.values) - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberRange:
    """Numbers from `low` to `high`, evenly or evenly in the logarithm."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def draw(self, source: random.Random) -> float:
        """Return a number of the range."""
        if self.log:
            value = math.exp(source.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = source.uniform(self.low, self.high)
        return self._inside(value) if self.whole else value

    def ends(self) -> tuple[float, ...]:
        """Return the least and the greatest number."""
        low, high = (
            (math.ceil(self.low), math.floor(self.high)) if self.whole else (self.low, self.high)
        )
        return (low,) if low == high else (low, high)

    def move(self, value: float, source: random.Random) -> float:
        """Return a number by a fifth below or above, by at least 1 where numbers are whole."""
        factor = source.choice(FACTORS)
        moved = value * factor
        if self.whole and abs(moved - value) < 1:
            moved = value + math.copysign(1, factor - 1)
        return self._inside(moved)

    def _inside(self, value: float) -> float:
        if self.whole:
            return min(max(round(value), math.ceil(self.low)), math.floor(self.high))
        return min(max(value, self.low), self.high)


Dimension = Values | NumberRange


def parse_dimension(name: str, given: Any) -> Dimension:
    """Return a dimension: a list of values, a single value, or a range.

    Raises:
        EmptySearch: the list is empty.
        InvalidHyperparameter: what has a "low" is no range.
    """
    if isinstance(given, Mapping) and "low" in given:
        return _range(name, given)
    values = given if isinstance(given, list) else [given]
    if not values:
        raise EmptySearch(f"The dimension {name!r} of the search space has no value.")
    return Values(values=tuple(values))


def _range(name: str, given: Mapping[str, Any]) -> NumberRange:
    low, high = given["low"], given.get("high", math.nan)
    log, whole = given.get("log", False), given.get("whole", False)
    if (
        set(given) - {"low", "high", "log", "whole"}
        or not all(map(_is_end, (low, high)))
        or not isinstance(log, bool)
        or not isinstance(whole, bool)
        or not low <= high
        or (log and low <= 0)
        or (whole and math.ceil(low) > math.floor(high))
    ):
        raise InvalidHyperparameter(
            f"The range of {name} is {show(dict(given))}.",
            hint='{"low": 1e-4, "high": 0.1, "log": true}; log needs low > 0; "whole" rounds.',
        )
    return NumberRange(low=low, high=high, log=log, whole=whole)


def _is_end(value: Any) -> bool:
    return is_number(value, -LARGEST, LARGEST)


#: More candidates than this are a mistake in the space, not a search.
MAX_CANDIDATES = 10_000
#: Draws of one candidate after which its constraints count as impossible to meet.
MAX_DRAWS = 1_000

Config = dict[str, Any]

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """A checked search space; its dimensions are in the order of their names."""

    dimensions: Mapping[str, Dimension]
    conditions: Mapping[str, Mapping[str, tuple[Any, ...]]]  # dimension -> other -> its values
    constraints: tuple[tuple[str, str, Any], ...]  # name, comparison, name or value

    def config(self, values: Mapping[str, Any]) -> Config | None:
        """Return the configuration that values make, or None where a constraint is broken.

        A dimension whose condition does not hold is left out of it.
        """
        config = {name: value for name, value in values.items() if self._counts(name, values)}
        return config if all(self._holds(config, *parts) for parts in self.constraints) else None

    def grid(self) -> list[Config]:
        """Return every combination of the listed values once.

        Raises:
            InvalidHyperparameter: a dimension is a range.
            InvalidOption: more than MAX_CANDIDATES combinations.
            EmptySearch: the constraints leave none.
        """
        columns = [_listed(name, dimension) for name, dimension in self.dimensions.items()]
        count = math.prod(map(len, columns))
        if count > MAX_CANDIDATES:
            raise InvalidOption(
                f"The grid has {count} candidates; {MAX_CANDIDATES} are the most.",
                hint="List fewer values, or draw some with the method 'random'.",
            )
        combinations = (dict(zip(self.dimensions, v, strict=True)) for v in product(*columns))
        found = list(self._configs(combinations))
        if not found:
            raise _unsatisfied()
        # A value listed twice asks for two candidates; one that does not count asks for nothing.
        return _distinct(found) if self.conditions else found

    def draw(self, candidate: int, seed: int) -> Config:
        """Return the configuration of a candidate, drawn at random.

        Every dimension of every candidate draws from a stream of its own, so that neither another
        dimension nor another candidate changes what it draws.

        Raises:
            EmptySearch: a thousand draws broke a constraint.
        """
        own = candidate_seed(seed, candidate)
        streams = {name: random.Random(f"{name}/{own}") for name in self.dimensions}
        for _ in range(MAX_DRAWS):
            values = {name: d.draw(streams[name]) for name, d in self.dimensions.items()}
            if (config := self.config(values)) is not None:
                return config
        raise _unsatisfied()

    def corners(self) -> list[Config]:
        """Return few configurations that hold every listed value and both ends of each range.

        The first has the first of everything, the second the last; each of the others differs from
        the first in one dimension and in what that one's condition asks for.

        Raises:
            EmptySearch: the constraints leave none of them.
        """
        ends = {name: dimension.ends() for name, dimension in self.dimensions.items()}
        first = {name: values[0] for name, values in ends.items()}
        last = {name: values[-1] for name, values in ends.items()}
        others = (
            first | self._demanded(name) | {name: value}
            for name, values in ends.items()
            for value in values
        )
        found = _distinct(self._configs([first, last, *others]))
        if not found:  # the ends may all be ruled out while much between them is not
            found = [self.draw(0, 0)]
        return found

    def _configs(self, combinations: Iterable[Mapping[str, Any]]) -> Iterator[Config]:
        return (c for values in combinations if (c := self.config(values)) is not None)

    def _counts(self, name: str, values: Mapping[str, Any]) -> bool:
        return all(
            any(_matches(values[other], value) for value in wanted)
            for other, wanted in self.conditions.get(name, {}).items()
        )

    def _demanded(self, name: str) -> Config:
        """Return values of other dimensions with which a dimension counts."""
        return {
            other: next(v for v in _listed(other, self.dimensions[other]) if _matches(v, wanted[0]))
            for other, wanted in self.conditions.get(name, {}).items()
        }

    def _holds(self, config: Config, left: str, comparison: str, right: Any) -> bool:
        named = isinstance(right, str) and right in self.dimensions
        if left not in config or (named and right not in config):
            return True
        other = config[right] if named else right
        try:
            return bool(COMPARISONS[comparison](config[left], other))
        except TypeError:
            raise InvalidOption(
                f"search.constraints compares {config[left]!r} with {other!r}.",
                hint="Compare numbers with numbers; texts are equal or not.",
            ) from None


def parse_space(given: Any, constraints: Any = ()) -> SearchSpace:
    """Return the checked search space.

    Args:
        given: {name: dimension}; a dimension is a list of values, a single value, or a range
            {"low", "high", "log", "whole"}. {..., "when": {other: value or values}} counts only
            beside those values of another dimension; listed values then stand in "values".
        constraints: [[name, "<=", name or value], ...], which every configuration meets.
    Raises:
        EmptySearch, InvalidHyperparameter, InvalidOption
    """
    if not isinstance(given, Mapping):
        raise InvalidOption("search.space is not an object.", hint='{"lr": [0.1, 0.01]}')
    try:
        plain = _plain(dict(sorted(given.items())))  # PostgreSQL's jsonb keeps no order of keys
    except RecursionError as error:
        raise InvalidOption("search.space is nested too deep.") from error
    dimensions: dict[str, Dimension] = {}
    whens: dict[str, Any] = {}
    for name, value in plain.items():
        if isinstance(value, Mapping) and "when" in value:
            whens[name] = value["when"]
            value = {key: item for key, item in value.items() if key != "when"}
            value = value["values"] if value.keys() == {"values"} else value
        dimensions[name] = parse_dimension(name, value)
    conditions = {name: _condition(name, when, dimensions) for name, when in whens.items()}
    for name, condition in conditions.items():
        if chained := condition.keys() & conditions.keys():
            raise InvalidHyperparameter(
                f"{name} depends on {min(chained)}, which depends on another dimension.",
                hint='"when" names dimensions that always count.',
            )
    checked = _constraints(_plain(constraints), dimensions)
    return SearchSpace(dimensions=dimensions, conditions=conditions, constraints=checked)


def _condition(
    name: str, when: Any, dimensions: Mapping[str, Dimension]
) -> dict[str, tuple[Any, ...]]:
    hint = '"when": {"optimizer": "sgd"}, or {"optimizer": ["sgd", "rmsprop"]}.'
    if not isinstance(when, Mapping) or not when:
        raise InvalidHyperparameter(f"The condition of {name} is {show(when)}.", hint=hint)
    found = {}
    for other, wanted in when.items():
        listed = dimensions.get(other)
        values = tuple(wanted) if isinstance(wanted, list) else (wanted,)
        known = isinstance(listed, Values) and all(
            any(_matches(value, one) for value in listed.values) for one in values
        )
        if not known or not values:
            raise InvalidHyperparameter(
                f"{name} counts when {other} is {show(wanted)}, which the space does not list.",
                hint=hint,
            )
        found[other] = values
    return found


def _constraints(
    given: Any, dimensions: Mapping[str, Dimension]
) -> tuple[tuple[str, str, Any], ...]:
    def is_one(parts: Any) -> bool:
        return (
            isinstance(parts, list | tuple)
            and len(parts) == 3
            and isinstance(parts[0], str)
            and parts[0] in dimensions
            and isinstance(parts[1], str)
            and parts[1] in COMPARISONS
        )

    if not isinstance(given, list | tuple) or not all(map(is_one, given)):
        raise InvalidOption(
            f"search.constraints is {show(given)}.",
            hint='[["architecture.heads", "<=", "architecture.width"]]: a dimension, one of '
            f"{', '.join(COMPARISONS)}, and a dimension or a value.",
        )
    return tuple((left, comparison, right) for left, comparison, right in given)


def _plain(value: Any) -> Any:
    """Return a JSON value with whole floats as integers: jsonb makes an integer of 1e0."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _listed(name: str, dimension: Dimension) -> tuple[Any, ...]:
    if isinstance(dimension, NumberRange):
        raise InvalidHyperparameter(
            f"{name} is a range, which a grid cannot walk.",
            hint="List its values, or use the method 'random'.",
        )
    return dimension.values


def _matches(value: Any, wanted: Any) -> bool:
    """Return whether a value is the wanted one, or {"name": wanted, <arguments>}."""
    named = value.get("name") if isinstance(value, Mapping) else None
    return bool(value == wanted or (named is not None and named == wanted))


def _distinct(configs: Iterable[Config]) -> list[Config]:
    return list({json.dumps(c, sort_keys=True): c for c in configs}.values())


def _unsatisfied() -> EmptySearch:
    return EmptySearch(
        "No configuration of the search space meets search.constraints.",
        hint="Loosen a constraint, or widen the dimensions that it names.",
    )
