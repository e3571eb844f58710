"""Which model was made from which, as far as their weights can say. Pure.

Training moves weights a little, so that a model is nearest to the one that it was made from. It
also makes the tails of their distribution heavier or lighter, which tells the parent from the
child. As in MoTHer (Horwitz, Shul, Hoshen: "Unsupervised Model Tree Heritage Recovery", ICLR 2025)
the tree is the minimum spanning arborescence over the distances, where an edge against the kurtosis
costs more.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

Key = tuple[str, tuple[int, ...]]  # path and shape
#: Rows of the weights of a model, (rows, columns) each, as `sample_place` chooses them.
Sample = Mapping[Key, NDArray[np.float32]]

#: Of one model: so many of its largest weights, and of each a few rows, no more than these numbers.
TENSORS, _NUMBERS, _COLUMNS = 8, 32768, 2048
_LEAST_ROWS, _MOST_ROWS = 16, 128
#: Models below this similarity are not related. Of unrelated networks it is below 0.1, of a network
#: and one that was fine-tuned from it above 0.5.
RELATED = 0.2
#: Of each model only so many neighbours can be its parent or its child.
_NEIGHBOURS = 16
#: Directions in which a difference is largest and which do not count: all models that are trained
#: on from one parent move along a few common ones, and seem nearer to each other than to it.
_COMMON = 2
_LEAST_DIRECTIONS = 8  # of a weight; of fewer all count
#: What an edge against the kurtosis costs more, as a share of its distance.
_AGAINST = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinship:
    """What is suggested of one model; models are numbered as they were given.

    Attributes:
        parent: None where it is the root of its family, or has none.
        similarity: to the parent: correlation of the sampled weights; 1 where all are equal.
    """

    child: int
    parent: int | None
    similarity: float | None


def sample_place(key: Key) -> tuple[int, int, int]:
    """Return first row, last row + 1 and columns of the part of a weight that is compared.

    The place is drawn by path and shape alone, so that it is the same in all models.
    """
    _, shape = key
    rows, columns = shape[0], int(np.prod(shape[1:], dtype=np.int64))
    count = min(rows, _MOST_ROWS, max(_LEAST_ROWS, _NUMBERS // max(1, columns)))
    first = zlib.crc32(repr(key).encode()) % (rows - count + 1)
    return first, first + count, min(columns, _COLUMNS)


def similarities(models: Sequence[Sample]) -> NDArray[np.float64]:
    """Return how alike the weights of each two models are, (n, n), from -1 to 1.

    It is 2 a·b / (a·a + b·b) over the weights of the same path and shape, each less its mean; 0
    where two models have none.
    """
    products, squares = np.zeros((2, len(models), len(models)))
    holders: dict[Key, list[int]] = {}
    for place, model in enumerate(models):
        for key in model:
            holders.setdefault(key, []).append(place)
    for key, places in holders.items():
        rows = np.stack([_centred(models[place][key]).ravel() for place in places])
        found = rows @ rows.T
        among = np.ix_(places, places)
        products[among] += found
        squares[among] += np.add.outer(found.diagonal(), found.diagonal())
    return np.divide(2 * products, squares, out=np.zeros_like(products), where=squares > 0)


def suggest_parents(
    models: Sequence[Sample], known: Mapping[int, int | None] | None = None
) -> list[Kinship]:
    """Return the likely parent of each model whose lineage is not known.

    Args:
        models: the oldest first: of two with the same weights the older one is the parent.
        known: of models with lineage: the parent, or None where it is not among the models.
    """
    known = known or {}
    alike = similarities(models)
    near = _neighbours(alike)
    found = []
    for family in nx.connected_components(near):
        tree = _tree(models, near.subgraph(family), known)
        for child in family - known.keys():
            parent = tree.get(child)
            similarity = None if parent is None else float(alike[child, parent])
            found.append(Kinship(child=child, parent=parent, similarity=similarity))
    return sorted(found, key=lambda one: one.child)


def _neighbours(alike: NDArray[np.float64]) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(range(len(alike)))
    for place, row in enumerate(alike):
        nearest = np.argsort(-row, kind="stable")[: _NEIGHBOURS + 1]
        graph.add_edges_from((place, int(k)) for k in nearest if k != place and row[k] > RELATED)
    return graph


def _tree(
    models: Sequence[Sample], near: nx.Graph, known: Mapping[int, int | None]
) -> dict[int, int]:
    """Return the parents of a family's models; its root has none, as some with known lineage."""
    members = sorted(near)
    keys = set.intersection(*(set(models[place]) for place in members))
    tails = {place: _tails(models[place], keys) for place in members}
    sign = _sign(tails, known)
    edges = nx.DiGraph()
    lengths = {
        (a, b): distance(models[a], models[b], keys or models[a].keys() & models[b].keys())
        for a, b in near.edges
    }
    for (a, b), length in lengths.items():
        for parent, child in ((a, b), (b, a)):
            if child not in known:
                grown = sign * (tails[child] - tails[parent])
                is_against = grown < 0 or (grown == 0 and child < parent)
                edges.add_edge(parent, child, weight=length * (1 + _AGAINST * is_against))
    for child, parent in known.items():
        if child in near and parent in near:
            edges.add_edge(parent, child, weight=0.0)
    root = -1  # of all that have no parent here; an edge from it costs more than any tree
    beyond = 1 + 2 * sum(lengths.values())
    edges.add_weighted_edges_from((root, place, beyond) for place in members)
    chosen = nx.minimum_spanning_arborescence(edges)
    return {child: parent for parent, child in chosen.edges if parent != root}


def _tails(model: Sample, keys: set[Key]) -> float:
    """Return the sum of the kurtosis of a model's weights."""
    total = 0.0
    for key in sorted(keys):
        values = _centred(model[key])
        spread = float(np.mean(values**2))
        total += float(np.mean(values**4)) / spread**2 if spread > 0 else 0.0
    return total


def _sign(tails: Mapping[int, float], known: Mapping[int, int | None]) -> int:
    """Return whether training makes tails heavier (1) or lighter (-1): as where it is known.

    They become heavier in networks trained from random weights; of large networks after long
    training MoTHer reports the opposite.
    """
    grown = [
        np.sign(tails[child] - tails[parent])
        for child, parent in known.items()
        if child in tails and parent is not None and parent in tails
    ]
    return -1 if sum(grown) < 0 else 1


def distance(a: Sample, b: Sample, keys: set[Key]) -> float:
    """Return the root of the mean square of b - a, without its `_COMMON` largest directions."""
    total, count = 0.0, 0
    for key in sorted(keys):
        step = a[key].astype(np.float64) - b[key]
        small = step if len(step) <= step.shape[1] else step.T
        squares = np.linalg.eigvalsh(small @ small.T)  # ascending, of each direction
        kept = squares[:-_COMMON] if len(squares) >= _LEAST_DIRECTIONS else squares
        total += max(0.0, float(kept.sum()))
        count += step.size
    return float(np.sqrt(total / max(1, count)))


def _centred(values: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = values.astype(np.float64)
    found: NDArray[np.float64] = wide - wide.mean()
    return found
