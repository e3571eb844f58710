"""Blocks of made-up rows: what a dataset of one column and one number to predict is kept as."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mmdb.data import arrays
from mmdb.data.decoding import Column, ColumnKind, Decoding, Input, Label
from mmdb.data.features import Field
from mmdb.data.layout import Layout, Slot
from mmdb.data.pack import BLOCK_BYTES, digest, pack, unpack

_FLOAT = 4
#: Of a block: large enough for what opening one takes to be little.
_BYTES = BLOCK_BYTES // 4


class Block:
    """A packed block, and what decodes it."""

    def __init__(self, kind: ColumnKind, width: int, seed: int) -> None:
        """Pack rows of `width` numbers ("tensor") or bytes ("bytes")."""
        item = _FLOAT if kind == "tensor" else 1
        self.feature_bytes = item * width
        lanes = -(-self.feature_bytes // _FLOAT) * _FLOAT
        x = Field(name="x", type="bytes", kind=kind, scanned="bytes")
        y = Field(name="y", type="float", kind="label", scanned="real", task="regression")
        slots = (Slot(field=x, offset=0, width=width), Slot(field=y, offset=lanes, width=1))
        layout = Layout(slots=slots, labels=slots[1:], row_bytes=lanes + _FLOAT)
        self.rows = max(1, _BYTES // layout.row_bytes)
        random = np.random.default_rng(seed)
        values = random.integers(0, 64, (self.rows, layout.row_bytes), dtype=np.uint8)
        self.data = pack(values, layout)
        self.digest = digest(self.data)
        self._decoding = Decoding(
            columns=(
                Column(name="x", kind=kind, width=width),
                Column(name="y", kind="label", width=1),
            ),
            inputs=(Input(name="", columns=("x",), shape=(width,)),),
            labels=(Label(name="y", task="regression"),),
        )

    def decode(self, folder: Path) -> None:
        """Check, decode and write to files in a folder what a partition's reader would."""
        assert digest(self.data) == self.digest
        decoded = unpack(self.data, self._decoding)
        with arrays.writing(folder, self._decoding, self.rows) as add:
            add(decoded)
