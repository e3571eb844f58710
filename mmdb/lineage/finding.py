"""`lineage`: the node that a text stands for, what it came from, and what came of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple, get_args

from mmdb.arguments import is_whole
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import load
from mmdb.errors import AmbiguousEntity, EntityNotFound, InvalidOption
from mmdb.lineage.entity import NUMBERED, OUTSIDE, check_numbers, join, kind_of, parse, split
from mmdb.lineage.graph import Direction, Graph, Step, walk
from mmdb.messages import show

_Q = load("lineage")
_VERSION = re.compile(r"[0-9]{1,9}")


class Found(NamedTuple):
    """A node; models, runs and datasets have a number."""

    node: str
    number: int | None = None


def find(connection: Connection, entity: object) -> Found:
    """Return the node that `entity` stands for.

    A name without its kind is looked up as a model, run, dataset, table and column. A run's best
    model has the run's name: then the name is the model's.

    Raises:
        EntityNotFound
        AmbiguousEntity: it may be several, which the message lists.
    """
    if not isinstance(entity, str):
        raise EntityNotFound(f"{show(entity)} is no entity.")
    asked = parse(entity)
    if asked.kind in NUMBERED:
        return _numbered(connection, asked.kind, asked.name)
    if asked.kind in OUTSIDE:
        return _only(
            entity, [Found(entity)] if connection.rows(_Q.outside_down, names=[entity]) else []
        )
    if asked.kind in ("table", "column"):
        found = _columns(connection, asked.kind, asked.name)
        exact = [one for one in found if one.node == entity]  # of an unknown schema, for example
        return _only(entity, exact or found)
    if asked.kind is not None:
        return _only(entity, _named(connection, asked.name, (asked.kind,)))
    found = _named(connection, asked.name, ("model", "run", "dataset"))
    if "@" not in asked.name:
        for kind in ("table", "column"):
            found += _columns(connection, kind, asked.name)
    if found and found[0].node.startswith("model:"):
        found = [one for one in found if not one.node.startswith("run:")]
    return _only(entity, found)


def written_out(entity: object) -> str | None:
    """Return the node of a table or column that is written with its kind and schema.

    Whether there is one is not looked up.
    """
    asked = parse(entity) if isinstance(entity, str) else None
    if asked and asked.kind in ("table", "column"):
        parts = split(asked.name)
        if len(parts) == (2 if asked.kind == "table" else 3):
            return join(asked.kind, parts)
    return None


def _only(entity: str, found: list[Found]) -> Found:
    if not found:
        raise EntityNotFound(f"There is no {show(entity)} in the lineage of this database.")
    if len(found) > 1:
        listed = ", ".join(sorted(one.node for one in found))
        raise AmbiguousEntity(f"{show(entity)} is several: {listed}.")
    return found[0]


def _named(connection: Connection, name: str, kinds: tuple[str, ...]) -> list[Found]:
    """Return models, runs and datasets: `name@version`, `name@alias`, `name#dataset_id`, `name`.

    A version of a dataset has its number in its name.
    """
    # Names that a row may have and no model is given, such as an empty one, are found too.
    model, at, reference = name.partition("@")
    dataset, sharp, number = name.partition("#")
    rows = connection.rows(_Q.find_named, name=dataset)
    of_kind = {kind: [row for row in rows if row["kind"] == kind] for kind in kinds}
    datasets = of_kind.get("dataset", [])
    if at:
        named = connection.rows(_Q.find_named, name=model) if "model" in kinds else []
        models = [row for row in named if row["kind"] == "model"]
        version = _version(connection, model, reference) if models else None
        of_kind["model"] = [row for row in models if row["version"] == version]
    if sharp:
        return _as_found([row for row in datasets if str(row["entity_id"]) == number])
    models = of_kind.get("model", [])
    return _as_found([*_newest(models), *of_kind.get("run", []), *_newest(datasets)])


def _version(connection: Connection, model: str, reference: str) -> int | None:
    if _VERSION.fullmatch(reference):
        return int(reference)
    aliased = connection.rows(_Q.find_alias, model=model, alias=reference)
    return int(aliased[0]["version"]) if aliased else None


def _newest(rows: list[Row]) -> list[Row]:
    """Return the newest that was not dropped; where all were dropped, the newest."""
    standing = [row for row in rows if not row["is_dropped"]] or rows
    return sorted(standing, key=lambda row: row["entity_id"])[-1:]


def _as_found(rows: Iterable[Row]) -> list[Found]:
    return [Found(str(row["entity"]), int(row["entity_id"])) for row in rows]


def _columns(connection: Connection, kind: str, name: str) -> list[Found]:
    """Return the tables or columns of a name, with or without a schema.

    What is written out in full is that and nothing else; case counts where the names differ by it.
    """
    parts = split(name)
    least = 1 if kind == "table" else 2
    if not least <= len(parts) <= least + 1:
        return []
    given = {"name": parts[-least]} | ({"column": parts[-1]} if kind == "column" else {})
    queries = (
        (_Q.find_tables, _Q.find_tables_in_any_case)
        if kind == "table"
        else (_Q.find_columns, _Q.find_columns_in_any_case)
    )
    folds: tuple[Callable[[str], str], ...] = (str, str.lower)
    for query, fold in zip(queries, folds, strict=True):
        nodes = [str(row["entity"]) for row in connection.rows(query, **given)]
        wanted = fold(join(kind, parts))
        if len(parts) > least:
            found = [node for node in nodes if fold(node) == wanted]
        else:
            found = [node for node in nodes if _tail(fold(node)) == _tail(wanted)]
        if found:
            return [Found(node) for node in found]
    return []


def _tail(node: str) -> tuple[str, ...]:
    """Return a table's name without its schema, or a column's with its table's."""
    kind, _, name = node.partition(":")
    return split(name)[-1 if kind == "table" else -2 :]


