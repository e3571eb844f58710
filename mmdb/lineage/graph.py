"""The lineage graph: neighbours from the views `lineage_*`, and the walk over them by level."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from mmdb.db.connection import Connection
from mmdb.db.queries import Query, load
from mmdb.errors import InvalidOption
from mmdb.lineage.entity import join, kind_of, numbers, split

Direction = Literal["up", "down"]

#: Edges after which a walk gives up: nobody reads so many, and they take a gigabyte.
MOST_EDGES = 1_000_000


class Edge(NamedTuple):
    """The child came from the parent; both are texts of `mmdb.lineage.entity`."""

    parent: str
    child: str
    via: str


class Step(NamedTuple):
    """One edge of an answer; `kind` is that of the end which is farther from the start."""

    depth: int
    kind: str
    parent: str
    child: str
    via: str


#: Given nodes of one kind: their edges in the direction of the walk, in any order, also repeated.
Neighbours = Callable[[str, Sequence[str]], Iterable[Edge]]


def walk(
    start: str,
    direction: Direction,
    neighbours: Neighbours,
    *,
    max_depth: int | None = None,
    most_edges: int = MOST_EDGES,
) -> list[Step]:
    """Return every edge that can be reached from `start`, once, at its least depth.

    Each node is looked at once, so that cycles end: a table of predictions may feed a dataset.

    Returns:
        Steps in the order of their fields; texts by code point, which no collation changes.
    Raises:
        InvalidOption: there are more than `most_edges`.
    """
    seen, found = {start}, set()
    steps: list[Step] = []
    level, depth = [start], 0
    while level and (max_depth is None or depth < max_depth):
        depth += 1
        reached: list[str] = []
        for kind, nodes in _by_kind(level):
            for edge in neighbours(kind, nodes):
                if edge in found:
                    continue
                found.add(edge)
                far = edge.child if direction == "down" else edge.parent
                steps.append(Step(depth, kind_of(far), *edge))
                if far not in seen:
                    seen.add(far)
                    reached.append(far)
            if len(steps) > most_edges:
                raise InvalidOption(
                    f"The lineage of {start} has more than {most_edges:,} edges.",
                    hint="Set max_depth, or hops => false.",
                )
        level = reached
    return sorted(steps)


def _by_kind(nodes: Iterable[str]) -> Iterable[tuple[str, list[str]]]:
    groups: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        groups[kind_of(node)].append(node)
    return groups.items()


_Q = load("lineage")

#: Levels of models that are read one by one, before all levels of numbers near by are read at once:
#: those of a long chain mostly are.
_LEVELS = {"postgres": 8, "duckdb": 0}
#: How many numbers are near by: DuckDB, which has no use for an index here, scans all for one.
_NEAR = {"postgres": 2_000, "duckdb": 20_000}
#: Levels after which that is done where the numbers are far apart as well, and how often.
_MOST_LEVELS, _MOST_LEAPS = 64, 50

#: How a state comes from the one before where hops are not shown.
_FOLDED = "train"


class Graph:
    """Edges in one direction, as `walk` asks for them.

    Args:
        hops: show partitions and hops; else a state follows upon its candidate, or upon the state
            before of which something was made, and candidates of which nothing was made are left
            out on the way down.
    """

    def __init__(self, connection: Connection, direction: Direction, *, hops: bool) -> None:
        self._connection = connection
        self._down = direction == "down"
        self._hops = hops
        self._edges: dict[str, list[Edge]] = {}  # of a node that is here, all
        self._ids: dict[str, int] = {}  # of models, runs and datasets
        self._made: dict[int, list[Edge]] = {}  # from a candidate's states, where hops are hidden
        self._near = _NEAR[connection.engine]
        self._model_levels = self._leaps = 0
        self._models: set[int] = set()  # whose edges are here

    def know(self, node: str, number: int | None) -> None:
        """Tell the number of a node that has a name."""
        if number is not None:
            self._ids[node] = number

    def neighbours(self, kind: str, nodes: Sequence[str]) -> Iterator[Edge]:
        """Yield the edges of nodes of one kind."""
        unknown = [node for node in nodes if node not in self._edges]
        if unknown:
            self._keep(unknown, self._read(kind, unknown))
        for node in nodes:
            yield from self._edges[node]

    def _keep(self, asked: Sequence[str], edges: Iterable[Edge]) -> None:
        found: dict[str, list[Edge]] = defaultdict(list)
        for edge in edges:
            found[edge.parent if self._down else edge.child].append(edge)
        for node in asked:
            self._edges[node] = found[node]
        for node, of_node in found.items():
            self._edges.setdefault(node, of_node)

    def _read(self, kind: str, nodes: Sequence[str]) -> Iterable[Edge]:
        match kind:
            case "table" | "column":
                return self._read_names(kind, nodes)
            case "dataset" | "run":
                return self._read_ids(kind, nodes)
            case "model":
                return self._read_models(nodes)
            case "file" | "database":
                names = list(nodes)
                return self._taken(_Q.outside_down, names=names) if self._down else []
            case "partition":
                query = _Q.partition_down if self._down else _Q.partition_up
                return self._taken(query, ids=sorted(numbers(node)[0] for node in nodes))
            case "feature":
                return self._read_features(sorted(numbers(node)[0] for node in nodes))
            case "candidate" | "checkpoint" | "hop":
                return self._read_candidates(kind, nodes)
        return []  # what could not be resolved came from nowhere

    def _taken(self, query: Query, **parameters: object) -> list[Edge]:
        far = "child" if self._down else "parent"
        edges = []
        for row in self._connection.rows(query, **parameters):
            if row["far_id"] is not None:
                self._ids[row[far]] = row["far_id"]
            edges.append(Edge(row["parent"], row["child"], row["via"]))
        return edges

    def _read_names(self, kind: str, nodes: Sequence[str]) -> list[Edge]:
        parts = [part for node in nodes if (part := split(node.partition(":")[2]))]
        if kind == "table":
            query = _Q.table_down if self._down else _Q.table_up
            return self._taken(query, tables=sorted({part[-1] for part in parts}))
        if not self._down:
            return [
                Edge(join("table", part[:-1]), join("column", part), "column") for part in parts
            ]
        tables, columns = ({part[place] for part in parts} for place in (-2, -1))
        return self._taken(_Q.column_down, tables=sorted(tables), columns=sorted(columns))

    def _read_ids(self, kind: str, nodes: Sequence[str]) -> list[Edge]:
        ids = sorted(self._ids[node] for node in nodes)
        if not self._down:
            return self._taken(_Q.dataset_up if kind == "dataset" else _Q.run_up, ids=ids)
        if kind == "run":
            if self._hops:
                return self._taken(_Q.run_down, ids=ids)
            return self._read_made(_Q.run_saved, ids)
        edges = self._taken(_Q.dataset_down, ids=ids)
        return edges + self._taken(_Q.dataset_partitions, ids=ids) if self._hops else edges

    def _read_models(self, nodes: Sequence[str]) -> list[Edge]:
        self._model_levels += 1
        models = {self._ids[node] for node in nodes} - self._models
        if not models:
            return []
        if self._goes_far(models):
            models = self._reached(models)
        self._models |= models
        return self._taken(_Q.model_down if self._down else _Q.model_up, ids=sorted(models))

    def _goes_far(self, models: set[int]) -> bool:
        is_near = max(models) - min(models) <= self._near
        levels = _LEVELS[self._connection.engine] if is_near else _MOST_LEVELS
        return self._model_levels > levels and self._leaps < _MOST_LEAPS

    def _reached(self, models: set[int]) -> set[int]:
        """Return models and those that they lead to over models of numbers near by."""
        self._leaps += 1
        # What was made of a model was saved after it, and has a higher number.
        low = min(models) if self._down else max(models) - self._near
        query = _Q.heirs if self._down else _Q.origins
        next_to: dict[int, list[int]] = defaultdict(list)
        for row in self._connection.rows(query, low=low, high=low + self._near):
            next_to[row["near_id"]].append(row["far_id"])
        reached, left = set(models), list(models)
        while left:
            fresh = set(next_to[left.pop()]) - reached - self._models
            reached |= fresh
            left += fresh
        return reached

    def _read_features(self, ids: Sequence[int]) -> list[Edge]:
        if not self._down:
            return self._taken(_Q.feature_up, ids=ids)
        if self._hops:
            return self._taken(_Q.feature_down, ids=ids)
        return self._read_made(_Q.feature_saved, ids)

    def _read_made(self, query: Query, ids: Sequence[int]) -> list[Edge]:
        """Return the edges to candidates from which models were saved; keep the edges to those."""
        edges = []
        fresh: dict[int, list[Edge]] = {}
        for row in self._connection.rows(query, ids=ids):
            edges.append(Edge(row["parent"], row["child"], row["via"]))
            self._ids[row["made"]] = row["far_id"]
            made = fresh.setdefault(numbers(row["child"])[0], [])
            made.append(Edge(row["state"], row["made"], row["made_via"]))
        self._made |= fresh  # all of a candidate, which a run and features both lead to
        return edges

    def _read_candidates(self, kind: str, nodes: Sequence[str]) -> list[Edge]:
        ids = sorted({numbers(node)[0] for node in nodes})
        if kind == "hop" and not self._hops:  # where the walk begins
            near = "parent" if self._down else "child"
            edges = self._taken(_Q.hops_down if self._down else _Q.hops_up, ids=ids)
            return [edge for edge in edges if getattr(edge, near) in nodes]
        if self._hops:
            begun, states = (
                (_Q.candidate_down, _Q.hops_down) if self._down else (_Q.candidate_up, _Q.hops_up)
            )
            return self._taken(begun, ids=ids) + self._taken(states, ids=ids)
        made = self._made_of(ids)
        next_to = made if self._down else self._taken(_Q.candidate_up, ids=ids)
        return [*next_to, *_folded(made, nodes)]

    def _made_of(self, ids: Sequence[int]) -> list[Edge]:
        edges = [edge for candidate in ids for edge in self._made.get(candidate, ())]
        left = [candidate for candidate in ids if candidate not in self._made]
        return edges + self._taken(_Q.candidate_down, ids=left) if left else edges


def _folded(made: Iterable[Edge], nodes: Iterable[str]) -> Iterator[Edge]:
    """Yield edges from candidates to their states, in the order of epochs, without their hops.

    Args:
        made: edges from the states of which something was made.
        nodes: states that are shown as well.
    """
    states = {edge.parent for edge in made} | set(nodes)
    epochs: dict[int, set[int]] = defaultdict(set)
    for state in states:
        if state.startswith("checkpoint:"):
            candidate, epoch = numbers(state)
            epochs[candidate].add(epoch)
    for candidate, of_candidate in epochs.items():
        before = f"candidate:{candidate}"
        for epoch in sorted(of_candidate):
            state = f"checkpoint:{candidate}/{epoch}"
            yield Edge(before, state, _FOLDED)
            before = state
