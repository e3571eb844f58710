"""A model that is kept as a recipe, sent as the weights that following it gives."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from mmdb.db.connection import Connection
from mmdb.errors import RecipeMismatch
from mmdb.store.files.exchange import Replay
from mmdb.store.models.model_rows import SavedModel, StoredEntry, weights_hash
from mmdb.store.sync.exchange import Described, TensorExchange
from mmdb.store.sync.rows import Listing
from mmdb.store.sync.tensor_copy import Raw, send_fresh
from mmdb.store.tensors.hashing import Hashes, contents_to_store, hash_entries, pack_of
from mmdb.store.tensors.reading import bytes_of, find_encodings, read_tensors
from mmdb.store.tensors.state_entries import ModuleContents, contents_of
from mmdb.store.tensors.tensor_bytes import chunk_bytes
from mmdb.store.tensors.writing import Content


@dataclass(frozen=True, slots=True)
class Replayed:
    """What following a recipe gave."""

    contents: ModuleContents
    hashes: Hashes


def replayed_listing(replay: Replay, source: Connection, model: SavedModel) -> Replayed:
    """Return the tensors that a model's recipe gives.

    Raises:
        RecipeMismatch: they are listed in another way than the model's were.
        RecipeError: it cannot be followed here.
    """
    found = replay(source, model)
    for form in _forms(found):
        contents = contents_of(form)
        hashes = hash_entries(contents, source.threads)
        if weights_hash((e, hashes[e.ordinal]) for e in contents.entries) == model.weights_hash:
            return Replayed(contents, hashes)
    raise RecipeMismatch(
        f"The tensors that the recipe of {model.reference} gives are those that were saved, but "
        "their order or kinds are not.",
        hint="Send its data with data=True, so that the recipe can be followed there.",
    )


def _forms(
    found: nn.Module | Mapping[str, torch.Tensor],
) -> Iterator[nn.Module | Mapping[str, torch.Tensor]]:
    """Yield the forms in which a model may have been saved: its module, or its state dict."""
    yield found
    if isinstance(found, nn.Module):
        yield dict(found.state_dict(keep_vars=True))


def send_replayed(
    exchange: TensorExchange, replayed: Replayed, ancestors: Sequence[StoredEntry]
) -> Listing:
    """Send what the target lacks of a replayed model.

    Args:
        ancestors: the source's tensors of the parent, which those of the model may be differences
            to where the target has them whole.
    """
    contents, hashes = replayed.contents, replayed.hashes
    known = {(a.path, a.kind, a.dtype, a.shape): a for a in ancestors}
    wanted = contents_to_store(contents, hashes, {})
    pack = pack_of(contents)
    if pack is not None:
        wanted.append(pack)
    origins = {
        hashes[e.ordinal]: known[key].tensor_id
        for e in contents.entries
        if (key := (e.path, e.kind, e.dtype, e.shape)) in known
    }
    bases = _whole_bases(exchange, origins)
    exchange.ask(content.tensor_hash for content in wanted)
    lacking = [c for c in wanted if _is_lacking(exchange, c)]
    exchange.progress.expect(sum(c.byte_count for c in lacking if c.has_chunks))
    leaned = send_fresh(exchange, ((c.has_chunks, _raw(exchange, c, bases)) for c in lacking))
    return Listing(
        pack=None if pack is None else pack.tensor_hash,
        listed=[(entry, hashes[entry.ordinal]) for entry in contents.entries],
        approach="update" if leaned else "snapshot",
    )


def _is_lacking(exchange: TensorExchange, content: Content) -> bool:
    there = exchange.held.get(content.tensor_hash)
    needs_chunks = content.has_chunks and content.byte_count > 0
    return there is None or (needs_chunks and not there.has_chunks)


def _whole_bases(exchange: TensorExchange, origins: Mapping[bytes, int]) -> dict[bytes, Described]:
    """Return for each tensor the parent's, or that one's base, that is whole at the target."""
    described = {d.tensor_id: d for d in exchange.describe(origins.values())}
    roots = {
        d.tensor_id: d
        for d in exchange.describe(d.base_id for d in described.values() if d.base_id is not None)
    }
    candidates = {**described, **roots}
    exchange.ask(d.tensor_hash for d in candidates.values())
    found: dict[bytes, Described] = {}
    for name, tensor_id in origins.items():
        own = described[tensor_id]
        line = [own, *([roots[own.base_id]] if own.base_id is not None else [])]
        for base in line:
            held = exchange.held.get(base.tensor_hash)
            if held and held.has_chunks and not held.is_difference:
                found.setdefault(name, base)
    return found


def _raw(exchange: TensorExchange, content: Content, bases: Mapping[bytes, Described]) -> Raw:
    itemsize = content.byte_count // max(1, math.prod(content.shape))
    tensor = Described(
        tensor_id=0,
        tensor_hash=content.tensor_hash,
        dtype=content.dtype,
        shape=content.shape,
        byte_count=content.byte_count,
        statistics=content.statistics().row(),
        word=content.word,
        chunk_bytes=chunk_bytes(content.shape, max(1, itemsize), by_row=content.by_row),
    )
    raw = Raw(tensor=tensor, data=content.load())
    base = bases.get(content.tensor_hash)
    if base is None or base.chunk_bytes != tensor.chunk_bytes or not content.has_chunks:
        return raw
    encodings = find_encodings(exchange.source, [base.tensor_id])
    read = read_tensors(exchange.source, list(encodings.values()), checked=list(encodings))
    return replace(raw, base=(base.tensor_hash, bytes_of(read[base.tensor_id])))
