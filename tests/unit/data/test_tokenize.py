"""Texts as rows of token ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mmdb.data.tokenize import Tokenizer, encoder
from mmdb.errors import FunctionFailed


def encode(
    texts: list[str],
    call: Any = None,
    *,
    function: str = "other",
    length: int = 3,
    vocabulary: int | None = None,
) -> list[list[int]]:
    tokenizer = Tokenizer(function=function, length=length, vocabulary=vocabulary)
    tokens = encoder(tokenizer, call)(texts)
    assert tokens.dtype == np.int32
    return tokens.tolist()  # type: ignore[no-any-return]


def test_bytes_are_cut_or_filled_up() -> None:
    texts = ["", "a", "abcdef", "ß"]
    expected = [[0, 0, 0], [98, 0, 0], [98, 99, 100], [0xC3 + 1, 0x9F + 1, 0]]
    assert encode(texts, function="bytes") == expected


def encode_words(text: str, vocabulary: int = 1000) -> list[int]:
    return encode([text], function="words", length=5, vocabulary=vocabulary)[0]


def test_words_are_hashed_without_case_or_punctuation() -> None:
    good, bad = encode_words("good")[0], encode_words("bad")[0]
    assert good != bad
    assert encode_words("Good, GOOD… bad!") == [good, good, bad, 0, 0]


def test_the_hash_of_a_word_never_changes() -> None:
    assert encode_words("good bad Übermut", 32_768) == [11447, 8149, 6865, 0, 0]


def test_words_stay_below_the_vocabulary() -> None:
    words = " ".join(f"w{i}" for i in range(5))
    assert encode_words(words, 2) == [1, 1, 1, 1, 1]
    assert set(encode_words(words, 4)) <= {1, 2, 3}


def test_a_function_may_return_arrays() -> None:
    assert encode(["a", "b"], lambda texts: np.array([[1, 2], [3, 4]])) == [[1, 2, 0], [3, 4, 0]]
    assert encode(["a", "b"], lambda texts: ((), range(5))) == [[0, 0, 0], [0, 1, 2]]


def _raise(texts: list[str]) -> Any:
    raise LookupError("no vocabulary")


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (_raise, "LookupError: no vocabulary"),
        (lambda texts: [[1]], "1 lists for 2 texts"),
        (lambda texts: None, "no token ids"),
        (lambda texts: [1, 2], "no token ids"),
        (lambda texts: [[-1], [1]], "no token ids"),
        (lambda texts: [[2**31], [1]], "no token ids"),
        (lambda texts: [[2**70], [1]], "no token ids"),
        (lambda texts: [[0.5], [1]], "no token ids"),
        (lambda texts: [["1"], [1]], "no token ids"),
        (lambda texts: [[True], [1]], "no token ids"),
        (lambda texts: [[None], [1]], "no token ids"),
        (lambda texts: [[[1], [2]], [1]], "no token ids"),
        (lambda texts: [[[1], [2, 3]], [1]], "no token ids"),
    ],
)
def test_what_are_no_ids_is_refused(function: Callable[[list[str]], Any], named: str) -> None:
    with pytest.raises(FunctionFailed, match=f"'other'.*{named}"):
        encode(["a", "b"], function)
