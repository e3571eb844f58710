"""The options of a run, and the strategy that is chosen where they say `auto`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mmdb.arguments import check_known, check_whole, is_number, is_whole, unfit
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import InvalidOption
from mmdb.messages import show
from mmdb.train.ledger.shards import SISA
from mmdb.train.ledger.state_history import CHECKPOINTS
from mmdb.train.schedule.workload import STRATEGIES
from mmdb.train.values.feature_options import KEYS as TRANSFER_KEYS
from mmdb.train.values.feature_options import FeatureOptions, parse_feature_options
from mmdb.train.values.spec import STACK, stack_of

_QUERIES = load("runs")


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyChoice:
    """How a run is trained."""

    strategy: str
    group: int = 1  # workers that train one candidate together
    workers: int | None = None  # how many of them; None where they are given
    plan_id: int | None = None
    reason: str


#: What stands where nobody decides.
UNDECIDED = StrategyChoice(strategy="mop", reason="No plan was made.")
BY_HAND = StrategyChoice(strategy="mop", reason="Its first hop was done before any plan.")


def record_choice(connection: Connection, run_id: int, decision: StrategyChoice) -> Row:
    """Record a decision where there is none yet; return the one that holds."""
    connection.run(
        _QUERIES.add_run_strategy,
        run_id=run_id,
        strategy=decision.strategy,
        group_size=decision.group,
        workers=decision.workers,
        plan_id=decision.plan_id,
        reason=decision.reason,
    )
    (row,) = connection.rows(_QUERIES.find_run_strategy, run_id=run_id)
    return row


#: Called with a run that is to be trained for the first time, and with the number of workers, None
#: where that is open. It may plan any run; what it returns counts for `auto`, and None is `mop`.
Decide = Callable[[Connection, str, int | None], StrategyChoice | None]


def fix_strategy(
    connection: Connection, name: str, decide: Decide | None, workers: int | None
) -> None:
    """Let a run that nobody has trained be planned, and record how `auto` is trained.

    The caller holds the run's lock.
    """
    (run,) = connection.rows(load("runs").find_standing, name=name)
    is_open = run["strategy"] == "auto" and run["taken"] is None
    count = load("runs").count_run_hops  # of hops that were done by hand
    if run["was_started"] or connection.rows(count, run_id=run["run_id"])[0]["hops"]:
        if is_open:
            record_choice(connection, run["run_id"], BY_HAND)
        return
    decision = decide(connection, name, workers) if decide else None
    if is_open:
        record_choice(connection, run["run_id"], decision or UNDECIDED)


#: Options with a few values, the default first.
CHOICES: dict[str, tuple[str, ...]] = {
    "order": ("fixed", "free"),  # of the partitions: by the seed alone, or as it goes fastest
    "environment": ("exact", "any"),  # that may go on with the run: one that gives equal bits
    "checkpoint": CHECKPOINTS,  # when states become durable
}
#: Options that other parts check: metrics by `measures_of`, patience by the search, warm starts by
#: `parse_warm_options`, what is frozen by `parse_frozen_options`.
_ELSEWHERE = ("metric", "metrics", "patience", "min_delta", "warm_start", *TRANSFER_KEYS)
#: Every option.
KNOWN = (
    *CHOICES,
    *_ELSEWHERE,
    "budget_s",
    "ensemble",
    "features",
    "first_candidate",
    "group",
    "group_patience",
    "hop_limit_s",
    "priority",
    "shards",
    "stack",
    "strategies",
)
#: Candidates that train in one pass, at most; and the strategies by which they do.
LARGEST_STACK, _STACKING = 1024, ("mop", "task")
#: Of how many candidates a run's model may be the mean, at most: of none but the best, of a few.
NO_ENSEMBLE, AUTO_ENSEMBLE = ENSEMBLE = ("never", "auto")
_AUTO_MEMBERS, MOST_MEMBERS = 3, 16
#: What `auto` may choose from, if it is not told: they train the same thing.
SAME = ("mop", "task")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of a run, beside its search; see docs/search.md."""

    order: str
    environment: str
    checkpoint: str
    group: int | None  # workers that train a candidate together, for data_parallel; None: 2
    strategies: tuple[str, ...]  # that `auto` may choose from
    hop_limit_s: float | None  # seconds that a hop may take; None: as long as it needs
    budget_s: float | None  # seconds that a call of train goes on beginning epochs
    features: FeatureOptions  # how features of frozen layers are kept
    stack: int  # candidates that train in one pass, at most; 1: each by itself
    group_patience: int | None  # epochs without a better loss after which a network of `per` stops
    ensemble: int  # candidates whose mean the run's model may be, at most; 1: the best one is it
    shards: int | None  # of the dataset, for sisa; None: one for each train partition


