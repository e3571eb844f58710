"""Which way to save a model, by the bytes it would store and the seconds it would take. Pure.

What decides is known before anything is encoded: by their hashes, which tensors the database holds
already and which of the rest the parent has another version of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, TypeVar, cast, get_args

from mmdb.arguments import check_known, is_number, unfit
from mmdb.errors import InvalidOption

Approach = Literal["snapshot", "update", "provenance"]
APPROACHES: tuple[Approach, ...] = get_args(Approach)

#: Stored bytes a raw byte, alone and as a difference to the parent's. Of the codecs on weights
#: drawn from N(0, 0.02), every one then moved by 0.5 % of that; float64 counts float32's savings.
_RATIOS: dict[str, tuple[float, float]] = {
    "float32": (0.84, 0.62),
    "complex64": (0.84, 0.62),
    "float64": (0.93, 0.81),
    "complex128": (0.93, 0.81),
    "bfloat16": (0.67, 0.24),
    "float16": (0.85, 0.44),
    "float8_e4m3fn": (0.67, 0.10),
    "int8": (0.88, 0.10),
}
#: Anything else: it may not shrink at all.
_OTHER_RATIOS = (1.0, 1.0)
#: Measured ratios count from this many raw bytes on; fewer may be one odd tensor.
_TRUSTED_BYTES = 8e6

#: Bytes of a row that lists one tensor of a manifest, with its place in three indexes.
_ENTRY_BYTES = 200
#: Seconds of the statements that any save, and any recovery, takes beside its bytes.
_CALL_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What a GB kept and a second waited cost, in one currency; only their proportions count.

    By default a GB kept costs as much as 20 s: the third that a delta saves of 240 MB of float32,
    0.05 GB, is then worth the half second more that saving and reading it take.
    """

    storage: float = 20.0  # per GB (10**9 bytes)
    save: float = 1.0  # per second
    recover: float = 1.0  # per second


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Raw MB (10**6 bytes) a second, client and server on the same two cores."""

    hash_mb_s: float = 2000.0
    write_mb_s: float = 170.0  # encoding included
    write_delta_mb_s: float = 150.0  # reading the base included
    read_mb_s: float = 700.0  # decoding and verification included
    read_delta_mb_s: float = 450.0


#: By engine, as `mmdb bench store` measures them. Measured with 94 MB of float32.
RATES: dict[str, Rates] = {
    "postgres": Rates(),
    "duckdb": Rates(
        write_mb_s=110.0, write_delta_mb_s=110.0, read_mb_s=500.0, read_delta_mb_s=420.0
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproachOptions:
    """The part of a save's options that this module understands."""

    weights: Weights = field(default_factory=Weights)
    weighted: bool = False  # whether the caller gave weights
    rates: Mapping[str, float] = field(default_factory=dict)  # in place of the engine's
    verify_replay_s: float = 30.0  # a replay that takes longer is not tried when saving


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveAmounts:
    """What there is to save: raw bytes by dtype, a tensor counted once however often it occurs."""

    held: Mapping[str, int]  # the database has them already
    changed: Mapping[str, int]  # new; the parent's tensor of that path has their dtype and shape
    fresh: Mapping[str, int]  # new, with nothing to subtract
    entries: int  # of the manifest
    changed_entries: int | None  # that differ from the parent's; None: no parent to update


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a recipe would cost."""

    recipe_bytes: int
    train_s: float | None  # None: not known
    parent_recover_s: float = 0.0
    asked: bool = False  # the caller wrote the recipe, so it may be chosen without weights
    rejected: str | None = None  # why it cannot be relied on


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproachCost:
    """A prediction."""

    stored_bytes: int
    save_s: float
    recover_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproachChoice:
    """An approach, and why: all predictions, the weights, and what was ruled out."""

    approach: Approach
    reason: dict[str, Any]  # JSON


#: (dtype, is delta) -> (stored bytes, raw bytes), as this database's own encodings say.
Measured = Mapping[tuple[str, bool], tuple[float, float]]


def decide(
    amounts: SaveAmounts,
    *,
    engine: str,
    wanted: str = "auto",
    options: ApproachOptions = ApproachOptions(),
    measured: Measured | None = None,
    replay: Replay | None = None,
) -> ApproachChoice:
    """Return how to save a model.

    Args:
        wanted: an approach, which is then taken (whether it can be is the caller's to check), or
            "auto".
        replay: None where the model has no recipe.
    Raises:
        InvalidOption: `wanted` is no approach.
    """
    if wanted != "auto" and wanted not in APPROACHES:
        raise unfit("approach", wanted, f"Known: auto, {', '.join(APPROACHES)}.")
    rates = rates_of(engine, options)
    costs = predict(amounts, rates=rates, measured=measured or {}, replay=replay)
    ruled_out = _ruled_out(amounts, replay, options)
    if wanted != "auto":
        reason = _reason(costs, options.weights, ruled_out) | {"asked": wanted}
        return ApproachChoice(approach=cast("Approach", wanted), reason=reason)
    return choose(costs, options.weights, ruled_out)


def rates_of(engine: str, options: ApproachOptions) -> Rates:
    """Return an engine's rates, but for those that the caller knows better."""
    return _with(RATES[engine], options.rates)


def choose(
    costs: Mapping[Approach, ApproachCost], weights: Weights, impossible: Mapping[str, str]
) -> ApproachChoice:
    """Return the cheapest approach under the weights.

    Args:
        costs: at least one that is not impossible; of equal ones the first in APPROACHES wins.
        impossible: approach -> why it cannot be taken.
    """
    possible = [a for a in APPROACHES if a in costs and a not in impossible]
    best = min(possible, key=lambda a: price(costs[a], weights))
    return ApproachChoice(approach=best, reason=_reason(costs, weights, impossible))


def price(cost: ApproachCost, weights: Weights) -> float:
    """Return a prediction in the currency of the weights."""
    return (
        weights.storage * cost.stored_bytes / 1e9
        + weights.save * cost.save_s
        + weights.recover * cost.recover_s
    )


def predict(
    amounts: SaveAmounts, *, rates: Rates, measured: Measured, replay: Replay | None
) -> dict[Approach, ApproachCost]:
    """Return what each approach would cost, where it has a meaning at all."""
    total = sum(sum(part.values()) for part in (amounts.held, amounts.changed, amounts.fresh))
    changed, new = sum(amounts.changed.values()), _sum(amounts.changed, amounts.fresh)
    hash_s = _CALL_S + total / 1e6 / rates.hash_mb_s
    alone = _stored(new, measured, delta=False)
    found: dict[Approach, ApproachCost] = {
        "snapshot": ApproachCost(
            stored_bytes=round(alone) + amounts.entries * _ENTRY_BYTES,
            save_s=hash_s + sum(new.values()) / 1e6 / rates.write_mb_s,
            recover_s=_CALL_S + total / 1e6 / rates.read_mb_s,
        )
    }
    if amounts.changed_entries is not None:
        apart = _stored(amounts.changed, measured, delta=False)
        delta = min(_stored(amounts.changed, measured, delta=True), apart)
        # Where a difference is no smaller the codecs keep the tensor itself, which reads faster.
        pays = delta < 0.95 * apart
        write = rates.write_delta_mb_s if pays else rates.write_mb_s
        read = rates.read_delta_mb_s if pays else rates.read_mb_s
        fresh = sum(amounts.fresh.values())
        found["update"] = ApproachCost(
            stored_bytes=round(alone - apart + delta) + amounts.changed_entries * _ENTRY_BYTES,
            save_s=hash_s + changed / 1e6 / write + fresh / 1e6 / rates.write_mb_s,
            recover_s=_CALL_S + changed / 1e6 / read + (total - changed) / 1e6 / rates.read_mb_s,
        )
    if replay is not None:
        found["provenance"] = ApproachCost(
            stored_bytes=replay.recipe_bytes,
            save_s=hash_s + replay.recipe_bytes / 1e6 / rates.write_mb_s,
            recover_s=_CALL_S + (replay.train_s or 0.0) + replay.parent_recover_s,
        )
    return found


def _ruled_out(
    amounts: SaveAmounts, replay: Replay | None, options: ApproachOptions
) -> dict[str, str]:
    found = {}
    if amounts.changed_entries is None:
        found["update"] = "there is no parent with the same tensors"
    if replay is None:
        found["provenance"] = "there is no recipe"
    elif replay.rejected is not None:
        found["provenance"] = replay.rejected
    elif replay.train_s is None:
        found["provenance"] = "how long its training takes is not known"
    elif not (replay.asked or options.weighted):
        # A run's model could always be a recipe. But reading 10 MB takes 20 ms, and replaying
        # the training that made them seconds at least; `predict` needs the weights at once; and
        # a recipe also binds its dataset, its trainer and its environment. No default weight
        # stands for that, so whoever prefers the bytes must say so.
        found["provenance"] = "no weights were given: predicting needs a model's tensors at once"
    return found


def _reason(
    costs: Mapping[Approach, ApproachCost], weights: Weights, impossible: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "predicted": {approach: _rounded(asdict(cost)) for approach, cost in costs.items()},
        "weights": asdict(weights),
        "price": _rounded({a: price(cost, weights) for a, cost in costs.items()}),
        "impossible": dict(impossible),
    }


def _rounded(values: Mapping[Any, float]) -> dict[str, float]:
    return {str(k): v if isinstance(v, int) else float(f"{v:.4g}") for k, v in values.items()}


def _sum(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return {dtype: a.get(dtype, 0) + b.get(dtype, 0) for dtype in {*a, *b}}


def _stored(amounts: Mapping[str, int], measured: Measured, *, delta: bool) -> float:
    return sum(count * ratio(dtype, measured, delta=delta) for dtype, count in amounts.items())


def ratio(dtype: str, measured: Measured, *, delta: bool) -> float:
    """Return stored bytes a raw byte: this database's own where it has enough, else the default."""
    stored, raw = measured.get((dtype, delta), (0.0, 0.0))
    if raw >= _TRUSTED_BYTES:
        return stored / raw
    return _RATIOS.get(dtype, _OTHER_RATIOS)[delta]


def parse_options(options: Mapping[str, Any]) -> ApproachOptions:
    """Return the checked options of a save.

    Args:
        options: "weights": {"storage", "save", "recover"}, "rates": {"read_mb_s", ...},
            "verify_replay_s": seconds; each may be left out.
    Raises:
        InvalidOption: an unknown name, or a value that is no number from 0.
    """
    known = ("weights", "rates", "verify_replay_s")
    check_known(options, known, "A save has no option")
    weights = _numbers("weights", options.get("weights", {}), _names(Weights))
    rates = _numbers("rates", options.get("rates", {}), _names(Rates))
    for name, value in rates.items():
        if value == 0:
            raise InvalidOption(f"options.rates.{name} is 0.", hint="It is in MB a second.")
    seconds = options.get(
        "verify_replay_s", ApproachOptions.__dataclass_fields__["verify_replay_s"].default
    )
    return ApproachOptions(
        weights=_with(Weights(), weights),
        weighted=bool(weights),
        rates=rates,
        verify_replay_s=_number("verify_replay_s", seconds),
    )


_T = TypeVar("_T", Weights, Rates)


def _with(value: _T, changes: Mapping[str, float]) -> _T:
    kind: type[_T] = type(value)
    return kind(**(asdict(value) | dict(changes)))


def _names(kind: type[Weights] | type[Rates]) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


def _numbers(option: str, value: Any, known: tuple[str, ...]) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise unfit(f"options.{option}", value, f"It is an object of: {', '.join(known)}.")
    check_known(value, known, f"options.{option} has no")
    return {name: _number(f"{option}.{name}", number) for name, number in value.items()}


def _number(option: str, value: Any) -> float:
    if not is_number(value, 0):
        raise unfit(f"options.{option}", value, "It is a number from 0.")
    return float(value)
