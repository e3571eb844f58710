"""What a candidate begins with: a parent's tensors, or its seed's weights.

Parents are models of the zoo, and candidates of its run that rest or have ended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from itertools import islice
from time import perf_counter
from typing import Any

from mmdb.data.dataset import find_decoding
from mmdb.data.decoding import Decoding
from mmdb.data.functions import find_factories, find_functions
from mmdb.db.citus import find_cluster
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import ArchitectureError, StateCorrupt, StateNotFound
from mmdb.graph.match.alignment import align
from mmdb.graph.match.pack import PackedSkeleton
from mmdb.graph.spec.build import architecture_of
from mmdb.graph.spec.parse import factories_in
from mmdb.graph.trace.structure import NetworkGraph
from mmdb.store import states
from mmdb.store.models.architectures import outlined
from mmdb.store.models.model_rows import ModelDefinition, model_of
from mmdb.store.parents import Limits, ParentGoal, take_parent
from mmdb.train.compute.live import packed, state_hash, weights
from mmdb.train.ledger.run_options import SAME
from mmdb.train.replay.hop_replay import read_backbone
from mmdb.train.replay.parent_models import example_of, read_model
from mmdb.train.replay.saving import best_checkpoint, candidate_definition
from mmdb.train.values.feature_spec import base_name
from mmdb.train.values.jobs import Executor
from mmdb.train.values.spec import CandidateSpec, shape_of_json
from mmdb.train.values.warm_spec import Example, ParentForm, WarmResult, WarmSpec
from mmdb.train.warm.offers import (
    MOST_TRIES,
    OF_THE_PARENT,
    CandidateOffer,
    ModelOffer,
    Offer,
    Offers,
    rank_of,
)
from mmdb.train.warm.transfer_rows import Transferred, add_transfer, transfer_reason
from mmdb.train.warm.warm_options import WarmOptions, lr_scale, parse_warm_options

_Q = load("warm")


def offers_within(
    connection: Connection,
    row: Row,
    child: NetworkGraph,
    *,
    limits: Limits,
    factories: Mapping[str, str],
) -> list[CandidateOffer]:
    """Return the candidates of a candidate's run that could be its parents, the best ones first.

    There are no more of them than parents are tried.

    Args:
        row: of `find_candidate`.
    """
    ended = connection.rows(_Q.find_ended, run=row["run"], candidate_id=row["candidate_id"])
    if not ended:
        return []
    own = outlined(child)
    fit: list[tuple[Row, float]] = []
    for candidate in ({**row, **other} for other in ended):
        with suppress(ArchitectureError):  # it could not be built again
            alignment = align(own, _packed(candidate_definition(candidate), factories))
            if alignment.score >= limits.similarity and alignment.coverage >= limits.coverage:
                fit.append((candidate, alignment.score))
    fit.sort(
        key=lambda one: rank_of(one[1], one[0]["best_value"], maximize=row["maximize"]),
        reverse=True,  # equal ones stay in the order of their ids
    )
    offers = (_offer(connection, candidate, similarity) for candidate, similarity in fit)
    return list(islice(filter(None, offers), MOST_TRIES))


def _offer(connection: Connection, candidate: Row, similarity: float) -> CandidateOffer | None:
    """Return a candidate as an offer, None where its checkpoint is gone."""
    try:
        _, checkpoint = best_checkpoint(connection, candidate)
    except StateNotFound:
        return None
    return CandidateOffer(
        candidate_id=candidate["candidate_id"],
        part_id=checkpoint["part_id"],
        state=bytes(checkpoint["state_hash"]),
        value=candidate["best_value"],
        similarity=similarity,
        reason=_reason(candidate, candidate["best_value"], similarity),
    )


def _reason(candidate: Row, value: float | None, similarity: float) -> str:
    measured = "" if value is None else f", {candidate['metric']} {value:.4g}"
    return (
        f"candidate {candidate['candidate_id']} of the run, similarity {similarity:.2f}{measured}"
    )


def _packed(definition: ModelDefinition, factories: Mapping[str, str]) -> PackedSkeleton:
    return _packed_text(json.dumps([asdict(definition), _taken(definition, factories)]))


def _taken(definition: ModelDefinition, factories: Mapping[str, str]) -> dict[str, str]:
    names = factories_in(definition.architecture)
    return {name: factories[name] for name in names if name in factories}


@lru_cache(maxsize=1024)
def _packed_text(text: str) -> PackedSkeleton:
    """Return the outline of a definition with its factory's target, both as JSON.

    Raises:
        ArchitectureError
    """
    return outlined(_structure_of_text(text))


def read_candidate(
    connection: Connection,
    factories: Mapping[str, str],
    example: Example,
    offer: CandidateOffer,
) -> tuple[ParentForm, bytes]:
    """Return a candidate as a parent, and its state.

    Raises:
        StateNotFound: the checkpoint has been pruned meanwhile.
        StateCorrupt
    """
    (row,) = connection.rows(load("hops").find_candidate, candidate_id=offer.candidate_id)
    name = offer.state.hex()
    state = states.read_checkpoint(connection, offer.part_id, offer.candidate_id, name)
    if state is None:
        raise StateNotFound(f"The state {name[:12]} of {offer.name} has just been replaced.")
    if state_hash(state) != offer.state:
        raise StateCorrupt(f"A checkpoint of {offer.name} is damaged.")
    spec = CandidateSpec.from_row(row, factories).over(state)
    if spec.base is not None:
        state = packed({**weights(read_backbone(connection, spec)), **weights(state)})
    form = ParentForm(
        reference=offer.name,
        definition=candidate_definition(row),
        factories=factories,
        examples=(example,),
    )
    return form, state


@dataclass(frozen=True, slots=True, kw_only=True)
class _Child:
    """A candidate that is to begin, and what could be its parents."""

    row: Row  # of `find_candidate`
    part_id: int
    spec: CandidateSpec
    decoding: Decoding
    example: Example
    options: WarmOptions
    offers: Offers

    @property
    def candidate_id(self) -> int:
        return self.spec.candidate_id


class Beginner:
    """Decides what candidates begin with, over one connection, in the caller's transaction."""

    def __init__(self, connection: Connection, executor: Executor) -> None:
        self._connection, self._executor = connection, executor

    def begin(self, row: Row, part_id: int) -> None:
        """Settle what a candidate begins with, and write it down.

        Args:
            row: of `find_candidate`.
            part_id: the partition whose node is to keep the state.
        """
        child = self._child(row, part_id)
        for _ in range(MOST_TRIES):
            offer = child.offers.best()
            if offer is None:
                break
            if self._try(child, offer):
                return
        self._add_warm_start(child, child.offers.reason)

    def _child(self, row: Row, part_id: int) -> _Child:
        connection = self._connection
        given = json.loads(row["options"]).get("warm_start")
        options = parse_warm_options(given, row["warm_start"])
        factories = find_factories(connection)
        spec = CandidateSpec.from_row(row, factories, find_functions(connection))
        decoding = find_decoding(connection, row["dataset_id"])
        structure = _structure(row, factories)
        goal = ParentGoal(
            task=row["task"],
            dataset_id=row["dataset_id"],
            metric=row["metric"],
            maximize=row["maximize"],
        )
        return _Child(
            row=row,
            part_id=part_id,
            spec=spec,
            decoding=decoding,
            example=example_of(decoding),
            options=options,
            offers=Offers(
                connection,
                structure,
                goal,
                options,
                parent=row["warm_start"],
                dataset=row["dataset"],
                within=partial(self._within, row, structure, options, factories),
            ),
        )

    def _within(
        self, row: Row, child: NetworkGraph, options: WarmOptions, factories: dict[str, str]
    ) -> list[CandidateOffer]:
        if not options.within_run:
            return []

        limits = options.limits
        return offers_within(self._connection, row, child, limits=limits, factories=factories)

    # -- trying one parent ---------------------------------------------------------

    def _try(self, child: _Child, offer: Offer) -> bool:
        """Begin the candidate with a parent, if that can be."""
        started = perf_counter()
        try:
            resumed = self._resumed(child, offer)
            result, state = self._make(child, offer, resumed)
            refused = result.refused or child.offers.too_little(
                offer, result.coverage, result.reasons
            )
            if refused is None and isinstance(offer, ModelOffer):
                take_parent(self._connection, offer.chosen)
        except OF_THE_PARENT as error:
            result, state, refused = WarmResult(), b"", error.message
        if refused is not None:
            child.offers.pass_over(offer, refused, is_final=result.is_final)
            return False
        if child.options.optimizer:
            lacking = "no state that fits is kept"
            why = lacking if resumed is None else "weights or optimizer are others"
            told = "goes on" if result.resumes else f"begins anew: {why}"
            result = replace(result, notes=(*result.notes, f"the optimizer {told}"))
        parent_state = state_hash(resumed) if resumed is not None and result.resumes else None
        self._write(child, offer, result, state, perf_counter() - started, parent_state)
        return True

    def _resumed(self, child: _Child, offer: Offer) -> bytes | None:
        """Return the state that a model was saved from; None if it is gone, or not asked for."""
        if not child.options.optimizer or not isinstance(offer, ModelOffer):
            return None
        connection, model = self._connection, model_of(self._connection, offer.chosen.model_id)
        if model.candidate_id is None:
            return None
        (row,) = connection.rows(load("hops").find_candidate, candidate_id=model.candidate_id)
        kept = states.checkpoints(connection, model.candidate_id)
        places = [one for one in kept if one["epoch"] == model.epoch]
        if not places or candidate_definition(row) != candidate_definition(child.row):
            return None
        name = bytes(places[-1]["state_hash"])
        place = (places[-1]["part_id"], model.candidate_id, name.hex())
        state = states.read_checkpoint(connection, *place)
        return state if state is not None and state_hash(state) == name else None

    def _make(self, child: _Child, offer: Offer, resumed: bytes | None) -> tuple[WarmResult, bytes]:
        connection, factories, base = self._connection, child.spec.factories, None
        if isinstance(offer, ModelOffer):
            model_id, follow = offer.chosen.model_id, self._executor.follow
            if _may_share(child.row) and find_cluster(connection) is None:
                base = model_of(connection, model_id).weights_hash.hex()
            is_held = base is not None and self._executor.has_backbone(base_name(base))
            form, tensors = read_model(
                connection,
                factories,
                model_id,
                decoding=child.decoding,
                follow=follow,
                is_held=is_held,
            )
        else:
            form, tensors = read_candidate(connection, factories, child.example, offer)
        spec = WarmSpec(
            candidate=child.spec,
            example=child.example,
            parent=form,
            shrink=child.options.shrink,
            base=base,
        )
        payload = (tensors,) if resumed is None else (tensors, resumed)
        result, state = self._executor.compute(spec, payload)
        assert state is not None
        return result, state

    # -- writing it down -----------------------------------------------------------

    def _write(
        self,
        child: _Child,
        offer: Offer,
        result: WarmResult,
        state: bytes,
        seconds: float,
        parent_state: bytes | None,
    ) -> None:
        """Write what was carried over, and the state as a checkpoint that is kept.

        Args:
            parent_state: hash of the state of a model whose optimizer goes on.
        """
        of_run = offer if isinstance(offer, CandidateOffer) else None
        transferred = Transferred(
            parent=offer.name,
            model_id=offer.chosen.model_id if isinstance(offer, ModelOffer) else None,
            similarity=offer.similarity or result.similarity,
            coverage=result.coverage,
            exact=result.exact,
            reason=transfer_reason(
                offer.reason, result.exact, result.reasons, result.notes, child.offers.reason
            ),
            tensors=result.origins,
            seed=child.spec.seed,
            shrink=child.options.shrink,
            match_s=child.offers.match_s,
            transfer_s=seconds,
        )
        transfer_id = add_transfer(
            self._connection,
            transferred,
            candidate_id=child.candidate_id,
            parent_candidate_id=of_run.candidate_id if of_run else None,
            parent_state=of_run.state if of_run else parent_state,
        )
        name = state_hash(state)
        place = (self._connection, child.part_id, child.candidate_id)
        states.write_checkpoint(*place, -1, name.hex(), state)
        self._add_warm_start(
            child,
            transferred.reason,
            transfer_id=transfer_id,
            state_hash=name,
            lr_scale=lr_scale(result.coverage) if child.options.lr_epochs else 1.0,
            lr_epochs=child.options.lr_epochs,
        )

    def _add_warm_start(self, child: _Child, reason: str, **columns: Any) -> None:
        fresh = {"transfer_id": None, "state_hash": None, "lr_scale": 1.0, "lr_epochs": 0}
        self._connection.run(
            _Q.add_warm_start,
            candidate_id=child.candidate_id,
            reason=reason,
            match_s=child.offers.match_s,
            **(fresh | columns),
        )


def _may_share(row: Row) -> bool:
    """Return whether the states of a candidate may leave out what its parent has: where sessions
    hand them on to each other as they are, and can read the parent."""
    return "adapted" in json.loads(row["architecture"]) and row["strategy"] in SAME


def _structure(row: Row, factories: dict[str, str]) -> NetworkGraph:
    definition = candidate_definition(row)
    return _structure_of_text(json.dumps([asdict(definition), _taken(definition, factories)]))


@lru_cache(maxsize=16)
def _structure_of_text(text: str) -> NetworkGraph:
    """Return the structure of a definition with its factories' targets, both as JSON.

    Raises:
        ArchitectureError
    """
    raw, factories = json.loads(text)
    return architecture_of(
        raw["architecture"],
        raw["arguments"],
        shape_of_json(raw["input_shape"]),
        raw["outputs"],
        factories,
    )
