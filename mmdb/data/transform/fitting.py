"""Transforms fitted: from the values of the train rows to statistics and categories.

Every statistic depends on the rows and their order alone, which is that of the shuffle: sums are
taken in it, quantiles are exact by rank. So engines agree, whatever order their scans had.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mmdb.arguments import is_number, is_whole
from mmdb.data.transform.transform import (
    KINDS,
    FittedTransform,
    Source,
    date_parts,
    rounds,
    symmetric_log1p,
)
from mmdb.errors import DataError, InvalidOption
from mmdb.messages import show

#: Quantiles of a `quantile` transform.
KNOTS = 33
#: Texts that `auto` makes 0/1 numbers of, at most; more become codes of an embedding.
ONE_HOT = 8
#: Train rows that a category of an index has at least; rarer ones are one category, "unknown".
RARE = 2
#: Words that texts have on average, at least, where `auto` reads them as such: most of them are
#: different then, too.
SENTENCE = 4
#: Parameters that each kind takes besides `kind`.
PARAMETERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("robust", "standardize", "log1p"), ("impute",)),
    "quantile": ("impute", "knots"),
    "cyclic": (),
    "date": (),
    "index": ("dimension", "min_count"),
    "one_hot": (),
    "hash": ("buckets", "dimension"),
    "words": ("length", "buckets", "dimension"),
    "drop": (),
    "picture": ("size", "channels", "mean", "std", "on_error"),
}


def fit_numbers(
    name: str, source: Source, values: np.ndarray, asked: Mapping[str, Any]
) -> FittedTransform:
    """Return the transform of a column of numbers, moments, clocks or spans.

    Args:
        values: of the train rows in their order, float64 (n,), NaN for NULL.
        asked: `kind`, which may be auto, and its parameters.
    Raises:
        DataError: a kind was asked for, and no train row has a value.
    """
    missing = np.isnan(values)
    known = values[~missing] if missing.any() else values
    kind = str(asked.get("kind", "auto"))
    parameters = {key: value for key, value in asked.items() if key != "kind"}
    if kind == "auto":
        kind = KINDS[source][0] if len(known) and known.min() < known.max() else "drop"
    elif not len(known) and kind != "drop":
        raise DataError(
            f"Column {name!r} is NULL in every train row, so that no {kind} can be fitted.",
            hint=f'Leave it out, or pass transforms {{"{name}": "drop"}}.',
        )
    statistics: dict[str, Any] = {"missing": len(values) - len(known)}
    if kind != "drop":
        ranked = np.sort(known)  # faster than numpy's partition, let alone two of them
        statistics["fill"] = _fill(known, ranked, parameters.get("impute", "median"))
        filled = np.where(missing, statistics["fill"], values) if missing.any() else values
        statistics |= _statistics(kind, source, ranked, filled, parameters)
    return FittedTransform(kind=kind, source=source, parameters=parameters, statistics=statistics)


def _fill(known: np.ndarray, ranked: np.ndarray, impute: object) -> float:
    if impute == "mean":
        return float(known.mean())
    if impute == "median":
        return float(ranked[(len(ranked) - 1) // 2 : len(ranked) // 2 + 1].mean())
    return float(impute)  # type: ignore[arg-type]


def _statistics(
    kind: str, source: Source, ranked: np.ndarray, filled: np.ndarray, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a kind learns from the values that are known, sorted, and from all in order."""
    match kind:
        case "standardize":
            return _moments(filled)
        case "log1p":
            return _moments(symmetric_log1p(filled))
        case "robust":
            low, median, high = _at(ranked, np.array([0.25, 0.5, 0.75]))
            spread = (high - low) or (float(ranked[-1]) - float(ranked[0])) / 2
            return {"median": median, "scale": spread}
        case "quantile":
            return _quantiles(ranked, int(parameters.get("knots", KNOTS)))
        case "cyclic":
            trend = _quantiles(ranked, KNOTS) if source == "moment" else {}
            return {"rounds": rounds(source, ranked), **trend}
        case "date":
            parts = date_parts(filled).items()
            return {
                "parts": {
                    name: [float(part.mean()), float(part.std())]
                    for name, part in parts
                    if (part != part[0]).any()
                }
            }
    return {}


def _moments(values: np.ndarray) -> dict[str, Any]:
    """Return mean and deviation, also where squares of the values are infinite or 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = float(values.mean()), float(values.std())
    if not 0.0 < deviation < np.inf and values.min() < values.max():
        most = float(np.abs(values).max())
        scaled = values / most
        mean, deviation = float(scaled.mean()) * most, float(scaled.std()) * most
    return {"mean": mean, "deviation": deviation}


def _quantiles(ranked: np.ndarray, knots: int) -> dict[str, Any]:
    return {"quantiles": _at(ranked, np.linspace(0.0, 1.0, knots))}


def _at(values: np.ndarray, shares: np.ndarray) -> list[float]:
    """Return quantiles of values that are sorted, to the bit as numpy's own."""
    places = shares * (len(values) - 1)
    whole = np.floor(places).astype(np.int64)
    part, above = places - whole, np.minimum(whole + 1, len(values) - 1)
    low, high = values[whole], values[above]
    step = high - low
    found = np.where(part < 0.5, low + step * part, high - step * (1 - part))
    return found.tolist()  # type: ignore[no-any-return]


