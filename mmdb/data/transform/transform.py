"""A fitted transform: from a column's raw values to the numbers that a model takes.

It is a value without I/O: the rows of a dataset and the rows that a model predicts go through the
same code, inside a database or outside of one.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from mmdb.db.connection import Texts

#: What the raw values are. A moment is seconds since 1970 in UTC, a clock seconds since midnight,
#: a span seconds; all of them, and numbers, are float64 with NaN for NULL. Texts have codes.
#: Pictures are files until they are decoded, then uint8 (n, channels * height * width).
Source = Literal["number", "moment", "clock", "span", "text", "picture"]


#: Raw values: float64 (n,) with NaN for NULL, or texts with None for it.
Raw = np.ndarray | Sequence[str | None]

#: Kinds by the source of their values; the first is what `auto` begins with.
KINDS: dict[Source, tuple[str, ...]] = {
    "number": ("robust", "quantile", "standardize", "log1p", "drop"),
    "span": ("robust", "quantile", "standardize", "log1p", "drop"),
    "moment": ("cyclic", "date", "quantile", "robust", "standardize", "drop"),
    "clock": ("cyclic", "quantile", "robust", "standardize", "drop"),
    "text": ("index", "one_hot", "hash", "words", "drop"),
    "picture": ("picture", "drop"),
}
#: Kinds whose row is one code, or several.
CODED = ("index", "one_hot", "hash", "words")
#: Codes that come before those of an index's categories.
MISSING_CODE, UNKNOWN_CODE, FIRST_CODE = 0, 1, 2

_DAY = 86_400.0
#: Periods in which moments and clocks go round: name, length in seconds, offset of its start.
#: The first day of 1970 was a Thursday; a year is the mean one of the Gregorian calendar.
ROUNDS: dict[str, tuple[tuple[str, float, float], ...]] = {
    "moment": (("year", 365.2425 * _DAY, 0.0), ("week", 7 * _DAY, 3 * _DAY), ("day", _DAY, 0.0)),
    "clock": (("day", _DAY, 0.0),),
}
#: Python writes floats from here on with an exponent.
_WRITTEN_WITH_EXPONENT = 10**16
_PARTS = ("year", "month", "day", "weekday", "hour", "minute")


def as_stored(value: Any) -> Any:
    """Return JSON with the numbers that a database gives back, whichever it is.

    PostgreSQL's jsonb writes 1e+20 as an integer, and -0.0 as 0.0.

    >>> as_stored({"mean": 10**20, "fill": (-0.0, 7)}), as_stored(10**400) == 10**400
    ({'mean': 1e+20, 'fill': [0.0, 7]}, True)
    """
    if isinstance(value, Mapping):
        return {key: as_stored(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [as_stored(one) for one in value]
    if isinstance(value, int) and _WRITTEN_WITH_EXPONENT <= abs(value) <= sys.float_info.max:
        return float(value)
    return value + 0.0 if isinstance(value, float) else value


@dataclass(frozen=True, kw_only=True)
class FittedTransform:
    """How one column's values become numbers."""

    kind: str
    source: Source
    parameters: Mapping[str, Any] = field(default_factory=dict)  # as asked for
    statistics: Mapping[str, Any] = field(default_factory=dict)  # of the train rows
    categories: tuple[str, ...] | None = None  # of an index or one-hot, sorted

    def __post_init__(self) -> None:
        for name in ("parameters", "statistics"):
            object.__setattr__(self, name, as_stored(getattr(self, name)))

    @property
    def flags_missing(self) -> bool:
        """Whether a number of its own says that the value is NULL: some train rows' was."""
        return bool(self.statistics.get("missing")) and self.kind not in (*CODED, "drop")

    @cached_property
    def names(self) -> tuple[str | None, ...]:
        """The name of each number that a value becomes; an empty one where it stays itself.

        None is NULL of a one-hot, beside categories that may have any text.
        """
        found: tuple[str, ...] = ("",)
        if self.kind == "drop":
            return ()
        if self.kind == "picture":
            return found * int(math.prod(self.statistics["shape"]))
        if self.kind == "cyclic":
            rounds = self.statistics["rounds"]
            found = tuple(f"{wave} of {name}" for name in rounds for wave in ("sine", "cosine"))
            found = (*(("trend",) if self.source == "moment" else ()), *found)
        elif self.kind == "date":
            found = tuple(self.statistics["parts"])
        elif self.kind == "words":
            found = tuple(f"word {place}" for place in range(1, self.parameters["length"] + 1))
        elif self.kind == "one_hot":
            found = tuple(self.categories or ())
            return (*found, None) if self.statistics.get("missing") else found
        return (*found, "missing") if self.flags_missing else found

    @property
    def codes(self) -> int | None:
        """How many codes there are, where a row is codes for an embedding."""
        if self.kind in ("hash", "words"):
            return FIRST_CODE + int(self.parameters["buckets"])
        return FIRST_CODE + len(self.categories or ()) if self.kind == "index" else None

    def apply(self, values: Raw) -> np.ndarray:
        """Return the numbers of some rows, float32 (n, len(names)); a code is one number."""
        if self.source == "text":
            return self._words(values) if self.kind == "words" else self._coded(values)
        if self.source == "picture":
            return self._scaled(np.asarray(values) / np.float32(255))
        numbers = np.asarray(values, np.float64)
        missing = np.isnan(numbers)
        if missing.any():
            numbers = np.where(missing, self.statistics["fill"], numbers)
        with np.errstate(over="ignore", invalid="ignore"):  # who calls checks what comes out
            columns = [*_NUMBERS[self.kind](self, numbers)]
        if self.flags_missing:
            columns.append(missing)
        out = np.empty((len(numbers), len(columns)), np.float32)
        for place, column in enumerate(columns):
            out[:, place] = column
        return out

    def _scaled(self, pixels: np.ndarray) -> np.ndarray:
        """Return pixels, 0 to 1, less the mean of their channel and by its deviation, if asked."""
        if "mean" not in self.parameters:
            return pixels
        mean, std = (np.array(self.parameters[key], np.float32)[:, None] for key in ("mean", "std"))
        each = math.prod(pixels.shape[1:]) // len(mean)
        by_channel = pixels.reshape(len(pixels), len(mean), each)  # though there may be no row
        return ((by_channel - mean) / std).reshape(pixels.shape)

    def _words(self, values: Raw) -> np.ndarray:
        """Return the codes of each text's first words, float32 (n, length)."""
        distinct = values.distinct if isinstance(values, Texts) else values
        length, buckets = len(self.names), int(self.parameters["buckets"])
        out = np.full((len(distinct), length), MISSING_CODE, np.float32)
        known: dict[str, int] = {}
        for row, text in enumerate(distinct):
            for place, word in enumerate(words_of(text)[:length]):
                if word not in known:
                    known[word] = hash_code(word, buckets)
                out[row, place] = known[word]
        return out[values.places] if isinstance(values, Texts) else out

    def _coded(self, values: Raw) -> np.ndarray:
        return self.of_codes(self._codes_of(values))

    def _codes_of(self, values: Raw) -> np.ndarray:
        distinct = values.distinct if isinstance(values, Texts) else values
        codes = np.fromiter(map(self.code, distinct), np.int64, len(distinct))
        return codes[values.places] if isinstance(values, Texts) else codes

    def of_codes(self, codes: np.ndarray) -> np.ndarray:
        """Return the numbers of rows whose texts have these codes, float32 (n, len(names))."""
        if self.kind == "drop":
            return np.empty((len(codes), 0), np.float32)
        if self.kind != "one_hot":
            return codes.astype(np.float32)[:, None]
        out = np.zeros((len(codes), len(self.names)), np.float32)
        rows = np.flatnonzero((codes >= 0) & (codes < len(self.names)))
        out[rows, codes[rows]] = 1.0
        return out

    def code(self, text: str | None) -> int:
        """Return the code of a text; of a one-hot, its place, or -1 where it has none."""
        if text is not None and text not in self._places:
            text = text.rstrip(" ")  # with which JSON fills up PostgreSQL's character(n)
            if self.parameters.get("whole") and _WHOLE.fullmatch(text):
                text = text.partition(".")[0]  # of a number that comes as 3.0
        if self.kind == "hash":
            return hash_code(text, int(self.parameters["buckets"]))
        if self.kind == "one_hot":
            return self._places.get(text, -1)
        return MISSING_CODE if text is None else self._places.get(text, UNKNOWN_CODE)

    @cached_property
    def _places(self) -> dict[str | None, int]:
        first = FIRST_CODE if self.kind == "index" else 0
        places: dict[str | None, int] = {
            text: first + place for place, text in enumerate(self.categories or ())
        }
        if self.kind == "one_hot" and self.statistics.get("missing"):
            places[None] = len(places)
        return places

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return {
            "kind": self.kind,
            "source": self.source,
            "parameters": dict(self.parameters),
            "statistics": dict(self.statistics),
            "categories": None if self.categories is None else list(self.categories),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> FittedTransform:
        """Return the transform that `to_json` wrote."""
        categories = value["categories"]
        return cls(**{**value, "categories": None if categories is None else tuple(categories)})

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> FittedTransform:
        """Return the transform of a row of mmdb.transform, whose kind is named `transform`."""
        return cls.from_json(
            {"kind": row["transform"], "source": row["source"]}
            | {name: json.loads(row[name] or "null") for name in _JSON}
        )


#: Columns of mmdb.transform that hold JSON.
_JSON = ("parameters", "statistics", "categories")


def words_of(text: object) -> list[str]:
    """Return a text's words: letters, digits and underscores, in lower case."""
    return _WORD.findall(str(text).lower()) if text is not None else []


_WORD = re.compile(r"\w+")
#: How databases and JSON write a whole number that was no integer to them.
_WHOLE = re.compile(r"-?\d+\.0*", re.ASCII)


def hash_code(text: str | None, buckets: int) -> int:
    """Return the code of a text's bucket."""
    if text is None:
        return MISSING_CODE
    from blake3 import blake3

    return FIRST_CODE + int.from_bytes(blake3(text.encode()).digest(length=8), "little") % buckets


# -- kinds of numbers: filled values float64 (n,) to columns of numbers ---------

_Columns = Sequence[np.ndarray]


def _standardize(transform: FittedTransform, values: np.ndarray) -> _Columns:
    """(x - mean) / deviation, 0 where the train rows have one value."""
    mean, deviation = transform.statistics["mean"], transform.statistics["deviation"] or 1.0
    found = (values - mean) / deviation
    far = np.isinf(found)  # the difference is beyond float64, what is made of it may not be
    found[far] = values[far] / deviation - mean / deviation
    return (found,)


def _log1p(transform: FittedTransform, values: np.ndarray) -> _Columns:
    """Standardized log(1 + |x|) with the sign of x."""
    return _standardize(transform, symmetric_log1p(values))


def symmetric_log1p(values: np.ndarray) -> np.ndarray:
    """Return log(1 + |x|) with the sign of x."""
    return np.copysign(np.log1p(np.abs(values)), values)  # type: ignore[no-any-return]


def _robust(transform: FittedTransform, values: np.ndarray) -> _Columns:
    """3 asinh(x / 3) of the value in quartile ranges from its median: x, and its logarithm far out.

    Holzmueller et al., NeurIPS 2024, section 3, clip at 3 instead: there a delay of 10 hours is one
    of 20, and a regression that depends on it is lost.
    """
    statistics = transform.statistics
    scaled = (values - statistics["median"]) / (statistics["scale"] or 1.0)
    return (3.0 * np.arcsinh(scaled / 3.0),)


def _quantile(transform: FittedTransform, values: np.ndarray) -> _Columns:
    """The share of train rows below a value, 0 to 1, linear between the fitted quantiles."""
    return (quantile_share(values, np.asarray(transform.statistics["quantiles"])),)


def quantile_share(values: np.ndarray, quantiles: np.ndarray) -> np.ndarray:
    """Return where values are among quantiles of equal steps, float64 (knots,) ascending.

    A value that several quantiles share is in the middle of theirs; the least is 0, the greatest 1.
    """
    shares = np.linspace(0.0, 1.0, len(quantiles))
    found = np.interp(values, quantiles, shares)
    if len(np.unique(quantiles)) < len(quantiles):  # else both ways are one
        found = (found - np.interp(-values, -quantiles[::-1], -shares[::-1])) / 2
        found = np.where(values >= quantiles[-1], 1.0, found)
    return np.where(values <= quantiles[0], 0.0, found)


def _cyclic(transform: FittedTransform, values: np.ndarray) -> _Columns:
    """Sine and cosine of the place in each period; of a moment its share of quantile too."""
    columns: list[np.ndarray] = []
    if transform.source == "moment":
        columns.append(*_quantile(transform, values))
    for name, length, offset in ROUNDS[transform.source]:
        if name in transform.statistics["rounds"]:
            angle = (values + offset) % length * (2 * np.pi / length)
            columns += [np.sin(angle), np.cos(angle)]
    return columns


def _date(transform: FittedTransform, values: np.ndarray) -> _Columns:
    """The standardized parts of a moment."""
    parts = date_parts(values)
    return [
        (parts[name] - mean) / (deviation or 1.0)
        for name, (mean, deviation) in transform.statistics["parts"].items()
    ]


def date_parts(seconds: np.ndarray) -> dict[str, np.ndarray]:
    """Return year, month, day, weekday (Monday is 1), hour and minute of moments, in UTC."""
    moments = np.floor(seconds).astype("datetime64[s]")
    days, months = moments.astype("datetime64[D]"), moments.astype("datetime64[M]")
    years = moments.astype("datetime64[Y]")
    minutes = (moments - days).astype(np.int64) // 60
    return {
        "year": years.astype(np.int64) + 1970,
        "month": (months - years).astype(np.int64) + 1,
        "day": (days - months).astype(np.int64) + 1,
        "weekday": (days.astype(np.int64) + 3) % 7 + 1,
        "hour": minutes // 60,
        "minute": minutes % 60,
    }


def rounds(source: Source, values: np.ndarray) -> list[str]:
    """Return the periods in which moments or clocks are at different places, and may recur.

    Of moments they do where two of them have passed: what one year has shown of December would
    mislead about the next month, which no train row was in.
    """
    spread = float(np.ptp(values)) if len(values) else 0.0
    return [
        name
        for name, length, offset in ROUNDS[source]
        if (source == "clock" or spread >= 2 * length)
        and any(  # the first values often tell
            (found != found[:1]).any()
            for found in ((some + offset) % length for some in (values[:1000], values))
        )
    ]


_NUMBERS: dict[str, Callable[[FittedTransform, np.ndarray], _Columns]] = {
    "standardize": _standardize,
    "log1p": _log1p,
    "robust": _robust,
    "quantile": _quantile,
    "cyclic": _cyclic,
    "date": _date,
    "drop": lambda _, __: (),
}
