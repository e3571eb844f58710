"""Texts one after the other in rows of one length: what next tokens are learned from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import md5
from itertools import groupby

import numpy as np

from mmdb.data.column_layout import SPLIT, Field
from mmdb.data.split import Split
from mmdb.data.tokenize import FILL, Encoder
from mmdb.db.connection import Batch, Texts
from mmdb.db.queries import quote_name

#: The column by which the texts come in their order.
PLACE = "mmdb place"


def split_field() -> Field:
    """Return the column that says which slice a text is in."""
    return Field(name=SPLIT, type="text", kind="excluded", scanned="nullable_text", alias=SPLIT)


def ordered_select(select: str, column: str, split: Split) -> str:
    """Return a SELECT of a column's texts with slice and place, by a hash of seed and text.

    The order, and so each row, depends on the texts alone: both engines have the same md5.
    """
    text = quote_name(column)
    bounds, share = [], 0.0
    for role, part in (("validation", split.validation), ("test", split.test)):
        share += part
        bounds.append(f"WHEN q.place <= floor(q.total * {share!r}::float8 + 0.5) THEN '{role}'")
    order = f"row_number() OVER (ORDER BY md5('{split.seed} ' || t.{text}))"
    return (
        f"SELECT q.{text}, CASE {' '.join(bounds)} ELSE 'train' END AS {quote_name(SPLIT)},"
        f" q.place AS {quote_name(PLACE)}"
        f" FROM (SELECT t.{text}, {order} AS place, count(*) OVER () AS total"
        f" FROM ({select}\n) AS t) AS q"
    )


def in_order(texts: Iterable[str], seed: int) -> list[str]:
    """Return texts in the order of `ordered_select`."""
    return sorted(texts, key=lambda text: md5(f"{seed} {text}".encode()).hexdigest())


def packed(batches: Iterable[Batch], column: str, encoder: Encoder) -> Iterator[Batch]:
    """Yield batches of rows, each filled with texts; the last row of a slice is filled up.

    A row begins where the one before it has ended, be it within a text. What would be a row of one
    token, after which nothing is to be predicted, is left out.

    Args:
        batches: with the texts in their order and, by `SPLIT`, the slice of each.
    """
    length = encoder.tokenizer.length
    role, rest = "", np.zeros(0, np.int32)
    for batch in batches:
        roles, ids = list(batch[SPLIT]), encoder.lists(list(batch[column]))
        for found, places in groupby(range(len(ids)), key=roles.__getitem__):
            if found != role and len(rest) > 1:
                yield _batch(column, role, _filled_up(rest, length))
            if found != role:
                role, rest = found, rest[:0]
            tokens = np.concatenate([rest, *(ids[place] for place in places)])
            whole = len(tokens) - len(tokens) % length
            if whole:
                yield _batch(column, role, tokens[:whole].reshape(-1, length))
            rest = tokens[whole:]
    if len(rest) > 1:
        yield _batch(column, role, _filled_up(rest, length))


def _filled_up(tokens: np.ndarray, length: int) -> np.ndarray:
    return np.append(tokens, np.full(length - len(tokens), FILL))[None]


def _batch(column: str, role: str, rows: np.ndarray) -> Batch:
    return {column: rows.astype(np.int32), SPLIT: Texts([role], np.zeros(len(rows), np.int64))}
