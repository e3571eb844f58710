"""Saving a model: hash everything, store what is new, name the version; one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import isfinite
from time import perf_counter
from typing import Any

import torch
from torch import nn

from mmdb.db.connection import Connection
from mmdb.db.owners import check_bytes
from mmdb.db.queries import load
from mmdb.errors import (
    AlreadyExists,
    CorruptTensor,
    InvalidRecipe,
    ModelNotFound,
    NoParent,
    WriteConflict,
)
from mmdb.graph.trace.structure import NetworkGraph
from mmdb.store.models.approach import ApproachChoice, SaveAmounts, decide, parse_options, rates_of
from mmdb.store.models.architectures import put_architecture
from mmdb.store.models.delta_base import find_base
from mmdb.store.models.environment import put_environment
from mmdb.store.models.model_rows import (
    ModelDefinition,
    SavedModel,
    StoredEntry,
    TensorList,
    add_definition,
    find_entries,
    find_model,
    put_manifest,
    weights_hash,
)
from mmdb.store.models.recipe import (
    Recipe,
    measure_ratios,
    predict_replay,
    recipe_bytes,
    write_recipe,
)
from mmdb.store.tensors.hashing import Hashes, Hashing, contents_to_store, pack_of
from mmdb.store.tensors.reading import BadTensor
from mmdb.store.tensors.state_entries import ModuleContents, contents_of
from mmdb.store.tensors.writing import Content, Named, Stored, known_hashes, store_contents

_Q = load("models")
#: How often a save that another session got in the way of is begun again.
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A model just saved."""

    model_id: int
    name: str
    version: int
    approach: str
    stored_bytes: int  # of the chunks that this save added
    seconds: float

    @property
    def reference(self) -> str:
        """The model as `name@version`."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What is known of a model beside its tensors."""

    definition: ModelDefinition | None = None
    #: Finds the definition where none is given and the parent's is of another architecture.
    define: Callable[[], ModelDefinition | None] = lambda: None
    structure: NetworkGraph | None = None
    #: Finds the structure where none is given; None: the parent's, where it has the same tensors.
    trace: Callable[[], NetworkGraph | None] = lambda: None
    dataset_id: int | None = None
    candidate_id: int | None = None
    base: str | None = None  # of an adapter without a parent: the model that differences are to
    epoch: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    calibration: Mapping[str, Any] | None = None  # see `mmdb.data.calibration`
    members: Sequence[tuple[int, int]] = ()  # candidates whose mean it is, each with its epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What is asked of one save, with the hashes that it took to compute."""

    name: str
    contents: ModuleContents
    hashing: Hashing
    parent: str | None
    approach: str
    about: About
    recipe: Recipe | None
    options: Mapping[str, Any]
    version: int | None
    started: float

    @property
    def hashes(self) -> Hashes:
        """The hash of each entry's tensor by ordinal; waits for what is not there yet."""
        return self.hashing.result


@dataclass(frozen=True, slots=True, kw_only=True)
class _Origin:
    """The parent, with its tensors, and the model to whose tensors differences are kept."""

    model: SavedModel | None
    entries: Sequence[StoredEntry]
    base: SavedModel | None  # the parent, or where there is none the model that is most like it
    #: The base's tensor for each entry that has one of its path, dtype and shape, by ordinal.
    bases: Mapping[int, int]