def _numbered(connection: Connection, kind: str, name: str) -> Found:
    node = check_numbers(kind, name)
    key = int(name.split("/")[0])
    query = {
        "partition": _Q.partition_up,
        "feature": _Q.feature_up,
        "candidate": _Q.candidate_up,
        "checkpoint": _Q.hops_up,
        "hop": _Q.hops_up,
    }[kind]
    rows = connection.rows(query, ids=[key])
    return _only(node, [Found(node)] if any(row["child"] == node for row in rows) else [])


def lineage(
    connection: Connection,
    entity: str,
    direction: str = "up",
    *,
    hops: bool | None = None,
    max_depth: int | None = None,
) -> list[Step]:
    """Return the edges that lead to an entity, or away from it, those next to it first.

    It reads views alone, so a reader may call it.

    Args:
        entity: as `mmdb.lineage.entity` writes it; a name alone where it is of one thing.
        direction: "up" to what it came from, "down" to what came of it.
        hops: whether partitions and hops are shown; left out, they are on the way up, and on the
            way down from a partition or hop.
        max_depth: edges that the farthest is away at most.
    Raises:
        EntityNotFound, AmbiguousEntity
        InvalidOption: of `direction` or `max_depth`, or there are too many edges.
    """
    way = _direction(direction)
    if max_depth is not None and not is_whole(max_depth, 1):
        raise InvalidOption(f"max_depth is {show(max_depth)}.", hint="It is a whole number from 1.")
    node = written_out(entity) if way == "down" else None
    if node:  # its first edges say that it is there: one query less
        graph = Graph(connection, way, hops=bool(hops))
        if any(graph.neighbours(kind_of(node), [node])):
            return walk(node, way, graph.neighbours, max_depth=max_depth)
    found = find(connection, entity)
    shown = way == "up" or kind_of(found.node) in ("partition", "hop") if hops is None else hops
    graph = Graph(connection, way, hops=shown)
    graph.know(*found)
    return walk(found.node, way, graph.neighbours, max_depth=max_depth)


def _direction(given: object) -> Direction:
    for direction in get_args(Direction):
        if given == direction:
            return direction  # type: ignore[no-any-return]
    raise InvalidOption(f"direction is {show(given)}.", hint="It is 'up' or 'down'.")
