"""One model from one database into another: what to send is found out, sent, and named last."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import AlreadyExists, CorruptTensor, NotReplayable, WriteConflict
from mmdb.store.files.exchange import Replay
from mmdb.store.models.model_rows import (
    ImportOrigin,
    add_origin,
    find_entries,
    find_members,
    model_of,
    weights_hash,
)
from mmdb.store.models.recover import Verify
from mmdb.store.sync.exchange import BATCH_BYTES, CopyProgress, TensorExchange, There, same_model
from mmdb.store.sync.replayed_copy import replayed_listing, send_replayed
from mmdb.store.sync.rows import (
    Listing,
    find_listing,
    need_of,
    put_aliases,
    put_parts,
    put_recipe,
    put_said,
    write_listing,
)
from mmdb.store.sync.run_lineage import find_obstacle, put_candidate, put_dataset
from mmdb.store.sync.tensor_copy import plan, send
from mmdb.store.tensors.reading import BadTensor

_Q = load("sync")
#: Ancestors of a model that it may be described by.
_DEPTH = 32
#: How often a copy that another session got in the way of is begun again.
_ATTEMPTS = 5
#: Columns of a model that stay as they are.
_COPIED = (
    *("weights_hash", "epoch", "metrics", "tensor_count", "byte_count", "save_s", "created"),
    "calibration",
)


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """Options of `push` and `pull`."""

    name: str | None = None  # at the target; None: the same
    version: Literal["next"] | None = None  # "next": the next free one; None: the same
    aliases: bool = False  # let them be at the copy, too
    data: bool = False  # send the blocks of datasets
    #: Send weights in place of a recipe: where it cannot be followed at the target, always, never.
    weights: Literal["auto", "always", "never"] = "auto"
    verify: Verify = "full"
    keep_differences: bool = False  # send every base of a difference
    batch_bytes: int = BATCH_BYTES  # stored bytes that one transaction sends at most


@dataclass(slots=True, kw_only=True)
class ModelCopier:
    """Copies models from one database into another."""

    source: Connection
    target: Connection
    options: CopyOptions
    replay: Replay | None
    progress: CopyProgress
    origin: ImportOrigin | None = None  # what the target is told of where its copies came from
    copied: list[str] = field(default_factory=list)  # name@version at the target
    kept: list[str] = field(default_factory=list)  # likewise: they were there
    skipped_bytes: int = 0

    def copy(self, model_id: int) -> There:
        """Copy a model, and those that it cannot be made again without; return the copy."""
        attempts = _ATTEMPTS
        while True:
            attempts -= 1
            try:
                return _OneCopy(self, model_id).run()
            except WriteConflict:  # another session named it, or freed what was counted on
                if not attempts:
                    raise


class _OneCopy:
    """One attempt to copy one model."""

    def __init__(self, copier: ModelCopier, model_id: int, *, is_asked_for: bool = True) -> None:
        self.copier, self.source, self.target = copier, copier.source, copier.target
        self.options = copier.options
        if not is_asked_for:  # an ancestor goes by its own name
            self.options = replace(self.options, name=None)
        (self.row,) = self.source.rows(_Q.read_model, model_id=model_id)
        self.relatives = self.source.rows(_Q.find_relatives, model_id=model_id, depth=_DEPTH)
        self.name: str = self.options.name or self.row["name"]
        self.version: int = self.row["version"]
        self.exchange = TensorExchange(
            source=self.source,
            target=self.target,
            verify=self.options.verify,
            batch_bytes=self.options.batch_bytes,
            progress=copier.progress,
        )
        self.remarks: dict[str, Any] = {}

    @property
    def reference(self) -> str:
        """The model as `name@version`, at the source."""
        return f"{self.row['name']}@{self.row['version']}"

    def run(self) -> There:
        """Copy the model unless it is there; see `ModelCopier.copy`."""
        there = self._there()
        found = self._find_copy(there)
        if found is None:
            recipe = self._recipe()
            keeps_recipe = self.row["manifest_id"] is None and self._keeps_recipe(recipe)
            if keeps_recipe and recipe is not None and recipe["trainer"] is not None:
                there = self._with_parent(there)
            found = self._send(there, recipe, keeps_recipe)
            self.copier.copied.append(found.reference)
        else:
            self.copier.kept.append(found.reference)
        if self.options.aliases:
            at = (self.row["name"], self.row["version"])
            put_aliases(self.source, self.target, at, (found.name, found.version))
        return found

    # -- what is there --------------------------------------------------------

    def _there(self) -> list[There]:
        hashes = list(dict.fromkeys(bytes(row["weights_hash"]) for row in self.relatives))
        rows = self.target.rows(_Q.find_there, hashes=hashes, name=self.name, version=self.version)
        return [There.from_row(row) for row in rows]

    def _find_copy(self, there: Sequence[There]) -> There | None:
        """Return the copy that the target has.

        Raises:
            AlreadyExists: its name and version stand for another model there.
        """
        own = bytes(self.row["weights_hash"])
        calibration = json.loads(self.row["calibration"] or "null")
        if self.options.version == "next":
            same = [m for m in there if m.weights_hash == own and m.name == self.name]
            same = [m for m in same if m.calibration == calibration]
            live = [m for m in same if not m.is_dropped]
            if not live:
                (last,) = self.target.rows(load("models").last_version, name=self.name)
                self.version = last["version"] + 1
            return live[0] if live else None
        named = [m for m in there if (m.name, m.version) == (self.name, self.version)]
        if not named:
            return None
        if named[0].is_dropped:
            raise AlreadyExists(
                f"Model {named[0].reference} was dropped there.", hint=_ANOTHER_NAME
            )
        if named[0].weights_hash != own:
            raise AlreadyExists(
                f"Model {named[0].reference} there has the weights "
                f"{named[0].weights_hash.hex()[:12]}, not {own.hex()[:12]} as {self.reference} "
                "here.",
                hint=_ANOTHER_NAME,
            )
        if named[0].calibration != calibration:
            raise AlreadyExists(
                f"Model {named[0].reference} there is calibrated in another way.",
                hint=_ANOTHER_NAME,
            )
        return named[0]

    def _parent(self, there: Sequence[There]) -> There | None:
        """Return the target's model that is the parent; a remark says which one is not there."""
        parents = [r for r in self.relatives if r["model_id"] == self.row["parent_id"]]
        if not parents:
            return None
        parent = parents[0]
        weights = bytes(parent["weights_hash"])
        found = same_model(there, weights, parent["name"], parent["version"])
        if found is None:
            self.remarks["parent"] = f"{parent['name']}@{parent['version']}"
            self.remarks["parent_weights"] = weights.hex()
        return found

    # -- recipes --------------------------------------------------------------

    def _recipe(self) -> Row | None:
        found = self.source.rows(_Q.read_recipe, model_id=self.row["model_id"])
        return found[0] if found else None

    def _keeps_recipe(self, recipe: Row | None) -> bool:
        """Return whether the recipe alone is sent.

        Raises:
            NotReplayable: weights are not to be sent, and it cannot be followed at the target.
        """
        if self.options.weights == "always":
            return False
        obstacle = find_obstacle(self.source, self.target, self.row, recipe, data=self.options.data)
        if obstacle is None:
            return True
        if self.options.weights == "never":
            raise NotReplayable(
                f"Model {self.reference} cannot be made again there: {obstacle}.",
                hint="Let its weights be sent, or its data with data=True.",
            )
        self.remarks |= {"approach": "provenance", "because": obstacle}
        return False

    def _with_parent(self, there: Sequence[There]) -> list[There]:
        """Copy the parent that a recipe begins with, unless it is there."""
        parent_id = self.row["parent_id"]
        found = self._parent(there)
        if parent_id is not None and (found is None or found.is_dropped):
            self.remarks.clear()
            _OneCopy(self.copier, parent_id, is_asked_for=False).run()
        return self._there()

    # -- sending --------------------------------------------------------------

    def _send(self, there: Sequence[There], recipe: Row | None, keeps_recipe: bool) -> There:
        """Send tensors, then everything that names them, in one transaction."""
        before = self.copier.progress.bytes
        if self.options.data and self.row["dataset_id"] is not None:
            with self.target.transaction():
                put_dataset(self.source, self.target, self.row["dataset_id"], self.copier.progress)
            before = self.copier.progress.bytes
        parent = self._parent(there)
        states: Sequence[Row] = ()
        if recipe is not None:
            states = self.source.rows(_Q.find_recipe_states, model_id=self.row["model_id"])
        listing = Listing()
        try:
            if not keeps_recipe and self.row["manifest_id"] is None:
                listing = self._replay()
            elif not keeps_recipe:
                listing = find_listing(self.exchange, self.row, self.relatives, there)
            needs = [*listing.needs, *map(need_of, states)]
            shipments = plan(self.exchange, needs, keep_differences=self.options.keep_differences)
            send(self.exchange, shipments)
        except BadTensor as error:
            raise self._corrupt(error) from error
        self._count_skipped(before)
        with self.target.transaction():
            sent = self.copier.progress.bytes - before
            stored = self.row["stored_bytes"] if keeps_recipe else sent
            model_id = self._name(listing, parent, stored)
            if recipe is not None:
                held = self.exchange.held
                places = [(s["path"], held[bytes(s["tensor_hash"])].tensor_id) for s in states]
                put_recipe(self.target, model_id, recipe, places)
            self._put_members(model_id)
            own = f"{self.name}@{self.version}"
            put_said(self.source, self.target, self.row["model_id"], model_id, own)
            if self.copier.origin is not None:
                add_origin(self.target, model_id, self.copier.origin)
            self._check(model_id, listing)
        return There(
            model_id=model_id,
            name=self.name,
            version=self.version,
            weights_hash=bytes(self.row["weights_hash"]),
            manifest_id=None,
            approach=self.row["approach"],
            is_dropped=False,
        )

    def _replay(self) -> Listing:
        """Return the tensors that the recipe gives, already sent."""
        if self.copier.replay is None:
            raise NotReplayable(f"Of model {self.reference} the recipe is kept, not its tensors.")
        model = model_of(self.source, self.row["model_id"])
        replayed = replayed_listing(self.copier.replay, self.source, model)
        ancestors = []
        if model.parent_id is not None:
            ancestors = find_entries(self.source, model.parent_id)
        return send_replayed(self.exchange, replayed, ancestors)

    def _name(self, listing: Listing, parent: There | None, stored_bytes: int) -> int:
        """Add the model's row and the list of its tensors; return its number."""
        row = self.row
        candidate_id = dataset_id = None
        if row["candidate_id"] is not None and row["epoch"] is not None:
            candidate_id = self._put_candidate(row["candidate_id"], row["epoch"])
        if row["dataset_id"] is not None:
            dataset_id = put_dataset(self.source, self.target, row["dataset_id"]).dataset_id
        values: dict[str, Any] = {column: row[column] for column in _COPIED}
        values |= put_parts(self.source, self.target, row)
        values |= {
            "name": self.name,
            "version": self.version,
            "approach": listing.approach or row["approach"],
            "parent_id": None if parent is None else parent.model_id,
            "dataset_id": dataset_id,
            "candidate_id": candidate_id,
            "reason": self._reason(),
            "stored_bytes": stored_bytes,
        }
        return write_listing(self.exchange, listing, values)

    def _put_members(self, model_id: int) -> None:
        """Add the candidates whose mean the model is, with their runs and hops."""
        members = find_members(self.source, self.row["model_id"])
        listed = [
            (model_id, place, self._put_candidate(candidate_id, epoch), epoch)
            for place, (candidate_id, epoch) in enumerate(members)
        ]
        self.target.append(load("models").add_member, listed)

    def _put_candidate(self, candidate_id: int, epoch: int) -> int:
        return put_candidate(self.source, self.target, candidate_id, epoch)

    def _reason(self) -> str:
        reason = json.loads(self.row["reason"])
        return json.dumps(reason | ({"copied": self.remarks} if self.remarks else {}))

    def _check(self, model_id: int, listing: Listing) -> None:
        """Compare the copy's list of tensors with the model's name, where no wire lies between."""
        if self.target.engine != "duckdb" or listing.is_recipe:
            return
        entries = find_entries(self.target, model_id)
        found = weights_hash((entry, entry.tensor_hash) for entry in entries)
        if found != bytes(self.row["weights_hash"]):
            raise CorruptTensor(
                f"The tensors that arrived are not those of {self.reference}.",
                hint="Push or pull it again.",
            )

    def _count_skipped(self, before: int) -> None:
        if self.row["manifest_id"] is None:
            return
        (found,) = self.source.rows(_Q.measure_model, model_id=self.row["model_id"])
        sent = self.copier.progress.bytes - before
        self.copier.skipped_bytes += max(0, found["bytes"] - sent)

    def _corrupt(self, error: BadTensor) -> CorruptTensor:
        """Return the error that names model, path and chunk."""
        entries = find_entries(self.source, self.row["model_id"])
        paths = [entry.path for entry in entries if entry.tensor_id == error.tensor_id]
        what = f"tensor {paths[0]!r}" if paths else f"stored tensor {error.tensor_id}"
        if error.tensor_id == self.row["pack_id"]:
            what = "the pack of its small tensors"
        chunk = "" if error.ordinal is None else f", chunk {error.ordinal}"
        return CorruptTensor(f"Model {self.reference}, {what}{chunk}: {error.reason}.")


_ANOTHER_NAME = 'Pass version="next" to append it, or name= to give it another name.'
