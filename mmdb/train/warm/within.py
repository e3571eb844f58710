"""Candidates of the same run as parents: those that rest or have ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from itertools import islice

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import ArchitectureError, StateNotFound
from mmdb.graph.match.alignment import align
from mmdb.graph.match.pack import PackedSkeleton
from mmdb.graph.spec.build import architecture_of
from mmdb.graph.spec.parse import factories_in
from mmdb.graph.trace.structure import Architecture
from mmdb.store.models import Definition
from mmdb.store.parents import Limits
from mmdb.store.parents.outlines import outlined
from mmdb.train.recipe.save import best_checkpoint, candidate_definition
from mmdb.train.spec import shape_of_json
from mmdb.train.warm.offers import MOST_TRIES, CandidateOffer, rank_of

_Q = load("warm")


def offers_within(
    connection: Connection,
    row: Row,
    child: Architecture,
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


def _packed(definition: Definition, factories: Mapping[str, str]) -> PackedSkeleton:
    taken = {name: factories.get(name) for name in factories_in(definition.architecture)}
    return _packed_text(json.dumps([asdict(definition), taken]))


@lru_cache(maxsize=1024)
def _packed_text(text: str) -> PackedSkeleton:
    """Return the outline of a definition with its factory's target, both as JSON.

    Raises:
        ArchitectureError
    """
    raw, factories = json.loads(text)
    return outlined(
        architecture_of(
            raw["architecture"],
            raw["arguments"],
            shape_of_json(raw["input_shape"]),
            raw["outputs"],
            factories,
        )
    )
