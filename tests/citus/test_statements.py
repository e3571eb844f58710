"""How many statements a hop costs: on the coordinator, and from a node to other servers."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import mmdb
from mmdb.db.install import install
from tests.bench.citus.run import Work, create_run, make_dataset
from tests.citus_cluster import CitusCluster
from tests.cluster import Cluster

pytestmark = pytest.mark.citus

#: Four candidates, four partitions and the validation slice, four epochs: 80 hops.
WORK = Work(
    rows=2_000, width=16, hidden=(32,), rates=(0.05, 0.02, 0.01, 0.005), partitions=4, epochs=4
)
#: Every statement that a server gets is logged, and every one that it sends to another.
SETTINGS = {
    "log_statement": "all",
    "citus.log_remote_commands": "on",
    "log_min_messages": "notice",
    "client_min_messages": "warning",
    "log_line_prefix": "%m [%p] <%a> ",
}
_ENTRY = re.compile(r"^\d{4}-\d\d-\d\d \S+ \S+ \[(\d+)\] <(.*)> ([A-Z]+):  ", re.MULTILINE)
_GOT = re.compile(r"(?:statement|execute [^:]*): ")
_HERE, _SENT = "executing the command locally: ", "issuing "


class StatementLog:
    """What a server has written to its log from now on."""

    def __init__(self, server: Cluster) -> None:
        self._path: Path = server.directory / "log"
        self._start = self._path.stat().st_size

    def _entries(self) -> Iterator[tuple[str, str, str]]:
        """Yield process, session's name and text of each entry."""
        text = self._path.read_bytes()[self._start :].decode(errors="replace")
        found = list(_ENTRY.finditer(text))
        ends = [*(entry.start() for entry in found[1:]), len(text)]
        for entry, end in zip(found, ends, strict=True):
            yield entry[1], entry[2], text[entry.end() : end].strip()

    def received(self) -> Counter[str]:
        """Count the statements from clients and other servers, by the first word of the session.

        BEGIN, COMMIT and savepoints count. What Citus makes of a statement for a shard of its own
        is logged like one, but is none.
        """
        counts: Counter[str] = Counter()
        here: dict[str, list[str]] = defaultdict(list)
        for process, session, text in self._entries():
            if text.startswith(_HERE):
                here[process].append(text.removeprefix(_HERE))
            elif found := _GOT.match(text):
                if text[found.end() :] in here[process]:
                    here[process].remove(text[found.end() :])
                elif "blocking_transaction_num" not in text:  # Citus looks for deadlocks
                    counts[session.split(" gpid")[0]] += 1
        return counts

    def sent(self) -> int:
        """Count the statements to other servers, but for those of Citus's own daemon."""
        return sum(text.startswith(_SENT) for _, session, text in self._entries() if session)


@pytest.fixture(scope="module")
def cluster() -> Iterator[CitusCluster]:
    """Yield two nodes and a coordinator that write down each statement."""
    with CitusCluster(nodes=2, settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def db(cluster: CitusCluster) -> Iterator[mmdb.Database]:
    """Yield a database with a dataset, in which a first run was trained."""
    url = cluster.create_database("counted")
    install(url)
    with mmdb.connect(url) as db:
        make_dataset(db, WORK)
        yield db


@pytest.mark.parametrize(
    ("order", "strategy", "bars"),
    [("fixed", "mop", (6, 8)), ("free", "mop", (6, 8)), ("fixed", "model_average", (10, 10))],
)
def test_a_hop_costs_few_statements(
    cluster: CitusCluster, db: mmdb.Database, order: str, strategy: str, bars: tuple[int, int]
) -> None:
    """Per hop, with the beginning and the end of the run, which saves a model."""
    run = create_run(db, f"{strategy}-{order}", WORK, order, strategy)
    coordinator, *nodes = [StatementLog(server) for server in cluster.servers]
    hops = run.train(workers=2).hops
    received = coordinator.received()
    sent = sum(node.sent() for node in nodes)
    assert hops == 4 * 5 * 4
    assert received["mmdb worker 0"] + received["mmdb worker 1"] >= hops  # they are seen at all
    assert sent >= hops
    said = {name: round(count / hops, 2) for name, count in received.items()}
    assert received.total() / hops <= bars[0], said
    assert sent / hops <= bars[1]
