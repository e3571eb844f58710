"""The branches of a directed acyclic graph, and the orders in which they can be written down.

Every such graph is a sequence of nodes and of branches that lie side by side. Towards a node that
several results reach, what two or more of them share comes first; what is left to each alone are
the branches. No branch reads another one, so that they can stand in any order, each in one piece:

    a ── b ── c ── d        (a, [b, c | e], d): a b c e d, or a e b c d
     └─────── e ──┘

The decomposition depends on the graph alone, not on names or numbers. A block put into an edge
leaves every order of the nodes around it possible.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from blake3 import blake3


@dataclass(slots=True)
class Part:
    """Nodes and branches, one after the other.

    Attributes:
        size: nodes in it.
        form, name: hashes of the forms and of the names of its nodes; equal ones are written alike.
        cost: of its nodes together.
    """

    items: list[int | Branches] = field(default_factory=list)
    size: int = 0
    cost: int = 0
    form: bytes = b""
    name: bytes = b""

    def __iter__(self) -> Iterator[int]:
        """Yield the nodes, branches in their own order."""
        waiting: list[int | Branches] = self.items[::-1]
        while waiting:
            item = waiting.pop()
            if isinstance(item, int):
                yield item
            else:
                for part in reversed(item.parts):
                    waiting.extend(reversed(part.items))


@dataclass(slots=True)
class Branches:
    """Parts side by side; where `are_free`, each order of them means the same."""

    parts: list[Part]
    are_free: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """A directed acyclic graph; what a node reads has a lower number.

    Attributes:
        inputs: what each node reads, in the order of its arguments.
        commutes: whether the arguments of a node may change places.
        alone: those that have no edges and never could have any; they come last.
        forms: what kind of node each is.
        names: the same and its sizes. Nodes of one name can stand for each other.
        costs: of each node.
    """

    inputs: Sequence[Sequence[int]]
    commutes: Sequence[bool]
    alone: Collection[int]
    forms: Sequence[bytes]
    names: Sequence[bytes]
    costs: Sequence[int]


def decompose(nodes: Nodes) -> Part:
    """Return the sequence that a graph is.

    Iterating it gives the canonical order: branches that may change places stand by size, form,
    cost and name. Two numberings of one graph give the same names in that order. Branches whose
    order matters, or that are all alike, are dissolved into the sequence.
    """
    root, parts = _split(nodes)
    for part in reversed(parts):  # branches before the part that they belong to
        part.items.reverse()
        _settle(part, nodes)
    return root


def _split(nodes: Nodes) -> tuple[Part, list[Part]]:
    """Return the whole and all parts, each from its last node to its first."""
    above = _ancestors(nodes.inputs)
    inner = {source for sources in nodes.inputs for source in sources}.union(nodes.alone)
    ends = [node for node in range(len(nodes.inputs)) if node not in inner]
    last = sorted(nodes.alone, key=lambda node: (nodes.costs[node], nodes.names[node]))
    root = Part([*reversed(last)])
    parts = [root]
    waiting = [(root, ends, True, 0)]
    while waiting:
        part, tops, free, done = waiting.pop()
        while tops := [top for top in dict.fromkeys(tops) if not done & 1 << top]:
            if len(tops) == 1:
                part.items.append(tops[0])
                tops, free = list(nodes.inputs[tops[0]]), nodes.commutes[tops[0]]
                continue
            seen = shared = 0
            for top in tops:
                seen, shared = seen | above[top], shared | (seen & above[top])
            shared &= ~done
            own = [top for top in tops if not shared & 1 << top]
            branches = [Part() for _ in own]
            if branches:
                # From the last to the first, as all items.
                part.items.append(Branches(branches, free and len(own) > 1))
            parts += branches
            waiting += [(b, [t], True, done | shared) for b, t in zip(branches, own, strict=True)]
            tops, free = _latest(shared, above), True
    return root, parts


def _ancestors(inputs: Sequence[Sequence[int]]) -> list[int]:
    """Return for each node the set of itself and all that it depends on, as bits."""
    above: list[int] = []
    for node, sources in enumerate(inputs):
        bits = 1 << node
        for source in sources:
            bits |= above[source]
        above.append(bits)
    return above


def _latest(shared: int, above: Sequence[int]) -> list[int]:
    """Return the nodes of a set that no other one of it reads."""
    found = []
    while shared:
        found.append(shared.bit_length() - 1)
        shared &= ~above[found[-1]]
    return found


def _settle(part: Part, nodes: Nodes) -> None:
    """Put branches in order, dissolve those that have only one, and sum up."""
    items: list[int | Branches] = []
    form, name = blake3(), blake3()
    for item in part.items:
        if isinstance(item, int):
            part.size += 1
            part.cost += nodes.costs[item]
            form.update(nodes.forms[item])
            name.update(nodes.names[item])
            items.append(item)
            continue
        if item.are_free:
            item.parts.sort(key=_rank)
        for branch in item.parts:
            part.size += branch.size
            part.cost += branch.cost
            form.update(branch.form)
            name.update(branch.name)
        if item.are_free and len({branch.name for branch in item.parts}) > 1:
            items.append(item)
        else:
            items.extend(node for branch in item.parts for node in branch.items)
    part.items, part.form, part.name = items, form.digest(), name.digest()


def _rank(part: Part) -> tuple[int, bytes, int, bytes, int]:
    return -part.size, part.form, -part.cost, part.name, next(iter(part))