def save_model(
    connection: Connection,
    name: str,
    source: nn.Module | Mapping[str, torch.Tensor] | ModuleContents,
    *,
    parent: str | None = None,
    approach: str = "auto",
    about: About | None = None,
    recipe: Recipe | None = None,
    options: Mapping[str, Any] | None = None,
    version: int | None = None,
) -> Saved:
    """Save a module or a state dict as the next version of a model.

    Args:
        parent: the model that it was made from, as `name`, `name@version` or `name@alias`.
        approach: "snapshot" stores each new tensor by itself, "update" as its difference to the
            parent's, "provenance" stores the recipe alone, and "auto" what costs least. Without a
            parent, the difference is one to the model that `find_base` finds, where it does.
        recipe: how the model can be made again.
        options: see `mmdb.store.models.approach.parse_options`.
        version: for a model that comes from elsewhere; None for the next.
    Raises:
        AlreadyExists: the version is taken.
        ModelNotFound: there is no such parent.
        NoParent: an update without a model that has a tensor of the same path, dtype and shape.
        InvalidRecipe: provenance without a recipe.
        CorruptTensor: a tensor of the parent, to be subtracted, is not as it was stored.
        UnsupportedTensor, InputError, InvalidOption
        LimitReached: its owner may not keep so many bytes.
    """
    started = perf_counter()
    contents = source if isinstance(source, ModuleContents) else contents_of(source)
    about = about or About()
    attempts = _ATTEMPTS
    with Hashing(contents, connection.threads) as hashing:
        request = _Request(
            name=name,
            contents=contents,
            hashing=hashing,
            parent=parent,
            approach=approach,
            about=replace(about, structure=about.structure or about.trace()),
            recipe=recipe,
            options=options or {},
            version=version,
            started=started,
        )
        while True:
            attempts -= 1
            try:
                with connection.transaction():
                    saved = _save(connection, request)
                    check_bytes(connection)
                    return saved
            except WriteConflict:
                # Another session named the same version, or freed a tensor that was just found.
                if not attempts or connection.in_transaction:
                    raise


def _save(connection: Connection, request: _Request) -> Saved:
    origin = _origin(connection, request)
    choice = _choose(connection, request, origin)
    if choice.approach == "provenance":
        assert request.recipe is not None
        if origin.model is not None:
            _hold(connection, origin.model)
        size = recipe_bytes(request.recipe, len(request.contents.entries))
        saved = _add(connection, request, origin, choice, stored_bytes=size)
        write_recipe(connection, saved.model_id, request.recipe, _in_order(request))
        return saved
    pack = pack_of(request.contents)
    is_update = choice.approach == "update"
    try:
        stored = _store(connection, request, origin, pack, origin.bases if is_update else {})
    except BadTensor as error:
        if origin.model is not None:
            raise _corrupt_parent(origin, error) from error
        # The base is damaged, which the caller has not named: the model needs none.
        stored = _store(connection, request, origin, pack, {})
    listed = TensorList(request.contents.entries, request.hashes, stored.ids)
    manifest_id, changes = put_manifest(connection, origin.model, origin.entries, listed)
    where = {
        "manifest_id": manifest_id,
        "pack_id": None if pack is None else stored.ids[pack.tensor_hash],
    }
    saved = _add(connection, request, origin, choice, where, stored_bytes=stored.stored_bytes)
    changed = [(saved.model_id, k, t) for k, t in sorted(changes.items())]
    connection.append(_Q.add_change, changed)
    return saved


def _store(
    connection: Connection,
    request: _Request,
    origin: _Origin,
    pack: Content | None,
    bases: Mapping[int, int],
) -> Stored:
    wanted = contents_to_store(request.contents, request.hashes, bases)
    if pack is not None:
        leans = bool(bases) or request.about.base is not None
        base_id = origin.base.pack_id if origin.base and leans else None
        wanted.append(replace(pack, base_id=base_id))
    return store_contents(connection, wanted, _named(origin))


def _hold(connection: Connection, parent: SavedModel) -> None:
    """Keep a parent from being dropped until the recipe that begins with it is stored."""
    if not connection.rows(load("registry").hold_model, model_id=parent.model_id):
        raise ModelNotFound(f"Model {parent.reference} has just been dropped.")


def _named(origin: _Origin) -> dict[bytes, Named]:
    """Return the parent's tensors that have bytes of their own."""
    return {
        e.tensor_hash: Named(e.tensor_id, e.dtype, e.shape, e.byte_count)
        for e in origin.entries
        if e.tied_to is None and e.layout is None
    }


