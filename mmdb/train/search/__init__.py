"""Searches: which candidates a run trains, and how far each. Pure."""

from mmdb.train.search.base_search import Search
from mmdb.train.search.factory import candidates, compares, make_search, possible, stops_early
from mmdb.train.search.search_log import (
    BUDGET,
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
from mmdb.train.search.search_options import METHODS
from mmdb.train.search.search_space import MAX_CANDIDATES

__all__ = [
    "BUDGET",
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
