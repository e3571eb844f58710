"""What a new run that freezes layers may ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmdb.db.connection import Connection
from mmdb.db.nodes import is_spread
from mmdb.errors import InvalidHyperparameter, InvalidOption
from mmdb.train.features.options import KEYS, parse_transfer
from mmdb.train.warm.options import AUTO

#: Strategies whose hops train one candidate on one worker, and nothing else.
STRATEGIES = ("mop", "task")


def with_transfer(search: Mapping[str, Any], options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a search whose candidates all freeze what the run's options say.

    A dimension of the search goes before an option of the same name.
    """
    given = {key: options[key] for key in KEYS if options.get(key) is not None}
    space = search.get("space", {})
    if not given or not isinstance(space, Mapping):
        return search
    return {**search, "space": {key: [value] for key, value in given.items()} | dict(space)}


def check_request(
    connection: Connection, strategy: str, strategies: Sequence[str], warm_start: str
) -> None:
    """Check that a run that freezes layers can be trained.

    Args:
        strategies: that "auto" may choose from.
        warm_start: "off", "auto" or name@version.
    Raises:
        InvalidOption
    """
    for name in (strategy, *strategies):
        if name not in (*STRATEGIES, "auto"):
            raise InvalidOption(
                f"freeze_up_to is given with the strategy {name!r}.",
                hint=f"Frozen layers are shared with {' and '.join(STRATEGIES)}.",
            )
    if warm_start == AUTO:
        raise InvalidOption(
            "freeze_up_to is given with warm_start 'auto'.",
            hint="Name the model whose layers are to be frozen, or pass 'off'.",
        )
    if is_spread(connection):
        raise InvalidOption(
            "freeze_up_to is given on a cluster, where features are not shared yet.",
            hint="Create the run on one PostgreSQL, or without freeze_up_to.",
        )


def check_same_frozen(config: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    """Check that a clone trains the same layers as its parent, whose state it goes on from.

    Args:
        config: the parent's; `changes`: what the clone's has in its place.
    Raises:
        InvalidHyperparameter
    """
    changed = [key for key in KEYS if key in changes and changes[key] != config.get(key)]
    if not changed:
        return
    is_same = config.get("freeze_up_to") is not None and "freeze_up_to" not in changed
    if is_same and parse_transfer({**config, **changes}) == parse_transfer(config):
        return  # the same in other words, such as a default that is spelled out
    raise InvalidHyperparameter(
        f"A clone cannot change {changed[0]!r}.",
        hint="It goes on from its parent's state, which is of what trained there: leave it out, "
        "or create a run that freezes other layers.",
    )
