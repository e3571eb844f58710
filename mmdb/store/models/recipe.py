"""Recipes: how a model is made again, kept in place of its weights.

A recipe is either the hops of a candidate, which the database has anyway, or a registered trainer
with all that decides what it does: its arguments, seed and states, the parent it starts from and
the dataset it reads. Nothing is pickled; see `mmdb.store.tensors.nested` for what a state may hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from mmdb.arguments import is_whole
from mmdb.db.connection import Connection
from mmdb.db.queries import load
from mmdb.errors import CorruptTensor, InvalidRecipe, NotReplayable
from mmdb.messages import show
from mmdb.store.models.approach import Measured, Replay
from mmdb.store.models.model_rows import model_of
from mmdb.store.tensors.nested import Flat, flatten, unflatten
from mmdb.store.tensors.reading import BadTensor, find_encodings, read_tensors
from mmdb.store.tensors.tensor_bytes import (
    DTYPES,
    Statistics,
    dtype_name,
    raw_bytes,
    tensor_hash,
    word_bytes,
)
from mmdb.store.tensors.writing import Content, store_contents

_Q = load("recipes")

#: Bytes of each tensor's hash that a recipe keeps, to say which tensors differ.
HASH_BYTES = 8
#: Bytes of a model's and a recipe's rows with their places in indexes, beside what they hold.
_ROW_BYTES = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a model was trained; `db.save(..., provenance=Recipe(...))` keeps it."""

    #: Name of a registered trainer (docs/sql.md); None: the hops of the model's candidate.
    trainer: str | None = None
    #: Name of the dataset whose partitions the trainer reads; None: it reads none.
    dataset: str | None = None
    #: Keyword arguments of the trainer.
    arguments: Mapping[str, Any] = field(default_factory=dict)
    #: Seeds Python's, numpy's and torch's generators before the training.
    seed: int = 0
    #: State dicts from before the training: "optimizer", "schedule", "scaler", or any other name
    #: that the trainer knows; "rng" holds generator states, as `mmdb.rng_state()` returns them.
    state: Mapping[str, Any] = field(default_factory=dict)
    #: Threads of torch during the training; their number decides how sums are rounded.
    threads: int = 1
    #: Seconds that the training took, where they are known.
    train_s: float | None = None
    #: Why `auto` must not choose it.
    rejected: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecipe:
    """A model's recipe as the database has it."""

    recipe: Recipe
    tensor_hashes: tuple[bytes, ...]  # HASH_BYTES of each entry, in their order
    replayed_s: float | None  # seconds of a replay that gave the same weights; None: never tried


def check_recipe(recipe: Recipe) -> None:
    """Check what can be checked of a user's recipe without following it.

    Raises:
        InvalidRecipe
    """
    if recipe.trainer is None:
        raise InvalidRecipe("The recipe names no trainer.", hint="Recipe(trainer=NAME, ...).")
    if not is_whole(recipe.seed, 0, 2**63 - 1):
        raise InvalidRecipe(
            f"The recipe's seed is {show(recipe.seed)}.", hint="It is 0 to 2**63 - 1."
        )
    if not is_whole(recipe.threads, 1, 1024):
        raise InvalidRecipe(f"The recipe's threads are {recipe.threads!r}.", hint="1 to 1024.")
    reserved = {"seed", "state"} & set(recipe.arguments)
    if reserved:
        raise InvalidRecipe(
            f"The recipe's arguments hold {sorted(reserved)[0]!r}, which mmdb passes itself.",
            hint="Give it as Recipe(seed=..., state=...).",
        )
    flatten(_document(recipe))


def recipe_bytes(recipe: Recipe, tensors: int) -> int:
    """Return the bytes that keeping a recipe adds, states counted before they are encoded.

    Args:
        tensors: of the model's state dict.
    Raises:
        InvalidRecipe
    """
    plain, flat = flatten(_document(recipe))
    held = sum(tensor.nbytes for tensor in flat.values())
    return _ROW_BYTES + len(json.dumps(plain)) + HASH_BYTES * tensors + held


def predict_replay(
    connection: Connection, recipe: Recipe, *, tensors: int, parent_id: int | None, read_mb_s: float
) -> Replay:
    """Return what keeping a recipe, and following it one day, would cost.

    Args:
        tensors: of the model's state dict.
        read_mb_s: raw MB a second at which a parent's weights are read.
    Raises:
        InvalidRecipe
    """
    parent_s = 0.0
    if recipe.trainer is not None and parent_id is not None:
        (row,) = connection.rows(_Q.measure_ancestry, model_id=parent_id)
        parent_s = row["train_s"] + row["byte_count"] / 1e6 / read_mb_s
    return Replay(
        recipe_bytes=recipe_bytes(recipe, tensors),
        train_s=recipe.train_s,
        parent_recover_s=parent_s,
        asked=recipe.trainer is not None,
        rejected=recipe.rejected,
    )