def _corrupt_parent(origin: _Origin, error: BadTensor) -> CorruptTensor:
    assert origin.model is not None
    paths = [repr(e.path) for e in origin.entries if e.tensor_id == error.tensor_id]
    where = f"tensor {paths[0]}" if paths else "its tensors that lie together"
    chunk = "" if error.ordinal is None else f", chunk {error.ordinal}"
    return CorruptTensor(
        f"The parent {origin.model.reference}, {where}{chunk}: {error.reason}.",
        hint="Save it as a snapshot, which reads nothing of the parent.",
    )


def _in_order(request: _Request) -> list[bytes]:
    return [request.hashes[e.ordinal] for e in request.contents.entries]


def _origin(connection: Connection, request: _Request) -> _Origin:
    model = find_model(connection, request.parent) if request.parent is not None else None
    entries = find_entries(connection, model.model_id) if model else []
    base, held = model, entries
    if model is None and request.about.base is not None and request.approach != "snapshot":
        with suppress(ModelNotFound):  # dropped since
            base = find_model(connection, request.about.base)
            held = find_entries(connection, base.model_id)
    elif model is None and request.approach in ("auto", "update") and request.hashes:
        base = find_base(connection, request.contents)
        held = find_entries(connection, base.model_id) if base else []
    bases = _bases(request.contents, held)
    return _Origin(model=model, entries=entries, base=base, bases=bases)


def _choose(connection: Connection, request: _Request, origin: _Origin) -> ApproachChoice:
    options = parse_options(request.options)
    if request.approach == "update" and not origin.bases:
        what = (
            f"shares no tensor with {origin.model.reference}"
            if origin.model
            else "has no parent, and there is no model that it is like"
        )
        raise NoParent(f"The update {what}.")
    if request.approach == "provenance" and request.recipe is None:
        raise InvalidRecipe(
            "There is no recipe to keep in place of the weights.",
            hint="Pass provenance=Recipe(...), or save a candidate of a run.",
        )
    replay = None
    if request.recipe is not None:
        replay = predict_replay(
            connection,
            request.recipe,
            tensors=len(request.contents.entries),
            parent_id=origin.model.model_id if origin.model else None,
            read_mb_s=rates_of(connection.engine, options).read_mb_s,
        )
    choice = decide(
        _amounts(connection, request, origin),
        engine=connection.engine,
        wanted=request.approach,
        options=options,
        measured=measure_ratios(connection),
        replay=replay,
    )
    if choice.approach != "update" or origin.base is origin.model or origin.base is None:
        return choice
    return replace(choice, reason=choice.reason | {"base": origin.base.reference})


def _amounts(connection: Connection, request: _Request, origin: _Origin) -> SaveAmounts:
    own = {e.tensor_hash for e in origin.entries}
    known = own | known_hashes(connection, set(request.hashes.values()) - own)
    held: dict[str, int] = {}
    changed: dict[str, int] = {}
    fresh: dict[str, int] = {}
    differing = 0
    for entry in request.contents.entries:
        is_held = request.hashes[entry.ordinal] in known
        differing += request.hashes[entry.ordinal] not in own
        if entry.tied_to is None and entry.layout is None:
            into = held if is_held else changed if entry.ordinal in origin.bases else fresh
            into[entry.dtype] = into.get(entry.dtype, 0) + entry.byte_count
    return SaveAmounts(
        held=held,
        changed=changed,
        fresh=fresh,
        entries=len(request.contents.entries),
        changed_entries=differing if origin.bases else None,
    )


def _bases(contents: ModuleContents, ancestors: Sequence[StoredEntry]) -> dict[int, int]:
    """Return the base's tensor for each entry that has one of its path, dtype and shape."""
    known = {(a.path, a.kind, a.dtype, a.shape): a.tensor_id for a in ancestors}
    keys = {e.ordinal: (e.path, e.kind, e.dtype, e.shape) for e in contents.entries}
    return {ordinal: known[key] for ordinal, key in keys.items() if key in known}


