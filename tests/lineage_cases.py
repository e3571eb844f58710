"""The golden lineage queries: read from their files, and scored against what is found."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mmdb.data.query import Catalog, Engine, SourceColumn, analyse

FOLDER = Path(__file__).resolve().parent / "unit" / "data" / "lineage"
_NAME = r'(?:"(?:[^"]|"")*"|[^\s".,]+)'
_ANSWER = re.compile(rf"-- ({_NAME}) <- (\S.*)")
_HEAD = re.compile(r"-- (case|engines|search_path|hidden): (.*)")

#: Schema, table and column, then views with their schemas, outermost first; () for "not known".
Path_ = tuple[tuple[str, ...], ...]
Answer = frozenset[Path_]
UNKNOWN: Path_ = ()


@dataclass(frozen=True)
class Case:
    """One query with its answers."""

    name: str
    engines: tuple[str, ...]
    search_path: tuple[str, ...]
    is_hidden: bool  # it reads a table that the catalog does not know
    query: str
    outputs: list[str]
    answers: dict[str, Answer]
    filters: Answer


@dataclass
class Score:
    """How one case went: by output columns, and its filters as one more."""

    count: int = 0
    right: int = 0
    unresolved: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def _parts(text: str) -> tuple[str, ...]:
    found = re.findall(_NAME, text)
    return tuple(p[1:-1].replace('""', '"') if p.startswith('"') else p for p in found)


def _path(text: str) -> Path_:
    if text == "?":
        return UNKNOWN
    column, _, via = text.partition(" via ")
    return (_parts(column), *(_parts(view) for view in via.split(", ") if view))


def _read(file: Path) -> Case:
    head: dict[str, str] = {}
    query: list[str] = []
    answers: dict[str, set[Path_]] = {}
    filters: set[Path_] = set()
    for line in file.read_text().splitlines():
        if answer := _ANSWER.fullmatch(line):
            if answer[1] == "filter":
                filters.add(_path(answer[2]))
            else:
                own = answers.setdefault(_parts(answer[1])[0], set())
                own |= set() if answer[2] == "nothing" else {_path(answer[2])}
        elif given := _HEAD.fullmatch(line):
            head[given[1]] = given[2]
        else:
            assert not line.startswith("--"), f"{file.name}: {line}"
            query.append(line)
    return Case(
        name=file.stem,
        engines=tuple(head["engines"].split(", ")),
        search_path=tuple(p for p in head.get("search_path", "").split(", ") if p),
        is_hidden="hidden" in head,
        query="\n".join(query).strip().rstrip(";"),
        outputs=list(answers),
        answers={name: frozenset(paths) for name, paths in answers.items()},
        filters=frozenset(filters),
    )


CASES = [_read(file) for file in sorted(FOLDER.glob("[0-9]*.sql"))]


def catalog(engine: Engine) -> list[str]:
    """Return the statements that make the tables and views of the cases."""
    made = []
    for statement in re.split(r";\s*\n", (FOLDER / "catalog.sql").read_text()):
        only = re.search(r"^-- only: (\w+)", statement, re.MULTILINE)
        text = re.sub(r"^--.*\n?", "", statement, flags=re.MULTILINE).strip()
        if text and (only is None or only[1] == engine):
            made.append(text)
    return made


def score(case: Case, engine: Engine, known: Catalog, columns: Sequence[str]) -> Score:
    """Return how the sources found for a case compare with its answers.

    Args:
        columns: the outputs, as the database names them.
    """
    sources = analyse(case.query, engine, known).sources_of(columns)
    found: dict[str | None, set[Path_]] = {name: set() for name in (*case.outputs, None)}
    for source in sources:
        if source.output is not None or source.resolution == "column":
            found.setdefault(source.output, set()).add(_path_of(source))
    result = Score(count=len(case.outputs))
    for name, answer in case.answers.items():
        if found[name] == answer:
            result.right += 1
        else:
            _compare(result, f"{case.name}: {name}", found[name], answer)
    if found[None] != case.filters:
        _compare(result, f"{case.name}: filter", found[None], case.filters)
    return result


def _compare(result: Score, name: str, found: set[Path_], answer: Answer) -> None:
    difference = f"{name}: more {sorted(found - answer)}, less {sorted(answer - found)}"
    is_marked = UNKNOWN in found and UNKNOWN not in answer
    is_safe = is_marked and found - {UNKNOWN} <= answer
    (result.unresolved if is_safe else result.wrong).append(difference)


def _path_of(source: SourceColumn) -> Path_:
    if source.resolution != "column" or source.column is None:
        return UNKNOWN
    schema = (source.schema,) if source.schema is not None else ()
    return ((*schema, source.table, source.column), *(_parts(view) for view in source.via))
