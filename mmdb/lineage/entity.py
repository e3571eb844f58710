"""How the nodes of the lineage graph are written: `model:resnet@3`, `column:shop.orders.total`.

The views `lineage_*` write the same texts in SQL: a text is the node. Names of tables and columns
stand as they are; one that holds a dot or a quote is put in quotes, those in it doubled.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mmdb.db.queries import quote_name
from mmdb.errors import EntityNotFound
from mmdb.messages import show

#: Kinds that have a name, in the order in which a name without a kind is looked up.
NAMED = ("model", "run", "dataset", "table", "column")
#: Kinds that have numbers, and which.
NUMBERED = {
    "partition": ("part_id",),
    "feature": ("feature_id",),
    "candidate": ("candidate_id",),
    "checkpoint": ("candidate_id", "epoch"),
    "hop": ("candidate_id", "epoch", "part_id"),
}
#: Kinds that name a place outside of the database.
OUTSIDE = ("file", "database")
KINDS = (*NAMED, *NUMBERED, *OUTSIDE)

_PART = re.compile(r'"(?P<quoted>(?:[^"]|"")+)"(?=\.|\Z)|(?P<plain>[^."]+)(?=\.|\Z)')
_NUMBER = re.compile(r"[0-9]{1,18}")


class Asked(NamedTuple):
    """An entity as somebody wrote it; the kind is None where they left it out."""

    kind: str | None
    name: str


def parse(text: str) -> Asked:
    """Take an entity's text apart.

    >>> parse("model:resnet@3"), parse("orders.total")
    (Asked(kind='model', name='resnet@3'), Asked(kind=None, name='orders.total'))
    """
    kind, colon, name = text.partition(":")
    return Asked(kind, name) if colon and kind in KINDS else Asked(None, text)


def kind_of(node: str) -> str:
    """Return the kind of a node.

    >>> kind_of("hop:17/3/12")
    'hop'
    """
    return node[: node.index(":")]


def numbers(node: str) -> tuple[int, ...]:
    """Return the numbers of a node that has some.

    >>> numbers("checkpoint:17/3")
    (17, 3)
    """
    return tuple(map(int, node[node.index(":") + 1 :].split("/")))


def attributes(node: str) -> dict[str, object]:
    """Return what the text of a node says: kind, name, and a model's version or its numbers.

    >>> attributes("model:resnet@3"), attributes("checkpoint:17/3")["epoch"]
    ({'kind': 'model', 'name': 'resnet', 'version': 3}, 3)
    """
    kind, _, name = node.partition(":")
    if kind in NUMBERED:
        return {"kind": kind, "name": name, **dict(zip(NUMBERED[kind], numbers(node), strict=True))}
    if kind == "model":
        name, _, version = name.rpartition("@")
        return {"kind": kind, "name": name, "version": int(version)}
    return {"kind": kind, "name": name}


def check_numbers(kind: str, name: str) -> str:
    """Return the node of a numbered kind.

    Raises:
        EntityNotFound: the name is not made of as many numbers as the kind has.
    """
    parts = name.split("/")
    if len(parts) != len(NUMBERED[kind]) or not all(_NUMBER.fullmatch(part) for part in parts):
        form = {1: "12", 2: "17/3", 3: "17/3/12"}[len(NUMBERED[kind])]
        raise EntityNotFound(f"{show(name)} is no {kind}.", hint=f"Write it as {kind}:{form}.")
    return f"{kind}:{'/'.join(str(int(part)) for part in parts)}"


def quote(name: str) -> str:
    """Return one part of a table's or column's name as it stands in a node.

    >>> print(quote("total"), quote("v1.5"), quote('a"b'))
    total "v1.5" "a""b"
    """
    return quote_name(name) if "." in name or '"' in name else name


def join(kind: str, parts: tuple[str, ...]) -> str:
    """Return the node of a table or column.

    >>> join("column", ("shop", "v1.5", "total"))
    'column:shop."v1.5".total'
    """
    return f"{kind}:{'.'.join(map(quote, parts))}"


def split(name: str) -> tuple[str, ...]:
    """Return the parts of a table's or column's name, without quotes; () where it is none.

    >>> split('shop."v1.5".total'), split("a..b")
    (('shop', 'v1.5', 'total'), ())
    """
    parts, position = [], 0
    while match := _PART.match(name, position):
        parts.append(match["plain"] or match["quoted"].replace('""', '"'))
        position = match.end() + 1
    return tuple(parts) if position == len(name) + 1 else ()
