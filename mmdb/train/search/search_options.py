"""The keys of `search` and the options of a run that a search heeds, checked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmdb.arguments import check_flag, is_number, is_whole, unfit
from mmdb.errors import EmptySearch, InvalidOption
from mmdb.messages import show
from mmdb.train.search.search_space import MAX_CANDIDATES

METHODS = ("grid", "random", "tpe", "asha", "hyperband", "pbt")
SAMPLERS = ("random", "grid", "tpe")

#: The keys of each method beside method, space and constraints.
KEYS: dict[str, tuple[str, ...]] = {
    "grid": ("concurrent", "pruner"),
    "random": ("trials", "concurrent", "pruner"),
    "tpe": ("trials", "concurrent", "pruner", "startup", "multivariate"),
    "asha": ("trials", "concurrent", "sampler", "startup", "multivariate", "eta", "min_epochs"),
    "hyperband": ("concurrent", "sampler", "startup", "multivariate", "eta", "min_epochs"),
    "pbt": ("population", "interval", "fraction", "resample"),
}
TRIALS = {"random": 8, "tpe": 32, "asha": 32}

#: Arguments of each pruner with their defaults.
PRUNERS: dict[str, dict[str, float | None]] = {
    "median": {"startup": 5, "warmup": 0, "interval": 1},
    "percentile": {"percentile": 25.0, "startup": 5, "warmup": 0, "interval": 1},
    "threshold": {"lower": None, "upper": None, "warmup": 0, "interval": 1},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """A checked search but for its space; see docs/search.md."""

    method: str
    sampler: str  # grid, random or tpe
    trials: int | None  # None: all of a grid, or the sum of Hyperband's brackets
    concurrent: int | None = None
    startup: int = 10
    multivariate: bool = True
    eta: int = 3
    min_epochs: int = 1
    population: int = 8
    interval: int = 1
    fraction: float = 0.25
    resample: float = 0.25
    pruner: tuple[str, dict[str, float]] | None = None


def parse_options(search: Mapping[str, Any], epochs: int | None = None) -> SearchOptions:
    """Return the checked keys of a search, with defaults for those left out.

    Args:
        epochs: of the run; None leaves out what depends on them.
    Raises:
        InvalidOption: an unknown key or value, or keys that exclude each other.
        EmptySearch: `trials` is no whole number from 1.
    """
    method = _one_of("search.method", search.get("method", "grid"), METHODS)
    _check_keys(search, method)
    natural = method if method in SAMPLERS else "random"
    sampler = _one_of("search.sampler", search.get("sampler", natural), SAMPLERS)
    _check_sampler(search, method, sampler)
    found = SearchOptions(
        method=method,
        sampler=sampler,
        trials=_trials(search, method, sampler),
        concurrent=_optional_whole(search, "concurrent"),
        startup=_whole(search, "startup", 10, 1),
        multivariate=check_flag(search.get("multivariate", True), "search.multivariate"),
        eta=_whole(search, "eta", 3, 2),
        min_epochs=_whole(search, "min_epochs", 1, 1),
        population=_whole(search, "population", 8, 2),
        interval=_whole(search, "interval", 1, 1),
        fraction=_between(search, "fraction", 0.25, 0.5),
        resample=_between(search, "resample", 0.25, 1.0),
        pruner=_pruner(search.get("pruner")),
    )
    if epochs is not None:
        _check_epochs(found, epochs)
    return found


def patience(options: Mapping[str, Any]) -> tuple[int | None, float]:
    """Return the epochs without improvement that end a candidate, and what counts as one.

    Args:
        options: of the run: `patience` and `min_delta`.
    Raises:
        InvalidOption
    """
    epochs = _optional_whole(options, "patience", "options")
    delta = options.get("min_delta", 0.0)
    if "min_delta" in options and epochs is None:
        raise InvalidOption(
            "options.min_delta is given without options.patience.",
            hint="patience says after how many epochs without such an improvement to stop.",
        )
    if not is_number(delta, 0):
        raise unfit(
            "options.min_delta", delta, "It is a number from 0, in units of the run's metric."
        )
    return epochs, float(delta)


def _check_keys(search: Mapping[str, Any], method: str) -> None:
    allowed = ("method", "space", "constraints", *KEYS[method])
    for key in search:
        if key in allowed:
            continue
        others = [name for name in METHODS if key in KEYS[name]]
        if others:
            raise InvalidOption(
                f"search.{key} does not go with the method {method!r}.",
                hint=f"It goes with {', '.join(others)}; {method} has {', '.join(KEYS[method])}.",
            )
        raise InvalidOption(
            f"search has no key {key!r}.", hint=f"With {method} it has {', '.join(allowed)}."
        )


def _check_sampler(search: Mapping[str, Any], method: str, sampler: str) -> None:
    if method == "hyperband" and sampler == "grid":
        raise InvalidOption(
            "search.sampler is 'grid', and Hyperband's brackets have sizes of their own.",
            hint="Use the method 'asha', which starts every candidate of a grid.",
        )
    if sampler == "grid" and "trials" in search:
        raise InvalidOption(
            "search.trials is given with a grid, which has as many candidates as combinations.",
            hint="Leave trials out, or use the sampler 'random'.",
        )
    for key in ("startup", "multivariate"):
        if key in search and sampler != "tpe":
            raise InvalidOption(
                f"search.{key} does not go with the sampler {sampler!r}.",
                hint='It goes with "sampler": "tpe".',
            )


def _check_epochs(found: SearchOptions, epochs: int) -> None:
    for key, value in (("min_epochs", found.min_epochs), ("interval", found.interval)):
        if value > epochs:
            raise InvalidOption(
                f"search.{key} is {value}, and the run has {epochs} epochs.",
                hint=f"Give the run more epochs, or lower {key}.",
            )
    if found.method != "pbt":
        return
    if found.population * found.fraction < 1:
        raise InvalidOption(
            f"search.fraction {found.fraction} of a population of {found.population} is no one.",
            hint="population * fraction is at least 1.",
        )
    most = found.population * (1 + -(-epochs // found.interval))
    if most > MAX_CANDIDATES:
        raise InvalidOption(
            f"The population may come to {most} candidates; {MAX_CANDIDATES} are the most.",
            hint="Lower search.population, or raise search.interval.",
        )


def _trials(search: Mapping[str, Any], method: str, sampler: str) -> int | None:
    if sampler == "grid" or method not in TRIALS:
        return None
    trials = search.get("trials", TRIALS[method])
    if not is_whole(trials, 1):
        raise EmptySearch(f"search.trials is {show(trials)}.", hint="It is a whole number from 1.")
    if trials > MAX_CANDIDATES:
        raise InvalidOption(f"search.trials is {trials}.", hint=f"{MAX_CANDIDATES} are the most.")
    return int(trials)


def _pruner(given: Any) -> tuple[str, dict[str, float]] | None:
    if given is None:
        return None
    named = {"name": given} if isinstance(given, str) else given
    name = named.get("name") if isinstance(named, Mapping) else None
    if not isinstance(name, str) or name not in PRUNERS:
        raise InvalidOption(
            f"search.pruner is {show(given)}.",
            hint=f"Known: {', '.join(PRUNERS)}; for successive halving use the method 'asha'.",
        )
    arguments = {key: value for key, value in named.items() if key != "name"}
    for key, value in arguments.items():
        if key not in PRUNERS[name]:
            raise InvalidOption(
                f"The pruner {name!r} has no argument {key!r}.",
                hint=f"It takes {', '.join(PRUNERS[name])}.",
            )
        _check_argument(key, value)
    if name == "threshold" and not arguments.keys() & {"lower", "upper"}:
        raise InvalidOption("The pruner 'threshold' has no threshold.", hint="Give lower or upper.")
    defaults = {key: value for key, value in PRUNERS[name].items() if value is not None}
    return name, {**defaults, **{str(key): float(value) for key, value in arguments.items()}}


def _check_argument(key: str, value: Any) -> None:
    if key in ("lower", "upper"):
        fits, meaning = is_number(value), "a number"
    elif key == "percentile":
        fits, meaning = is_number(value, 0, 100), "a number from 0 to 100"
    else:
        least = 1 if key == "interval" else 0
        fits, meaning = is_whole(value, least), f"a whole number from {least}"
    if not fits:
        raise unfit(f"search.pruner.{key}", value, f"It is {meaning}.")


def _one_of(key: str, value: Any, known: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in known:
        raise unfit(key, value, f"Known: {', '.join(known)}.")
    return value


def _optional_whole(given: Mapping[str, Any], key: str, owner: str = "search") -> int | None:
    return _whole(given, key, 0, 1, owner) if key in given else None


def _whole(
    given: Mapping[str, Any], key: str, default: int, least: int, owner: str = "search"
) -> int:
    value = given.get(key, default)
    if key in given and not is_whole(value, least, 2**31 - 1):
        raise unfit(f"{owner}.{key}", value, f"It is a whole number from {least}.")
    return int(value)


def _between(search: Mapping[str, Any], key: str, default: float, most: float) -> float:
    value = search.get(key, default)
    if not is_number(value, 0, most):
        raise unfit(f"search.{key}", value, f"It is a number up to {most}.")
    return float(value)
