"""What a configuration freezes, and how a run keeps the features that follow. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmdb.arguments import check_known, check_whole, is_number, is_whole, unfit
from mmdb.errors import ArchitectureError, InvalidHyperparameter, InvalidOption
from mmdb.messages import show
from mmdb.train.values.feature_spec import CHOICES, STORAGES, Frozen

#: Hyper-parameters, which a run's options may give for all of its candidates.
KEYS = ("freeze_up_to", "head", "pool", "adapter", "batch_norm")
POOLS = ("auto", "mean", "flatten", "none")
ADAPTERS = ("lora",)
MOST_RANK, MOST_ALPHA = 4096, 1_000_000
BATCH_NORMS = ("frozen", "train")
#: Short names of heads: factories that are always there.
HEADS = ("linear", "mlp")
#: Choices that can be asked for; the others follow from the configuration.
ASKED = ("stored", "memory", "recomputed", "streamed")
_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenOptions:
    """What a candidate freezes; see docs/features.md.

    Attributes:
        cut: path of the module after which training begins.
        pool: one of POOLS.
        head: a parsed architecture over the features; None: the rest of the network.
        adapter: {"name", "rank", "alpha", "layers"}; None: every layer after the cut trains.
        batch_norm: one of BATCH_NORMS.
    """

    cut: str
    pool: str = POOLS[0]
    head: dict[str, Any] | None = None
    adapter: dict[str, Any] | None = None
    batch_norm: str = BATCH_NORMS[0]


def parse_frozen_options(raw: Mapping[str, Any]) -> FrozenOptions | None:
    """Return what a configuration freezes; None: nothing.

    Args:
        raw: hyper-parameters by name; only KEYS are looked at.
    Raises:
        InvalidHyperparameter
    """
    cut = raw.get("freeze_up_to")
    if cut is None:
        for key in KEYS[1:]:
            if raw.get(key) is not None:
                raise InvalidHyperparameter(
                    f"{key} is given, and freeze_up_to is not.",
                    hint=f'Give freeze_up_to, or let {key} count only beside it: "when".',
                )
        return None
    if not isinstance(cut, str) or not 0 < len(cut) <= 1000:
        raise InvalidHyperparameter(
            f"freeze_up_to is {show(cut)}.",
            hint="It is a module's path of at most 1,000 characters, such as 'layer3'.",
        )
    head, adapter = _head(raw.get("head")), _adapter(raw.get("adapter"))
    if head is not None and adapter is not None:
        raise InvalidHyperparameter(
            "head and adapter are given both.",
            hint="An adapter is for the layers after the cut; a head takes their place.",
        )
    pool = _one_of(raw, "pool", POOLS)
    if head is None and pool not in ("auto", "none"):
        raise InvalidHyperparameter(
            f"pool is {pool!r}, and head is not given.",
            hint="The rest of the network takes the features as they are.",
        )
    return FrozenOptions(
        cut=cut,
        pool=pool,
        head=head,
        adapter=adapter,
        batch_norm=_one_of(raw, "batch_norm", BATCH_NORMS),
    )


def frozen_of(
    transfer: FrozenOptions,
    *,
    seed: int,
    pool: str | None = None,
    backbone: str | None = None,
    storage: str | None = None,
    choice: str | None = None,
) -> Frozen:
    """Return what a worker needs to know; what is left out, as if no features were shared.

    Args:
        pool: as the shape of the features has decided it.
        seed, backbone, storage, choice: see `Frozen`.
    """
    return Frozen(
        cut=transfer.cut,
        pool=pool or transfer.pool,
        head=transfer.head,
        adapter=transfer.adapter,
        seed=seed,
        backbone=backbone,
        storage=storage or STORAGES[0],
        choice=choice or unshared(transfer),
    )


def unshared(transfer: FrozenOptions) -> str:
    """Return how features come to a candidate with which none shares any: a choice."""
    return "whole" if transfer.batch_norm == "train" else "streamed"


def _one_of(raw: Mapping[str, Any], key: str, known: tuple[str, ...]) -> str:
    value = raw.get(key)
    value = known[0] if value is None else value
    if value not in known:
        raise InvalidHyperparameter(f"{key} is {show(value)}.", hint=f"Known: {', '.join(known)}.")
    return str(value)


def _head(given: Any) -> dict[str, Any] | None:
    if given is None:
        return None
    from mmdb.graph.spec.parse import parse  # loads torch

    if isinstance(given, Mapping) and "name" in given:  # as optimizers and losses are named
        arguments = {key: value for key, value in given.items() if key != "name"}
        given = {"factory": given["name"], "arguments": arguments}
    try:
        return parse(given)
    except ArchitectureError as error:
        raise InvalidHyperparameter(
            f"head is {show(given)}: {error.message}",
            hint=f"head is {', '.join(map(repr, HEADS))} or any other architecture.",
        ) from error


def _adapter(given: Any) -> dict[str, Any] | None:
    if given is None:
        return None
    if isinstance(given, str):
        given = {"name": given}
    known = {"name", "rank", "alpha", "layers"}
    fits = isinstance(given, Mapping) and given.get("name") in ADAPTERS and not set(given) - known
    if fits:
        rank, alpha = given.get("rank", 8), given.get("alpha", 16)
        layers = given.get("layers")
        layers = [layers] if isinstance(layers, str) else layers
        fits = is_whole(rank, 1, MOST_RANK) and is_number(alpha, 0, MOST_ALPHA) and alpha > 0
        named = layers is None or (
            isinstance(layers, list) and all(isinstance(one, str) for one in layers) and layers
        )
        if fits and named:
            return {"name": given["name"], "rank": rank, "alpha": alpha, "layers": layers}
    raise InvalidHyperparameter(
        f"adapter is {show(given)}.",
        hint='{"name": "lora", "rank": 8, "alpha": 16, "layers": ["layer4.*"]}; '
        f"rank is a whole number to {MOST_RANK}, alpha a number above 0 to {MOST_ALPHA}.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureOptions:
    """How a run keeps features.

    Attributes:
        storage: one of STORAGES.
        disk_bytes: of features of the run in the database, at most.
        memory_bytes: of features of the run that a node's cache alone has, and of those that its
            workers recompute at once, at most.
        choice: one of ASKED, for all; None: what is measured to cost least.
        fuse: candidates of a fused hop, at most.
        reuse: later runs that will use the same features, which storing counts on.
    """

    storage: str = STORAGES[0]
    disk_bytes: int = 8 * _GIB
    memory_bytes: int = _GIB
    choice: str | None = None
    fuse: int = 8
    reuse: int = 1


def parse_feature_options(given: Any) -> FeatureOptions:
    """Return a run's `features`, checked.

    Raises:
        InvalidOption
    """
    given = {} if given is None else given
    known = tuple(FeatureOptions.__dataclass_fields__)
    if not isinstance(given, Mapping):
        raise unfit("options.features", given, "It is an object.")
    check_known(given, known, "options.features has no")
    storage = given.get("storage", STORAGES[0])
    if storage not in STORAGES:
        raise unfit("options.features.storage", storage, f"Known: {', '.join(STORAGES)}.")
    choice = given.get("choice")
    if choice is not None and choice not in ASKED:
        raise InvalidOption(
            f"options.features.choice is {show(choice)}.",
            hint=f"Known: {', '.join(ASKED)}; {CHOICES[-1]!r} follows from batch_norm.",
        )
    return FeatureOptions(
        storage=storage,
        disk_bytes=_whole(given, "disk_bytes", 0, 1 << 60),
        memory_bytes=_whole(given, "memory_bytes", 0, 1 << 60),
        choice=choice,
        fuse=_whole(given, "fuse", 1, 1024),
        reuse=_whole(given, "reuse", 0, 1_000_000),
    )


def _whole(given: Mapping[str, Any], key: str, least: int, most: int) -> int:
    value = given.get(key, FeatureOptions.__dataclass_fields__[key].default)
    return check_whole(value, f"options.features.{key}", least, most)