def fit_texts(
    name: str, texts: Sequence[str], counts: np.ndarray, missing: int, asked: Mapping[str, Any]
) -> FittedTransform:
    """Return the transform of a column of texts.

    Args:
        texts: the distinct ones.
        counts: train rows of each, int64 (len(texts),).
        missing: train rows that are NULL.
        asked: `kind`, which may be auto, and its parameters.
    Raises:
        DataError: every train row has a text of its own, which tells nothing of other rows.
    """
    kind = str(asked.get("kind", "auto"))
    parameters = {key: value for key, value in asked.items() if key != "kind"}
    seen = [text for text, count in zip(texts, counts, strict=True) if count]
    rows = int(counts.sum())
    if kind == "auto" and len(seen) > max(ONE_HOT, rows / 2) and _are_sentences(seen):
        kind, parameters = "words", {**WORDS, **parameters}
    if kind in ("auto", "index", "one_hot") and len(seen) == rows > ONE_HOT:
        raise DataError(
            f"Column {name!r} has as many different texts as train rows, {rows}.",
            hint=f'Make it a key with roles {{"{name}": "key"}}, leave it out, or pass transforms '
            f'{{"{name}": "words"}}.',
        )
    if kind == "auto":
        kind = "one_hot" if len(seen) <= ONE_HOT else "index"
        kind = "drop" if len(seen) + bool(missing) < 2 else kind
    if kind == "index":
        least = int(parameters.get("min_count", RARE))
        seen = [text for text, count in zip(texts, counts, strict=True) if count >= least]
    return FittedTransform(
        kind=kind,
        source="text",
        parameters=parameters,
        statistics={
            "missing": missing,
            "rare": int((counts > 0).sum()) - len(seen),
            "kept": len(seen),
        },
        categories=tuple(sorted(seen)) if kind in ("index", "one_hot") else None,
    )


def _are_sentences(texts: Sequence[str]) -> bool:
    """Whether texts have several words each."""
    return sum(len(text.split()) for text in texts) > SENTENCE * len(texts)


def check_asked(name: str, source: Source | None, asked: object) -> dict[str, Any]:
    """Return what option `transforms` says of a column, as an object with its `kind`.

    Args:
        source: None: the column's kind is checked elsewhere.
    Raises:
        InvalidOption
    """
    given = {"kind": asked} if isinstance(asked, str) else asked
    if not isinstance(given, Mapping) or not isinstance(given.get("kind", "auto"), str):
        raise InvalidOption(
            f"Option transforms.{name} is no transform.",
            hint='Pass a kind, such as "cyclic", or an object, such as '
            '{"kind": "index", "dimension": 16}.',
        )
    found = {"kind": "auto", **given}
    kind, kinds = found["kind"], ("auto", *(KINDS[source] if source else ("passthrough",)))
    if kind not in kinds:
        raise InvalidOption(
            f"Column {name!r} cannot be transformed by {kind!r}.",
            hint=f"A column of {source or 'array'}s takes {', '.join(kinds)}"
            + ("; whole numbers index, one_hot and hash, too." if source == "number" else "."),
        )
    known = PARAMETERS.get(kind, ())
    for key, value in found.items():
        if key != "kind" and not (key in known and _CHECKS[key](value)):
            raise InvalidOption(
                f"Option transforms.{name} has {key} = {show(value)}.",
                hint=f"Parameters of {kind}: {', '.join(known) or 'none'}; {_ALLOWED}",
            )
    if kind == "picture":
        _check_channels(name, found)
    if kind == "hash":
        found = {"buckets": BUCKETS, **found}
    return {**WORDS, **found} if kind == "words" else found


#: Buckets of a `hash` unless it says how many.
BUCKETS = 1024
#: Words of a text that `words` reads, and their buckets, unless it says how many.
WORDS = {"length": 64, "buckets": 8192}
_CHECKS: dict[str, Callable[[object], bool]] = {
    "impute": lambda value: value in ("mean", "median") or is_number(value),
    "knots": lambda value: is_whole(value, 3, 1025),
    "dimension": lambda value: is_whole(value, 1, 1024),
    "min_count": lambda value: is_whole(value, 1),
    "length": lambda value: is_whole(value, 1, 4096),
    "buckets": lambda value: is_whole(value, 2, 2**20),
    "size": lambda value: _is_size(value),
    "channels": lambda value: value in (1, 3) and is_whole(value, 1),
    "mean": lambda value: _are_numbers(value, -1e6),
    "std": lambda value: _are_numbers(value, 1e-6),
    "on_error": lambda value: value in ("fail", "skip"),
}
_ALLOWED = (
    "impute is mean, median or a number, knots 3 to 1025, dimension 1 to 1024, min_count from 1, "
    "length 1 to 4096, "
    "buckets 2 to 1048576, size is [height, width] of 1 to 1024, channels 3 or 1, mean and std "
    "a number for each, on_error fail or skip."
)


def _check_channels(name: str, found: Mapping[str, Any]) -> None:
    """Check that pictures have a mean and a deviation for each channel, or none.

    Raises:
        InvalidOption
    """
    counts = {len(found[key]) for key in ("mean", "std") if key in found}
    if counts and (counts != {found.get("channels", 3)} or not {"mean", "std"} <= found.keys()):
        raise InvalidOption(
            f"Option transforms.{name} needs a mean and a std for each of its channels.",
            hint='Such as {"kind": "picture", "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}.',
        )


def _are_numbers(value: object, least: float) -> bool:
    is_list = isinstance(value, list | tuple) and len(value) in (1, 3)
    return is_list and all(is_number(one, least, 1e6) for one in value)  # type: ignore[attr-defined]


def _is_size(value: object) -> bool:
    if not isinstance(value, list | tuple) or len(value) != 2:
        return False
    return all(is_whole(side, 1, 1024) for side in value)
