"""Steps of a lineage as a graph that people can take in: many alike are one node. Pure.

The hops of an epoch are one node, and so are epochs that nothing else came of, and the columns of a
table, partitions or candidates that have the same neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mmdb.lineage.entity import split

#: (parent, child, via), the first two as `lineage` names entities.
LineageEdge = tuple[str, str, str]
#: Nodes of a kind with the same neighbours from which on they are one, in the order in which they
#: are joined; and names of edges that are shown.
ALIKE = {"hop": 4, "partition": 2, "column": 3, "candidate": 4, "checkpoint": 4, "model": 4,
         "feature": 4, "file": 4, "table": 4}  # fmt: skip
VIAS = 4
#: Nodes that are drawn; those farthest from the subject are left out.
NODES = 300
#: Kinds of nodes, from what data comes in as to what comes out.
KINDS = ("database", "file", "table", "column", "dataset", "partition", "feature", "run",
         "candidate", "hop", "checkpoint", "model")  # fmt: skip


@dataclass(frozen=True, slots=True)
class LineageNode:
    """One entity, or many of a kind."""

    key: str  # the entity's text; of many, that of the first of them
    kind: str
    name: str
    more: str = ""  # what it is, and of what
    members: tuple[str, ...] = ()  # entities, where it stands for many
    is_subject: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageGraph:
    """Nodes, parents before children as far as the steps had them so, and edges between them."""

    nodes: tuple[LineageNode, ...]
    edges: tuple[LineageEdge, ...]
    left_out: int = 0  # nodes beyond NODES


def graph_of(edges: Iterable[LineageEdge], subject: str, most: int = NODES) -> LineageGraph:
    """Return the graph of a lineage's edges, the nearest to the subject first.

    Args:
        edges: of both directions, in any order; repeated ones count once.
        subject: the entity whose lineage it is; never folded.
    """
    folding = _Folding(edges, subject)
    folding.join(_epoch_of, least=2)
    folding.join_epochs()
    for kind, least in ALIKE.items():
        folding.join_alike(kind, least)
    near = folding.nearest(most)
    nodes = [folding.node(key) for key in folding.keys() if key in near]
    kept = [edge for edge in folding.edges if edge[0] in near and edge[1] in near]
    return LineageGraph(
        nodes=tuple(sorted(nodes, key=lambda node: KINDS.index(node.kind))),
        edges=tuple(kept),
        left_out=len(folding.keys()) - len(near),
    )


def kind_of(entity: str) -> str:
    """Return an entity's kind.

    >>> kind_of("column:public.orders.total"), kind_of("hop:17/3/12")
    ('column', 'hop')
    """
    kind = entity.partition(":")[0]
    return kind if kind in KINDS else "table"


@dataclass(slots=True)
class _Folding:
    """A graph whose nodes are joined step by step; a node's key is its first member."""

    edges: list[LineageEdge]
    subject: str
    members: dict[str, list[str]] = field(default_factory=dict)

    def __init__(self, edges: Iterable[LineageEdge], subject: str) -> None:
        self.edges = list(dict.fromkeys(edge for edge in edges if edge[0] != edge[1]))
        self.subject = subject
        ends = dict.fromkeys([subject, *(end for edge in self.edges for end in edge[:2])])
        self.members = {end: [end] for end in ends}

    def keys(self) -> list[str]:
        return list(self.members)

    def join(self, group_of: Callable[[str], str | None], least: int) -> None:
        """Join the nodes of each group that has so many."""
        groups: dict[str, list[str]] = {}
        for key in self.members:
            group = group_of(key)
            if group is not None and key != self.subject:
                groups.setdefault(group, []).append(key)
        self._merge([some for some in groups.values() if len(some) >= least])

    def join_epochs(self) -> None:
        """Join epochs of a candidate between which there is nothing but their checkpoints."""
        parents, children = self._neighbours()
        groups: dict[str, list[str]] = {}
        at: dict[str, str] = {}  # the group's first node, by the checkpoint that it may go on from
        for key in sorted((k for k in self.members if kind_of(k) == "hop"), key=_numbers):
            if key == self.subject:
                continue
            into = [p for p in parents[key] if p in at and children[p] == {key}]
            first = at[into[0]] if len(into) == 1 else key
            groups.setdefault(first, []).extend([*into, key] if first != key else [key])
            out = children[key]
            if len(out) == 1 and parents[next(iter(out))] == {key}:
                (checkpoint,) = out
                if kind_of(checkpoint) == "checkpoint" and checkpoint != self.subject:
                    at[checkpoint] = first
        self._merge([some for some in groups.values() if len(some) > 1])

    def join_alike(self, kind: str, least: int) -> None:
        """Join nodes of a kind that have the same parents and children, where there are so many."""
        parents, children = self._neighbours()

        def group_of(key: str) -> str | None:
            if kind_of(key) != kind:
                return None
            of = ".".join(_parts(key.partition(":")[2])[:-1]) if kind == "column" else ""
            return repr((of, sorted(parents[key]), sorted(children[key])))

        self.join(group_of, least)

    def nearest(self, most: int) -> set[str]:
        """Return the nodes fewest edges away from the subject."""
        parents, children = self._neighbours()
        found = {self.subject: None}
        queue = [self.subject]
        for key in queue:  # grows while it is read
            for other in (*sorted(parents[key]), *sorted(children[key])):
                if other not in found and len(found) < most:
                    found[other] = None
                    queue.append(other)
        for key in self.members:  # of another part of the graph
            if len(found) < most:
                found.setdefault(key, None)
        return set(found)

    def node(self, key: str) -> LineageNode:
        some = self.members[key]
        if len(some) == 1:
            name, more = _one(key)
            return LineageNode(key, kind_of(key), name, more, is_subject=key == self.subject)
        return LineageNode(key, kind_of(key), *_many(some), members=tuple(some))

    def _neighbours(self) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
        parents: dict[str, set[str]] = {key: set() for key in self.members}
        children: dict[str, set[str]] = {key: set() for key in self.members}
        for parent, child, _ in self.edges:
            parents[child].add(parent)
            children[parent].add(child)
        return parents, children

    def _merge(self, groups: Sequence[Sequence[str]]) -> None:
        into = {key: some[0] for some in groups for key in some}
        if not into:
            return
        found: dict[str, list[str]] = {}
        for key, some in self.members.items():
            found.setdefault(into.get(key, key), []).extend(some)
        self.members = found
        moved = ((into.get(p, p), into.get(c, c), via) for p, c, via in self.edges)
        vias: dict[tuple[str, str], dict[str, None]] = {}
        for parent, child, via in moved:
            if parent != child:
                vias.setdefault((parent, child), {})[via] = None
        self.edges = [(p, c, _via(some)) for (p, c), some in vias.items()]