def measure_ratios(connection: Connection) -> Measured:
    """Return stored and raw bytes of the tensors that this database encoded last."""
    return {
        (row["dtype"], row["is_delta"]): (row["stored_bytes"], row["byte_count"])
        for row in connection.rows(_Q.measure_ratios)
    }


def write_recipe(
    connection: Connection, model_id: int, recipe: Recipe, tensor_hashes: Sequence[bytes]
) -> None:
    """Store a model's recipe; the model's row is there, and a transaction is open.

    A rejected recipe is not how the model was made, and is not kept.

    Args:
        tensor_hashes: of every entry of the model, in the order of `contents_of`.
    Raises:
        InvalidRecipe: it holds what can only be pickled.
    """
    if recipe.rejected is not None:
        return
    plain, flat = flatten(_document(recipe))
    by_hops = recipe.trainer is None
    connection.run(
        _Q.add_recipe,
        model_id=model_id,
        trainer=recipe.trainer,
        arguments=json.dumps(plain),
        seed=None if by_hops else recipe.seed,
        tensor_hashes=b"".join(found[:HASH_BYTES] for found in tensor_hashes),
        train_s=recipe.train_s,
    )
    contents = {path: _content(tensor) for path, tensor in flat.items()}
    stored = store_contents(connection, list(contents.values()))
    members = [(model_id, path, stored.ids[c.tensor_hash]) for path, c in contents.items()]
    connection.append(_Q.add_recipe_tensor, members)


def read_recipe(connection: Connection, model_id: int) -> StoredRecipe:
    """Return a model's recipe with its states.

    Raises:
        NotReplayable: it has none.
        CorruptTensor: the arguments, or the stored bytes of a state, are damaged.
    """
    found = connection.rows(_Q.find_recipe, model_id=model_id)
    if not found:
        raise NotReplayable(f"Model {model_id} has neither weights nor a recipe.")
    row, hashes = found[0], bytes(found[0]["tensor_hashes"])
    states = _read_states(connection, model_id)
    try:
        document = unflatten(json.loads(row["arguments"]), states)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise _damaged(connection, model_id, f"it has {error!r}") from error
    return StoredRecipe(
        recipe=Recipe(
            trainer=row["trainer"],
            dataset=row["dataset"],
            arguments=document.get("arguments", {}),
            seed=row["seed"] or 0,
            state=document.get("state", {}),
            threads=document.get("threads", 1),
            train_s=row["train_s"],
        ),
        tensor_hashes=tuple(
            hashes[start : start + HASH_BYTES] for start in range(0, len(hashes), HASH_BYTES)
        ),
        replayed_s=row["replayed_s"],
    )


def _content(tensor: torch.Tensor) -> Content:
    data, dtype, shape = raw_bytes(tensor), dtype_name(tensor.dtype), tuple(tensor.shape)
    return Content(
        tensor_hash=tensor_hash(dtype, shape, data),
        dtype=dtype,
        shape=shape,
        byte_count=len(data),
        word=word_bytes(DTYPES[dtype]),
        load=lambda: data,
        describe=lambda: Statistics.of(tensor),
    )


def _read_states(connection: Connection, model_id: int) -> Flat:
    places = {
        row["tensor_id"]: row["path"]
        for row in connection.rows(_Q.find_recipe_tensors, model_id=model_id)
    }
    encodings = find_encodings(connection, places)
    try:
        read = read_tensors(connection, list(encodings.values()), checked=places)
    except BadTensor as error:
        what = f"its states of type {places[error.tensor_id]}: {error}"
        raise _damaged(connection, model_id, what) from error
    return {places[tensor_id]: tensor for tensor_id, tensor in read.items()}


def _damaged(connection: Connection, model_id: int, what: str) -> CorruptTensor:
    reference = model_of(connection, model_id).reference
    return CorruptTensor(f"The recipe of model {reference} is damaged: {what}.")


def mark_replayed(connection: Connection, model_id: int, seconds: float) -> None:
    """Record that following a model's recipe gave its weights."""
    connection.run(_Q.mark_replayed, model_id=model_id, replayed_s=seconds)


def _document(recipe: Recipe) -> dict[str, Any]:
    """Return what goes into the column `arguments`, before tensors are taken out."""
    if recipe.trainer is None:
        return {}
    return {
        "arguments": dict(recipe.arguments),
        "state": dict(recipe.state),
        "threads": recipe.threads,
    }
