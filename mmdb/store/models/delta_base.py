"""The stored model to which the difference of a new one is smallest, where nobody says which.

Models with tensors of the same paths and shapes are looked at, those with the nearest statistics;
a piece of the new model is encoded against a piece of the few that are nearest to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mmdb.db.connection import Connection
from mmdb.db.owners import readable
from mmdb.db.queries import load
from mmdb.graph.grouped import EACH
from mmdb.store.models.model_rows import SavedModel, model_of
from mmdb.store.tensors.codec import encode
from mmdb.store.tensors.reading import BadTensor, Span, find_encodings, read_spans
from mmdb.store.tensors.state_entries import Entry, ModuleContents
from mmdb.store.tensors.tensor_bytes import DTYPES, Statistics, chunk_bytes, raw_bytes, word_bytes

_Q = load("heritage")
#: Smaller models are not worth the search: bytes of the weights that do not lie in the pack.
_LEAST_BYTES = 64 << 10
#: Models that are looked at, and those that the new one is encoded against.
_MODELS, _ENCODED = 32, 4
#: Tensors of each, the largest of them, and bytes of a piece of each.
_TENSORS, _LARGEST_BYTES, _PIECE_BYTES = 3, 16 << 20, 256 << 10
#: A difference must save 5 %, as for the codecs.
_GAIN = 0.95
#: Statistics are compared up to this.
_BOUND = 1e300


@dataclass(frozen=True, slots=True)
class _Probe:
    """A piece of a tensor of the new model."""

    entry: Entry
    tensor: torch.Tensor  # all of it
    start: int  # in bytes
    chunk_bytes: int
    piece: np.ndarray

    @property
    def stop(self) -> int:
        return self.start + len(self.piece)

    def size(self, base: np.ndarray | None = None) -> float:
        """Return the bytes that the whole tensor would take, about."""
        found = encode(self.piece, word_bytes(DTYPES[self.entry.dtype]), base)
        return len(found.data) * self.entry.byte_count / len(self.piece)

    def digits(self, base: np.ndarray) -> float:
        """Return the bytes of all digits of the difference to a base: a guess at `size`."""
        word = np.dtype(f"<i{word_bytes(DTYPES[self.entry.dtype])}")
        step = self.piece.view(word) - base.view(word)
        digits = np.log2(np.abs(step.astype(np.float64)) + 1).mean() / 8
        return float(digits) * self.entry.byte_count / word.itemsize


def find_base(connection: Connection, contents: ModuleContents) -> SavedModel | None:
    """Return the model whose tensors a new model is best kept as differences to; None: no gain.

    A tensor that is a difference itself stands for the one that it is a difference to.
    """
    probes = _probes(contents)
    if not probes:
        return None
    model_ids = _alike(connection, probes[0])
    try:
        pieces = _pieces(connection, model_ids, probes)
    except BadTensor:  # of a model that the caller has not named
        return None
    alone = [probe.size() for probe in probes]

    def total(model_id: int, measure: Callable[[_Probe, np.ndarray], float]) -> float:
        found = [pieces.get((model_id, probe.entry.path)) for probe in probes]
        return sum(
            size if one is None else min(size, measure(probe, one[1]))
            for probe, one, size in zip(probes, found, alone, strict=True)
        )

    kept: dict[object, int] = {}  # of models with the same bases the first
    for model_id in model_ids:
        bases = (pieces.get((model_id, probe.entry.path), (None,))[0] for probe in probes)
        kept.setdefault(tuple(bases), model_id)
    known: dict[tuple[str, int], float] = {}

    def digits(probe: _Probe, base: np.ndarray) -> float:
        key = probe.entry.path, id(base)
        if key not in known:
            known[key] = probe.digits(base)
        return known[key]

    nearest = sorted(kept.values(), key=lambda one: total(one, digits))[:_ENCODED]
    best = min(nearest, key=lambda one: total(one, _Probe.size), default=None)
    if best is None or total(best, _Probe.size) > _GAIN * sum(alone):
        return None
    return model_of(connection, best)


def _probes(contents: ModuleContents) -> list[_Probe]:
    """Return pieces of the largest tensors, but for those that take long to read."""
    own = [e for e in contents.entries if e.tied_to is None and e.layout is None and not e.is_small]
    if sum(e.byte_count for e in own) < _LEAST_BYTES:
        return []
    ranked = sorted(own, key=lambda e: (e.byte_count > _LARGEST_BYTES, -e.byte_count, e.ordinal))
    first = ranked[0].byte_count > _LARGEST_BYTES
    chosen = ranked[-1:] if first else ranked[:_TENSORS]
    return [_probe(e, contents) for e in chosen if first or e.byte_count <= _LARGEST_BYTES]


def _probe(entry: Entry, contents: ModuleContents) -> _Probe:
    itemsize = DTYPES[entry.dtype].itemsize
    size = chunk_bytes(entry.shape, itemsize, by_row=entry.path.startswith(EACH))
    start = entry.byte_count // 2 // size * size  # of the middle chunk
    tensor = contents.tensor(entry)
    data = raw_bytes(tensor)[start : start + min(size, _PIECE_BYTES)]
    return _Probe(entry, tensor, start, size, data)


def _alike(connection: Connection, probe: _Probe) -> list[int]:
    """Return models with a tensor of a probe's path, dtype and shape, the most similar first."""
    entry, statistics = probe.entry, Statistics.of(probe.tensor)
    rows = connection.rows(
        _Q.find_alike,
        path=entry.path,
        dtype=entry.dtype,
        shape=list(entry.shape),
        byte_count=entry.byte_count,
        mean=_bounded(statistics.mean),
        deviation=_bounded(statistics.deviation),
        minimum=_bounded(statistics.minimum),
        maximum=_bounded(statistics.maximum),
        bound=_BOUND,
        most=_MODELS,
    )
    found = [row["model_id"] for row in rows]
    known = readable(connection, found)
    return [model_id for model_id in found if model_id in known]


def _bounded(value: float | None) -> float | None:
    """Return a statistic between -_BOUND and _BOUND: a server refuses sums that are infinite."""
    return value if value is None else max(-_BOUND, min(value, _BOUND))


def _pieces(
    connection: Connection, model_ids: Sequence[int], probes: Sequence[_Probe]
) -> dict[tuple[int, str], tuple[int, np.ndarray]]:
    """Return the tensor that is a model's base at a path, with the piece of it that a probe is."""
    if not model_ids:
        return {}
    by_path = {probe.entry.path: probe for probe in probes}
    found = connection.rows(_Q.find_roots, model_ids=list(model_ids), paths=list(by_path))
    encodings = find_encodings(connection, {row["root_id"] for row in found})
    wanted: dict[tuple[int, str], Span] = {}
    for row in found:
        probe, root = by_path[row["path"]], encodings[row["root_id"]]
        if (root.dtype, root.shape, root.chunk_bytes) == (
            probe.entry.dtype,
            probe.entry.shape,
            probe.chunk_bytes,
        ):
            wanted[row["model_id"], row["path"]] = Span(root, probe.start, probe.stop)
    # Models share bases, and a base may stand at several paths, with another piece at each.
    spans = {(span.encoding.tensor_id, span.start, span.stop): span for span in wanted.values()}
    read = dict(
        zip(spans, read_spans(connection, list(spans.values())) if spans else [], strict=True)
    )
    return {
        key: (span.encoding.tensor_id, read[span.encoding.tensor_id, span.start, span.stop])
        for key, span in wanted.items()
    }
