"""From the JSON of a search to the object that decides. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmdb.errors import InvalidOption
from mmdb.train.search.base_search import (
    BaseSearch,
    Check,
    ConfigSource,
    Listed,
    Search,
    SearchRules,
    Suggested,
    random_configs,
    shuffled_grid,
)
from mmdb.train.search.methods import (
    Bracket,
    Evolution,
    Halving,
    Population,
    bracket_sizes,
    changing,
    ladder,
)
from mmdb.train.search.search_options import SearchOptions, parse_options, patience
from mmdb.train.search.search_space import MAX_CANDIDATES, Config, SearchSpace, parse_space
from mmdb.train.search.study import Study, make_pruner


def make_search(
    search: Mapping[str, Any],
    *,
    epochs: int,
    seed: int,
    maximize: bool,
    options: Mapping[str, Any],
    check: Check | None = None,
) -> Search:
    """Return the search of a run.

    Args:
        search: as given to create_run; docs/search.md.
        epochs: of the run, which no candidate goes beyond.
        maximize: whether more of the run's metric is better.
        options: of the run; `patience` and `min_delta` are heeded.
        check: raises an MmdbError for a configuration that cannot train. It is called for those
            that are found while the run goes on; `possible` lists what to check before.
    Raises:
        EmptySearch, InvalidHyperparameter, InvalidOption
    """
    check = check or (lambda config: None)
    space, found = _parse(search, epochs)
    epochs_without, min_delta = patience(options)
    source = _source(space, found, epochs, seed, check)
    rules = SearchRules(
        epochs=epochs,
        maximize=maximize,
        concurrent=_concurrent(found, source),
        patience=epochs_without,
        min_delta=min_delta,
        study=_pruning_study(space, found, epochs, maximize),
    )
    if found.method == "pbt":
        evolution = Evolution(
            space=space,
            seed=seed,
            interval=found.interval,
            fraction=found.fraction,
            resample=found.resample,
            check=check,
        )
        return Population(source, rules, evolution)
    if found.method in ("asha", "hyperband"):
        sizes = _sizes(found, epochs) or (source.count,)
        rungs = ladder(epochs, found.eta, found.min_epochs)
        brackets = [Bracket(rungs[place:], found.eta) for place in range(len(sizes))]
        return Halving(source, rules, brackets, sizes)
    return BaseSearch(source, rules)


def candidates(search: Mapping[str, Any], seed: int) -> list[Config]:
    """Return the configuration of each candidate of a grid or a random search.

    Args:
        search: {"method": "grid" | "random", "space": {name: dimension}, "trials": n}.
        seed: of "random".
    Raises:
        EmptySearch, InvalidHyperparameter, InvalidOption: also another method, whose candidates
            depend on results.
    """
    space, found = _parse(search, None)
    if found.method not in ("grid", "random"):
        raise InvalidOption(
            f"The method {found.method!r} chooses its candidates while they train.",
            hint="The methods 'grid' and 'random' choose all of them before.",
        )
    return space.grid() if found.trials is None else random_configs(space, found.trials, seed)


def possible(search: Mapping[str, Any], *, epochs: int, seed: int) -> list[Config]:
    """Return the configurations to check before a run is created.

    They are those of all candidates where these are known by then; otherwise every listed value and
    both ends of each range at least once (where the constraints let them), with the first draws.

    Raises:
        EmptySearch, InvalidHyperparameter, InvalidOption
    """
    space, found = _parse(search, epochs)
    if found.sampler != "tpe" and found.method != "pbt":
        return _configs(space, found, epochs, seed)
    count = (
        min(found.startup, _count(found, epochs)) if found.sampler == "tpe" else found.population
    )
    return [*random_configs(space, count, seed), *space.corners()]


def compares(search: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Return whether results decide what trains: then a run needs rows to validate on.

    Raises:
        InvalidOption, EmptySearch
    """
    found = parse_options(search)
    decided = found.method in ("grid", "random") and found.pruner is None
    return not decided or patience(options)[0] is not None


def stops_early(search: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Return whether a result may end its candidate's training.

    Raises:
        InvalidOption, EmptySearch
    """
    return parse_options(search).pruner is not None or patience(options)[0] is not None


def _parse(search: Mapping[str, Any], epochs: int | None) -> tuple[SearchSpace, SearchOptions]:
    found = parse_options(search, epochs)
    space = parse_space(search.get("space", {}), search.get("constraints", ()))
    if found.method == "pbt" and not changing(space):
        raise InvalidOption(
            "search.space has nothing that population-based training can change.",
            hint="Give lr, weight_decay or batch_size a range or several values; architecture "
            "arguments, optimizer, schedule, loss and what is frozen stay with the weights.",
        )
    return space, found


def _sizes(found: SearchOptions, epochs: int) -> tuple[int, ...]:
    """Return how many candidates each bracket of Hyperband starts; none for other methods."""
    if found.method != "hyperband":
        return ()
    rungs = ladder(epochs, found.eta, found.min_epochs)
    sizes = bracket_sizes(len(rungs), found.eta)
    if sum(sizes) > MAX_CANDIDATES:
        raise InvalidOption(
            f"The brackets have {sum(sizes)} candidates; {MAX_CANDIDATES} are the most.",
            hint="Raise search.min_epochs or search.eta.",
        )
    return sizes


def _count(found: SearchOptions, epochs: int) -> int:
    if found.method == "pbt":
        return found.population
    return found.trials or sum(_sizes(found, epochs))


def _configs(space: SearchSpace, found: SearchOptions, epochs: int, seed: int) -> list[Config]:
    if found.sampler == "grid":
        return space.grid() if found.method == "grid" else shuffled_grid(space, seed)
    return random_configs(space, _count(found, epochs), seed)


def _source(
    space: SearchSpace, found: SearchOptions, epochs: int, seed: int, check: Check
) -> ConfigSource:
    if found.sampler != "tpe":
        return Listed(_configs(space, found, epochs, seed))
    study = Study(space.dimensions, epochs=epochs, multivariate=found.multivariate)
    count = _count(found, epochs)
    return Suggested(space, study, count=count, startup=found.startup, seed=seed, check=check)


def _concurrent(found: SearchOptions, source: ConfigSource) -> int | None:
    """Return how many train at once: all, where no result decides which is next."""
    decided = found.method in ("grid", "random") and found.pruner is None
    return source.count if decided and found.concurrent is None else found.concurrent


def _pruning_study(
    space: SearchSpace, found: SearchOptions, epochs: int, maximize: bool
) -> Study | None:
    if found.pruner is None:
        return None
    pruner = make_pruner(*found.pruner, maximize=maximize)
    return Study(space.dimensions, epochs=epochs, pruner=pruner)
