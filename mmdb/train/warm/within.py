"""Candidates of the same run as parents: those that rest or have ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache

from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import StateNotFound
from mmdb.graph.match.align import align
from mmdb.graph.match.pack import Packed
from mmdb.graph.structure import Structure
from mmdb.graph.trace import structure_of
from mmdb.store.models import Definition
from mmdb.store.parents import Limits
from mmdb.store.parents.outlines import outlined
from mmdb.train.recipe.save import best_checkpoint, candidate_definition
from mmdb.train.spec import shape_of_json
from mmdb.train.warm.offers import CandidateOffer

_Q = load("warm")


def offers_within(
    connection: Connection,
    row: Row,
    child: Structure,
    *,
    limits: Limits,
    factories: Mapping[str, str],
) -> list[CandidateOffer]:
    """Return the candidates of a candidate's run that could be its parents, by their ids.

    Args:
        row: of `find_candidate`.
    """
    ended = connection.rows(_Q.find_ended, run=row["run"], candidate_id=row["candidate_id"])
    if not ended:
        return []
    own = outlined(child)
    found = []
    for other in ended:
        (candidate,) = connection.rows(
            load("hops").find_candidate, candidate_id=other["candidate_id"]
        )
        alignment = align(own, _packed(candidate_definition(candidate), factories))
        if alignment.score < limits.similarity or alignment.coverage < limits.coverage:
            continue
        try:
            _, checkpoint = best_checkpoint(connection, candidate)
        except StateNotFound:
            continue
        found.append(
            CandidateOffer(
                candidate_id=other["candidate_id"],
                part_id=checkpoint["part_id"],
                state=bytes(checkpoint["state_hash"]),
                value=other["best_value"],
                similarity=alignment.score,
                reason=_reason(candidate, other["best_value"], alignment.score),
            )
        )
    return found


def _reason(candidate: Row, value: float | None, similarity: float) -> str:
    measured = "" if value is None else f", {candidate['metric']} {value:.4g}"
    return (
        f"candidate {candidate['candidate_id']} of the run, similarity {similarity:.2f}{measured}"
    )


def _packed(definition: Definition, factories: Mapping[str, str]) -> Packed:
    name = definition.architecture.get("factory")
    return _packed_text(json.dumps([asdict(definition), {name: factories.get(str(name))}]))


@lru_cache(maxsize=64)
def _packed_text(text: str) -> Packed:
    """Return the outline of a definition with its factory's target, both as JSON.

    Raises:
        ArchitectureError
    """
    raw, factories = json.loads(text)
    return outlined(
        structure_of(
            raw["architecture"],
            raw["arguments"],
            shape_of_json(raw["input_shape"]),
            raw["outputs"],
            factories,
        )
    )
