"""What a report consists of, whatever its subject and its file's format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mmdb.report.lineage_graph import LineageGraph
from mmdb.report.texts import value_text

#: A Vega-Lite specification without width, colours and fonts, which are the theme's.
Spec = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart, with what it shows in words."""

    title: str
    alt: str  # for whoever cannot see it
    spec: Spec
    note: str = ""  # how to read it


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table; `show` makes the text of a value."""

    key: str
    label: str = ""
    show: Callable[[Any], str] = value_text
    right: bool = False
    entity: str = ""  # key of the entity whose page a cell leads to, where there is one


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table; JSON has its rows as they are, a page their columns as texts."""

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: Rows
    folded: bool = False  # shown when it is asked for
    swatch: str = ""  # key of the colour that a row has in the charts; None there for none


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """A graph that can be clicked through; a page has one at most."""

    graph: LineageGraph
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of a report; `key` names it in JSON and in links."""

    key: str
    title: str
    texts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    lineage: Lineage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A figure at a report's head."""

    key: str
    label: str
    value: Any
    text: str
    entity: str = ""  # whose page it leads to, where there is one


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report of one thing."""

    kind: str  # "run", "model"
    name: str
    made: float  # seconds since 1970
    facts: tuple[Fact, ...] = ()
    sections: tuple[Section, ...] = field(default=())

    @property
    def title(self) -> str:
        """Its heading."""
        return f"{self.kind.capitalize()} {self.name}"
