"""Tokenizers as a tokenizer.json describes them: data for the library tokenizers, never code."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from blake3 import blake3

from mmdb.errors import FunctionFailed, stops_the_caller
from mmdb.messages import explain

#: What stands for a tokenizer.json where other functions have package.module:callable.
TARGET = "tokenizer.json"
#: Tokens that fill rows up, and that end a text, where the file does not say it.
_PADS = ("[PAD]", "<pad>", "<|pad|>", "<PAD>")
_ENDS = ("<|endoftext|>", "</s>", "<eos>", "<|end_of_text|>", "<|im_end|>", "[EOS]", "[SEP]")


@dataclass(frozen=True, slots=True)
class JsonTokenizer:
    """A tokenizer of the library tokenizers, without its own padding and truncation."""

    name: str
    library: Any  # tokenizers.Tokenizer
    pad: int  # id that fills a row up
    end: int | None  # id of the token that ends a text; None: none is known
    vocabulary: int  # ids are below it

    def limited(self, length: int | None) -> Any:
        """Return the library's tokenizer, cutting texts to a length as it does; None: nowhere."""
        self.library.no_truncation()
        if length is not None:
            special = self.library.num_special_tokens_to_add(False)
            if length <= special:
                raise FunctionFailed(
                    f"Tokenizer {self.name!r} adds {special} tokens to each text; rows have "
                    f"{length}.",
                    hint="Make the rows longer: option tokenize, length.",
                )
            self.library.enable_truncation(length)
        return self.library

    def encode(self, texts: Sequence[str], *, length: int | None = None) -> list[list[int]]:
        """Return the ids of texts, equal to those of the library's `Tokenizer.encode`."""
        return [found.ids for found in self.limited(length).encode_batch(list(texts))]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without special tokens."""
        return str(self.library.decode(list(ids)))


def target_of(definition: str) -> str:
    """Return what a dataset keeps of a tokenizer.json: tokenizer.json: and its hash."""
    return f"{TARGET}:{blake3(definition.encode()).hexdigest()}"


@lru_cache(maxsize=4)
def read_tokenizer(name: str, definition: str) -> JsonTokenizer:
    """Return the tokenizer that the text of a tokenizer.json describes.

    Args:
        name: under which it is known, for messages.
    Raises:
        FunctionFailed: the library is missing, or the text is no tokenizer.json.
    """
    try:
        library = importlib.import_module("tokenizers")
    except ImportError as error:
        raise FunctionFailed(
            f"Tokenizer {name!r} is a tokenizer.json; the library tokenizers cannot be imported: "
            f"{explain(error)}",
            hint="Where texts become tokens: pip install 'mmdb-learn[pretrained]'",
        ) from error
    try:
        found = library.Tokenizer.from_str(definition)
        padding = json.loads(definition).get("padding")
        vocabulary = found.get_vocab(with_added_tokens=True)
    except BaseException as error:  # the library is Rust, whose panics are no Exceptions
        if stops_the_caller(error):
            raise
        raise FunctionFailed(
            f"Tokenizer {name!r} is no tokenizer.json that the library tokenizers reads: "
            f"{explain(error)}",
            hint="Pass the text of the file that Tokenizer.save or save_pretrained wrote.",
        ) from error
    if not vocabulary:
        raise FunctionFailed(f"Tokenizer {name!r} has no tokens.")
    found.no_padding()
    found.no_truncation()
    pad = (padding or {}).get("pad_id")
    if pad is None:
        pad = next((vocabulary[token] for token in _PADS if token in vocabulary), 0)
    end = next((vocabulary[token] for token in _ENDS if token in vocabulary), None)
    return JsonTokenizer(name, found, pad, end, max(vocabulary.values()) + 1)


def is_same(one: str, other: str) -> bool:
    """Whether two texts of a tokenizer.json tokenize alike, however they pad and cut."""
    if one == other:
        return True
    first, second = read_tokenizer("one", one), read_tokenizer("other", other)
    return bool(first.limited(None).to_str() == second.limited(None).to_str())