def parse_run_options(raw: Mapping[str, Any], strategy: str) -> RunOptions:
    """Return a run's options.

    Raises:
        InvalidOption: an unknown option or value, or options that exclude each other.
    """
    check_known(raw, KNOWN, "A run has no option")
    chosen = {key: _choice(raw, key) for key in CHOICES}
    strategies = _strategies(raw, strategy)
    group = raw.get("group")
    if group is not None and "data_parallel" not in (strategy, *strategies):
        raise InvalidOption(
            f"options.group is given with the strategy {strategy!r}.",
            hint="Only data_parallel has groups of workers.",
        )
    if group is not None and not is_whole(group, 2, 1024):
        raise unfit("options.group", group, "It is a whole number from 2.")
    if "model_average" in (strategy, *strategies) and raw.get("order") == "fixed":
        raise InvalidOption(
            "options.order is 'fixed' with the strategy 'model_average'.",
            hint="The hops of an epoch run side by side there: leave the order out.",
        )
    limits: dict[str, float | None] = {}
    for name in ("hop_limit_s", "budget_s"):
        limits[name] = limit = raw.get(name)
        if limit is not None and not (is_number(limit) and 0 < limit < 1e9):
            raise unfit(f"options.{name}", limit, "It is a number of seconds above 0.")
    check_whole(raw.get("priority", 0), "options.priority", -5, 5)
    stack = raw.get("stack", STACK[0])
    if stack not in STACK and not is_whole(stack, 2, LARGEST_STACK):
        raise InvalidOption(
            f"options.stack is {show(stack)}.",
            hint=f"It is {' or '.join(map(repr, STACK))}, or a whole number from 2 to "
            f"{LARGEST_STACK}.",
        )
    if stack != STACK[0] and not set(strategies or (strategy,)) <= set(_STACKING):
        raise InvalidOption(
            f"options.stack is given with the strategy {strategy!r}.",
            hint=f"Candidates train together where each trains alone: {' or '.join(_STACKING)}.",
        )
    ensemble = raw.get("ensemble", NO_ENSEMBLE)
    if ensemble not in ENSEMBLE and not is_whole(ensemble, 2, MOST_MEMBERS):
        raise InvalidOption(
            f"options.ensemble is {show(ensemble)}.",
            hint=f"It is {' or '.join(map(repr, ENSEMBLE))}, or a whole number from 2 to "
            f"{MOST_MEMBERS}.",
        )
    shards = raw.get("shards")
    if shards is not None and strategy != SISA:
        raise InvalidOption(
            f"options.shards is given with the strategy {strategy!r}.",
            hint="Only sisa trains a model for each shard.",
        )
    if shards is not None and not is_whole(shards, 2, MOST_MEMBERS):
        raise unfit("options.shards", shards, f"It is a whole number from 2 to {MOST_MEMBERS}.")
    if not is_whole(raw.get("first_candidate", 0), 0, 2**31 - 2):
        raise unfit(
            "options.first_candidate", raw["first_candidate"], "It is a whole number from 0."
        )
    patience = raw.get("group_patience")
    if patience is not None and not is_whole(patience, 1, 2**31 - 1):
        raise unfit("options.group_patience", patience, "It is a whole number from 1.")
    return RunOptions(
        **chosen,
        group_patience=patience,
        stack=stack_of(raw),
        ensemble=ensemble_of(raw),
        shards=shards,
        group=group,
        strategies=strategies,
        hop_limit_s=limits["hop_limit_s"],
        budget_s=limits["budget_s"],
        features=parse_feature_options(raw.get("features")),
    )


def ensemble_of(raw: Mapping[str, Any]) -> int:
    """Return of how many candidates a run's model may be the mean, at most; 1 for none."""
    given = raw.get("ensemble", NO_ENSEMBLE)
    if given in ENSEMBLE:
        return _AUTO_MEMBERS if given == AUTO_ENSEMBLE else 1
    return int(given)


def _strategies(raw: Mapping[str, Any], strategy: str) -> tuple[str, ...]:
    """Return what `auto` may choose from; nothing with another strategy."""
    given = raw.get("strategies")
    if strategy != "auto":
        if given is not None:
            raise InvalidOption(
                f"options.strategies is given with the strategy {strategy!r}.",
                hint="Only auto chooses among strategies.",
            )
        return ()
    if given is None:
        return SAME
    if not isinstance(given, list | tuple) or not given:
        raise unfit("options.strategies", given, "It is a list, and not empty.")
    check_known(given, STRATEGIES, "options.strategies names")
    return tuple(name for name in STRATEGIES if name in given)


def _choice(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key, CHOICES[key][0])
    if value not in CHOICES[key]:
        raise unfit(f"options.{key}", value, f"Known: {', '.join(CHOICES[key])}.")
    return str(value)
