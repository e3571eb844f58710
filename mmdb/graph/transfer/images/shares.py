"""How the copies of an element share what it gives to its readers: unequally."""

from __future__ import annotations

import zlib

import numpy as np

from mmdb.graph.transfer.counterparts.indices import Factor, Index

_LEAST, _MOST = 0.5, 1.5  # before they are divided by their sum


class Shares:
    """Draws shares; those of one reader are the same each time.

    Copies that gave the same to everyone would get the same gradient and stay copies (LEMON,
    arXiv 2310.07999, section 3.1).
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def of(self, index: Index, reader: str) -> Factor:
        """Return positive numbers whose sum is 1 for each element that `index` has."""
        counts = np.bincount(index)
        if counts.max(initial=0) < 2:
            return np.ones(len(index))
        generator = np.random.default_rng((self._seed, zlib.crc32(reader.encode()), len(index)))
        drawn = generator.uniform(_LEAST, _MOST, len(index))
        shares = drawn / np.bincount(index, drawn)[index]
        return np.where(counts[index] == 1, 1.0, shares)
