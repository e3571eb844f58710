"""The campaigns that search for wrong answers, each in a module of this folder, or that attack.

A module's `search(seed=..., cases=...)` makes that many random cases, compares each with an oracle,
and returns figures whose bars say how many wrong answers are allowed: none. The test suite calls
the same functions with fewer cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from mmdb.bench.figures import Figure
from mmdb.terminal import console

#: Campaigns and how many cases each has in full.
CAMPAIGNS = {
    "columns": 2000,  # metrics and predictions over columns and categories in any order
    "exactness": 20000,  # parents and children: who computes the same is said rightly
    "lineage": 20000,  # queries: no column is lost in silence
    "cancels": 200,  # statements ended at random moments
    "endings": 60,  # hops ended in their midst, on one server and on a cluster: no crash
    "corruptions": 500,  # stored bytes changed, removed and cut short
}

#: The same of those that attack a server, each in a module of tests/bench/attack.
ATTACKS = {
    "shadows": 10_000,  # objects under the names that mmdb uses: none is ever run
    "oracle": 10_000,  # questions about what is hidden: no bit is learned
    "fuzz": 100_000,  # calls with strange arguments: mmdb's errors, and nothing changed
    "memory": 40,  # ways to take memory: no other session ends
    "forged": 40,  # values that no function would write: nothing fails for anybody else
    "soak": 600,  # seconds of six sessions that are cancelled and killed
}


def search(names: Sequence[str], *, seed: int, cases: int | None) -> list[Figure]:
    """Run campaigns in turn and return their figures.

    Args:
        names: of CAMPAIGNS or ATTACKS.
        cases: of each campaign; its full number if None.
    """
    figures: list[Figure] = []
    for name in names:
        count = (CAMPAIGNS | ATTACKS)[name] if cases is None else cases
        with console.status(f"searching {name}: {count} cases"):
            folder = "attack" if name in ATTACKS else "search"
            module = import_module(f"tests.bench.{folder}.{name}")
            figures += module.search(seed=seed, cases=count)
    return figures


def none_of(name: str, found: int, unit: str) -> Figure:
    """Return a figure that holds if nothing was found."""
    return Figure(name=name, value=found, unit=unit, bar="= 0", holds=found == 0)


def none_of_these(name: str, found: Sequence[str], unit: str) -> Figure:
    """Return a figure that holds if nothing was found, and show what was."""
    for one in found:
        console.print(f"{name}: {one}", markup=False, highlight=False, soft_wrap=True)
    return none_of(name, len(found), unit)
