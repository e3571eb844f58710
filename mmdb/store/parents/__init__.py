"""The zoo: which models are offered as parents of a warm start, and which one fits a child.

The zoo is made of the models that are not dropped, have an architecture that was followed, and were
neither refused nor evicted (mmdb.zoo_event).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from mmdb.db.connection import Connection
from mmdb.graph.trace.structure import NetworkGraph
from mmdb.store.parents.choice import Limits, ParentChoice, ParentGoal, ParentMatch

if TYPE_CHECKING:
    from mmdb.store.parents.choice import Sample

__all__ = ["Limits", "ParentChoice", "ParentGoal", "ParentMatch", "choose_parent", "take_parent"]


def choose_parent(
    connection: Connection,
    child: NetworkGraph,
    goal: ParentGoal | None = None,
    *,
    parent: str | None = None,
    k: int = 10,
    limits: Limits | None = None,
    excluded: Collection[int] = (),
    sample: Sample | None = None,
) -> ParentChoice:
    """Return the model to begin a child with, or why there is none; only outlines are written.

    Models of the goal's dataset and metric come first, then those of its task, then others. Among
    them the similarity decides by buckets of 0.05, and within a bucket the metric. What is below
    the limits, is known to be an outlier, has learned nothing or has weights that are no numbers is
    refused. The same zoo gives the same answer on both engines.

    Args:
        child: as `trace` or `architecture_of` returns it.
        goal: what it is to be trained for.
        parent: `name`, `name@version` or `name@alias`: look at this model alone, in the zoo or not;
            it is the parent unless it has nothing to give or weights that are no numbers.
        k: how many candidates to return at most.
        excluded: model_ids that are not wanted.
        sample: rows of the dataset, by which LogME ranks the five best anew.
    Raises:
        ModelNotFound: there is no such `parent`.
        DefinitionMissing: the architecture of that `parent` is not known.
        ArchitectureError: the child has more than 50,000 nodes.
    """
    from mmdb.store.parents.choosing import choose  # loads numba

    return choose(
        connection,
        child,
        goal or ParentGoal(),
        parent=parent,
        k=k,
        limits=limits or Limits(),
        excluded=excluded,
        sample=sample,
    )


def take_parent(connection: Connection, chosen: ParentMatch) -> None:
    """Note in the zoo that a model becomes a parent; it cannot be dropped until the end of the
    transaction, in which its tensors are to be read and the transfer is to be written.

    Raises:
        ModelNotFound: it has been dropped since it was chosen.
    """
    from mmdb.store.parents.judging import take

    take(connection, chosen)
