"""Searches: which candidates a run trains, and how far each. Pure."""

from mmdb.train.search.base import Search
from mmdb.train.search.decisions import (
    Decision,
    Entry,
    Goal,
    Report,
    Start,
    Stop,
    Want,
    from_row,
    to_row,
)
from mmdb.train.search.factory import candidates, compares, make_search, possible, stops_early
from mmdb.train.search.options import METHODS
from mmdb.train.search.space import MAX_CANDIDATES

__all__ = [
    "MAX_CANDIDATES",
    "METHODS",
    "Decision",
    "Entry",
    "Goal",
    "Report",
    "Search",
    "Start",
    "Stop",
    "Want",
    "candidates",
    "compares",
    "from_row",
    "make_search",
    "possible",
    "stops_early",
    "to_row",
]