def _via(vias: Mapping[str, None]) -> str:
    shown = [via for via in vias if via]
    return ", ".join(shown) if len(shown) <= VIAS else f"{', '.join(shown[:VIAS])} …"


def _numbers(entity: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", entity.partition(":")[2]))


def _epoch_of(entity: str) -> str | None:
    """Return what the hops of a candidate's epoch have in common."""
    return entity.rpartition("/")[0] if kind_of(entity) == "hop" else None


def _parts(name: str) -> tuple[str, ...]:
    """Return the parts of a table's or column's name, without quotes.

    >>> _parts('public."a.b".c')
    ('public', 'a.b', 'c')
    """
    return split(name) or (name,)


def _one(entity: str) -> tuple[str, str]:
    """Return a name, and what it is.

    >>> _one("column:public.orders.total"), _one("checkpoint:17/3")
    (('total', 'orders, column'), ('epoch 4', 'candidate 17, checkpoint'))
    """
    kind, _, rest = entity.partition(":")
    if kind == "column":
        *_, table, column = ["", *_parts(rest)]
        return column, f"{table}, column"
    if kind == "table":
        return _parts(rest)[-1], " ".join(["table", *(f"in {s}" for s in _parts(rest)[:-1])])
    if kind == "checkpoint":
        candidate, epoch = _numbers(entity)
        return f"epoch {epoch + 1}", f"candidate {candidate}, checkpoint"
    if kind == "hop":
        candidate, epoch, part = _numbers(entity)
        return f"hop on partition {part}", f"candidate {candidate}, epoch {epoch + 1}"
    if kind in ("partition", "candidate", "feature"):
        return f"{kind} {rest}", kind
    if kind == "file":
        return rest.rstrip("/").rpartition("/")[2] or rest, "file"
    return rest, kind


def _many(some: Sequence[str]) -> tuple[str, str]:
    """Return the name of many entities, and what they are.

    >>> _many(["hop:17/0/1", "hop:17/0/2"])
    ('2 hops', 'candidate 17, epoch 1')
    """
    first = some[0]
    kind = kind_of(first)
    if kind == "hop":
        hops = [_numbers(entity) for entity in some if kind_of(entity) == "hop"]
        epochs = sorted({epoch for _, epoch, _ in hops})
        candidates = sorted({candidate for candidate, _, _ in hops})
        span = f"{epochs[0] + 1}" if len(epochs) == 1 else f"{epochs[0] + 1} to {epochs[-1] + 1}"
        of = f"{len(candidates)} candidates"
        of = f"candidate {candidates[0]}" if len(candidates) == 1 else of
        return f"{len(hops):,} hops", f"{of}, epoch{'s' if len(epochs) > 1 else ''} {span}"
    name = f"{len(some):,} {kind}s"
    if kind == "column":
        return name, f"of {_parts(first.partition(':')[2])[-2:][0]}"
    if kind == "partition":
        return name, f"{_one(first)[0].partition(' ')[2]} to {_one(some[-1])[0].partition(' ')[2]}"
    return name, ", ".join(_one(entity)[0] for entity in some[:3]) + " …"