def _add(
    connection: Connection,
    request: _Request,
    origin: _Origin,
    choice: ApproachChoice,
    where: Mapping[str, int | None] | None = None,
    *,
    stored_bytes: int,
) -> Saved:
    """Add the model's row; `where` says in which manifest and pack its tensors are."""
    about, entries = request.about, request.contents.entries
    definition_id, architecture_id = _built_by(connection, request, origin)
    named = ((e, request.hashes[e.ordinal]) for e in entries)
    environment_id = put_environment(connection)
    row: dict[str, Any] = {
        "name": request.name,
        "approach": choice.approach,
        "parent_id": origin.model.model_id if origin.model else None,
        "manifest_id": None,
        "pack_id": None,
        "definition_id": definition_id,
        "architecture_id": architecture_id,
        "environment_id": environment_id,
        "weights_hash": weights_hash(named),
        "dataset_id": about.dataset_id,
        "candidate_id": about.candidate_id,
        "epoch": about.epoch,
        # JSON knows no NaN and no infinity; the rows of metrics do.
        "metrics": json.dumps({k: v if isfinite(v) else None for k, v in about.metrics.items()}),
        "reason": json.dumps(choice.reason),
        "tensor_count": sum(e.kind in ("parameter", "buffer") for e in entries),
        "byte_count": sum(e.byte_count for e in entries if e.tied_to is None and e.layout is None),
        "stored_bytes": stored_bytes,
        "save_s": perf_counter() - request.started,
        "calibration": None
        if about.calibration is None
        else json.dumps(about.calibration, ensure_ascii=False),
    }
    model_id, version = _add_row(connection, request, row | dict(where or {}))
    metrics = [(model_id, key, "", value) for key, value in about.metrics.items()]
    connection.append(_Q.add_metric, metrics)
    members = [(model_id, place, *member) for place, member in enumerate(about.members)]
    connection.append(_Q.add_member, members)
    return Saved(
        model_id=model_id,
        name=request.name,
        version=version,
        approach=choice.approach,
        stored_bytes=row["stored_bytes"],
        seconds=row["save_s"],
    )


def _add_row(
    connection: Connection, request: _Request, row: Mapping[str, object]
) -> tuple[int, int]:
    """Return number and version of a model's new row.

    Two sessions may take the same version; the second waits for the first and takes the next.
    """
    taken = None
    while True:
        version = request.version
        if version is None:
            (last,) = connection.rows(_Q.last_version, name=request.name)
            version = int(last["version"]) + 1
        added = connection.rows(_Q.add_model, version=version, **row)
        if added:
            return int(added[0]["model_id"]), version
        if request.version is not None:
            raise AlreadyExists(
                f"There is, or was, a model {request.name}@{version}.",
                hint="A number is given once: pass another version, or none for the next one.",
            )
        if version == taken:  # by a session that this one's snapshot does not see
            raise WriteConflict(f"Another session has just saved {request.name}@{version}.")
        taken = version


def _built_by(
    connection: Connection, request: _Request, origin: _Origin
) -> tuple[int | None, int | None]:
    """Return definition and architecture: the parent's where tensors and structure are alike."""
    about, parent = request.about, origin.model
    own = [(e.path, e.dtype, e.shape) for e in request.contents.entries]
    is_alike = own == [(e.path, e.dtype, e.shape) for e in origin.entries]
    architecture_id = parent.architecture_id if parent and is_alike else None
    if about.structure is not None:
        architecture_id = put_architecture(connection, about.structure)
    definition = about.definition
    if definition is None and parent and is_alike and parent.architecture_id == architecture_id:
        return parent.definition_id, architecture_id
    definition = definition or about.define()
    return add_definition(connection, definition) if definition else None, architecture_id
