"""Checks a dataset's query and finds the columns that it reads, without running it.

`statement` refuses what is not one SELECT. `select`, `tables`, `stars` and `expressions` bind its
names as the engine would and build a graph of columns (`columns`); `relations` puts in tables and
the definitions of views; `sources` walks the graph. What cannot be told is marked, never guessed.
"""

from mmdb.data.query.sources import Analysis, Catalog, Resolution, SourceColumn, analyse
from mmdb.data.query.statement import Engine, checked_select, parse_select

__all__ = [
    "Analysis",
    "Catalog",
    "Engine",
    "Resolution",
    "SourceColumn",
    "analyse",
    "checked_select",
    "parse_select",
]
