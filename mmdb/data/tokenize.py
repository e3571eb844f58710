"""Texts as tokens: rows of ids of one length, 0 where a text has ended.

A tokenizer is a callable that takes a list of texts and returns for each a list of ids, whole
numbers from 0 to 2**31 - 1; or the text of a tokenizer.json. Two need no registration:

    bytes   the UTF-8 bytes, each plus 1: 1 to 256
    words   a hash of each lower-cased word: 1 to vocabulary - 1
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from blake3 import blake3

from mmdb.errors import FunctionFailed, MmdbError, stops_the_caller

#: The longest row of tokens.
MAX_LENGTH = 65_536
#: Ids are kept as 32-bit integers.
MAX_ID = 2**31 - 1
DEFAULT_VOCABULARY = 32_768
#: What is kept in place of tokens behind a text whose next tokens are predicted: it is no id.
FILL = -1
#: What ends a text of bytes.
BYTES_END = 257

Function = Callable[[list[str]], Sequence[Sequence[int]]]
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """How a text column becomes tokens."""

    function: str  # "bytes", "words", or a registered one
    length: int  # ids of a row
    vocabulary: int | None = None  # of "words" and of a tokenizer.json: ids are below it
    target: str | None = None  # package.module:callable, or tokenizer.json:hash
    pad: int | None = None  # id that fills a row up; None: 0
    end: int | None = None  # of next tokens: id that ends each text
    pack: bool = False  # of next tokens: rows are filled with several texts

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        given = asdict(self)
        left_out = {"pad": None, "end": None, "pack": False}  # what older ones are hashed without
        return {k: v for k, v in given.items() if k not in left_out or v != left_out[k]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Tokenizer:
        """Return the tokenizer that `to_json` wrote."""
        return cls(**value)


def bytes_ids(text: str) -> list[int]:
    """Return the ids of tokenizer "bytes"."""
    return [byte + 1 for byte in text.encode()]


def bytes_text(ids: Sequence[int]) -> str:
    """Return the text of ids of tokenizer "bytes"; what is no UTF-8 is U+FFFD."""
    return bytes(one - 1 for one in ids if 1 <= one <= 256).decode(errors="replace")


def _bytes(texts: list[str]) -> list[list[int]]:
    return [*map(bytes_ids, texts)]


def _words(texts: list[str], *, vocabulary: int) -> list[list[int]]:
    found = [_WORD.findall(text.lower()) for text in texts]
    ids = {word: 1 + _hash(word) % (vocabulary - 1) for words in found for word in words}
    return [[ids[word] for word in words] for words in found]


def _hash(word: str) -> int:
    return int.from_bytes(blake3(word.encode()).digest(length=8), "little")


#: Tokenizers that need no registration.
BUILT_IN = ("bytes", "words")


@dataclass(frozen=True, slots=True)
class Encoder:
    """Turns texts into a tokenizer's ids."""

    tokenizer: Tokenizer
    function: Function

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Return ids, int32 (n, length): cut to the length, or filled up.

        Raises:
            FunctionFailed: see `lists`.
        """
        one = self.tokenizer
        fill = (one.pad or 0) if one.end is None else FILL
        found = np.full((len(texts), one.length), fill, np.int32)
        for row, ids in zip(found, self.lists(texts), strict=True):
            row[: len(ids)] = ids[: one.length]
        return found

    def lists(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the ids of each text, however many; each ends where its texts have an end.

        Raises:
            FunctionFailed: the function raised, or returned something else than lists of ids.
        """
        name = self.tokenizer.function
        try:
            returned = self.function(list(texts))
        except MmdbError:
            raise
        except BaseException as error:  # the function is the owner's code
            if stops_the_caller(error):
                raise
            raise FunctionFailed(
                f"Tokenizer {name!r} raised {type(error).__name__}: {error}"
            ) from error
        try:
            found = [list(ids) for ids in returned]
        except TypeError as error:
            raise _no_ids(self.tokenizer, returned) from error
        if len(found) != len(texts):
            raise FunctionFailed(
                f"Tokenizer {name!r} returned {len(found)} lists for {len(texts)} texts."
            )
        return [self._ended(_checked(self.tokenizer, ids)) for ids in found]

    def _ended(self, ids: np.ndarray) -> np.ndarray:
        """Return ids with the end behind them; of no text its end, after which an end is due."""
        end = self.tokenizer.end
        if end is None or (len(ids) > 1 and ids[-1] == end):
            return ids
        return np.append(ids if len(ids) else [end], end)


def encoder(tokenizer: Tokenizer, function: Function | None = None) -> Encoder:
    """Return what turns texts into a tokenizer's rows.

    Args:
        function: the registered one; None for a built-in.
    """
    if function is None:
        words = partial(_words, vocabulary=tokenizer.vocabulary or DEFAULT_VOCABULARY)
        function = _bytes if tokenizer.function == "bytes" else words
    return Encoder(tokenizer, function)


def _checked(tokenizer: Tokenizer, ids: list[Any]) -> np.ndarray:
    if not ids:
        return np.zeros(0, np.int64)
    try:
        found = np.asarray(ids)
    except ValueError as error:  # lists of different lengths
        raise _no_ids(tokenizer, ids) from error
    if found.dtype.kind not in "iu" or found.ndim != 1 or found.min() < 0 or found.max() > MAX_ID:
        raise _no_ids(tokenizer, ids)
    return found


def _no_ids(tokenizer: Tokenizer, ids: object) -> FunctionFailed:
    return FunctionFailed(
        f"Tokenizer {tokenizer.function!r} returned {str(ids)[:80]}, which are no token ids.",
        hint=f"Ids are whole numbers from 0 to {MAX_ID}.",
    )
