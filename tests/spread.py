"""How the tests are spread over several processes, each with a PostgreSQL server of its own."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

#: Folders whose tests are so short that they go a file at a time.
SHORT = ("mmdb/", "tests/unit/")
_ENGINE = re.compile(r"\[(duckdb|postgres)\b")


def unit_of(root: Path, test: str) -> str:
    """Return what a test is one of that must run in one process, in their order.

    That is the test alone. In files with fixtures for the whole module, or with copies, which each
    process would make anew, it is the file's tests of one engine.

    Args:
        test: its id, as pytest prints it.
    """
    path, _, name = test.partition("::")
    if not _shares(root / path) and not path.startswith(SHORT):
        return test
    engine = _ENGINE.search(name)
    return f"{path}[{engine[1]}]" if engine else path


@cache
def _shares(path: Path) -> bool:
    text = path.read_text()
    return 'scope="module"' in text or "copies: Copies" in text


class Spread(LoadScopeScheduling):  # type: ignore[misc] # pytest-xdist has no types
    """Hands the next unit to the process that runs out of tests.

    Units go in the order of collection: the long ones are in acceptance/ and integration/, the
    short ones in unit/ fill the gaps at the end.
    """

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(self.config.rootpath, nodeid)
